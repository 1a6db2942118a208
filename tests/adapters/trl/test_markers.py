"""Answers are found in what real byte-pair tokenizers make of realistic completions."""

import functools
import warnings

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from klip.adapters.common import reader
from klip.adapters.trl import KlipGRPOTrainer
from klip.adapters.trl_batch import mark
from klip.adapters.trl_window import ENOUGH
from klip.errors import KlipError
from tests.adapters.trl.world import logged, trainer

# (a completion, the marker); the answer is what follows the last marker.
COMPLETIONS = [
    ("<think>\n12 plus 30 is 42.\n</think>\n<answer>\n42\n</answer>", "<answer>"),
    ("<think>so it is 7</think><answer>7</answer>", "<answer>"),
    ("<think>so it is 7</think> <answer> 7 </answer>", "<answer>"),
    ("we have x = 3.<answer>3</answer>", "<answer>"),
    ("<answer>42</answer>", "<answer>"),
    ("first <answer>1</answer>, no: <answer>2</answer>", "<answer>"),
    ("<think>\nhmm\n</think>\n\n<answer>**42**</answer>", "<answer>"),
    ("The area is $\\boxed{12}$.", "\\boxed{"),
    ("Thus $$\\boxed{\\frac{1}{2}}$$", "\\boxed{"),
    ("so the answer is \\boxed{-3}", "\\boxed{"),
    ("we get \\(\\boxed{x^2}\\)", "\\boxed{"),
    ("Answer: \\boxed{\\text{Paris}}", "\\boxed{"),
    ("= 4 $\\boxed{ 4 }$", "\\boxed{"),
    ("12 + 30 = 42\n#### 42", "####"),
    ("12 + 30 = 42\n\n####42", "####"),
    ("it costs $18.#### 18", "####"),
    ("it costs 18 #### 18", "####"),
    ("(3*4)#### 12\n", "####"),
    ("so there are 5 apples.\n\n**Answer:** 5", "Answer:"),
    ("so there are 5 apples.\n**Answer:**5", "Answer:"),
    ("**Final Answer:** B", "**Final Answer:**"),
    ("therefore\nAnswer: (C)", "Answer:"),
    ("Answer:\n\n3.14", "Answer:"),
    ("the result is clear. Final answer: 10:30", "Final answer:"),
    ("</think>\n\nThe answer is: yes", "</think>"),
    ("<think>short</think>Paris is in France.", "</think>"),
    ("计算得到四十二。答案：四十二", "答案："),
    ("voilà 😀 réponse→😀42", "réponse→"),
]

CORPUS = [
    *[text for text, _ in COMPLETIONS],
    "<think>\nso we add the two numbers and get the sum\n</think>\n<answer>\n12\n</answer>",
    "<think>we know that 3 apples cost 6, so 1 costs 2</think><answer>2</answer>",
    "the final result is $\\boxed{7}$ and $\\boxed{8}$ or $$\\boxed{9}$$.",
    "so there are 12 of them.\n#### 12",
    "therefore.\n\n**Answer:** 12\n**Final Answer:** 12\n\nAnswer: 3",
    "答案：三 réponse→4 😀😀",
]


def byte_level():
    """Byte-level pairs, split as in Llama 3 and Qwen: punctuation takes line breaks along."""
    made = Tokenizer(models.BPE())
    split = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return trained_on_bytes(made)


def unsplit():
    """Byte-level pairs over whole lines: merges cross words, as in superword tokenizers."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return trained_on_bytes(made)


def trained_on_bytes(made):
    """A tokenizer that knows how to split text, with pairs of bytes learned from the corpus."""
    made.decoder = decoders.ByteLevel()
    learner = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=["<|end|>"],
    )
    made.train_from_iterator(CORPUS * 20, learner)
    return made


def metaspace():
    """Pairs with a mark for spaces and bytes for what is rare, as SentencePiece's for Llama 2."""
    marked = [text.replace(" ", "▁") for text in CORPUS]
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    rare = [f"<0x{byte:02X}>" for byte in range(256)]
    alphabet = sorted({c for text in marked for c in text if ord(c) < 0x2000} | {"▁"})
    learner = trainers.BpeTrainer(
        vocab_size=256 + 2 + len(alphabet) + 180,
        special_tokens=["<unk>", "<|end|>", *rare],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.train_from_iterator(CORPUS * 20, learner)
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return made


@functools.cache
def tokenizer(make):
    return PreTrainedTokenizerFast(
        tokenizer_object=make(), pad_token="<|end|>", eos_token="<|end|>", padding_side="left"
    )


def places(of, text):
    """(ids, which token reaches beyond each character), by the tokenizer's own offsets."""
    encoded = of._tokenizer.encode(text, add_special_tokens=False)
    return encoded.ids, encoded.offsets


TOKENIZERS = [byte_level, unsplit, metaspace]


@pytest.mark.parametrize("make", TOKENIZERS)
@pytest.mark.parametrize(("text", "marker"), COMPLETIONS)
def test_an_answer_is_found_wherever_merges_fall(make, text, marker):
    of = tokenizer(make)
    ids = of.encode(text, add_special_tokens=False)
    decode = reader(of, marker)
    assert decode(ids) == text
    batch = {"completion_ids": torch.tensor([ids]), "completion_mask": torch.ones(1, len(ids))}
    answer = mark(batch, decode, marker)
    assert answer.found.all()
    count = int(answer.mask.sum())
    assert answer.mask[0].tolist() == [False] * (len(ids) - count) + [True] * count
    # By the text: what is before the answer has not passed the marker, one token more has.
    end = text.rindex(marker) + len(marker)
    before, one_more = decode(ids[: len(ids) - count]), decode(ids[: len(ids) - count + 1])
    assert text.startswith(before.rstrip("�"))
    assert len(before.rstrip("�")) <= end
    assert len(one_more) > end
    assert one_more[:end] == text[:end]


@pytest.mark.parametrize("make", [byte_level, unsplit])
def test_it_is_what_the_tokenizers_own_offsets_say(make):
    for text, marker in COMPLETIONS:
        ids, offsets = places(tokenizer(make), text)
        end = text.rindex(marker) + len(marker)
        wanted = [reaches > end for _, reaches in offsets]
        batch = {"completion_ids": torch.tensor([ids]), "completion_mask": torch.ones(1, len(ids))}
        answer = mark(batch, reader(tokenizer(make), marker), marker)
        assert answer.mask[0].tolist() == wanted, text


@pytest.mark.parametrize("make", TOKENIZERS)
def test_the_tokenizers_do_merge_markers_with_their_neighbours(make):
    """Else the tests above would say little: the marker alone has other ids than in its place."""
    of, merged = tokenizer(make), 0
    for text, marker in COMPLETIONS:
        ids, own = (of.encode(x, add_special_tokens=False) for x in (text, marker))
        merged += not any(ids[i : i + len(own)] == own for i in range(len(ids)))
    assert merged >= 13


def test_characters_are_cut_into_several_tokens():
    of = tokenizer(metaspace)
    ids = of.encode("réponse→😀42", add_special_tokens=False)
    assert "�" in of.decode(ids[:-3])


@pytest.mark.parametrize("make", TOKENIZERS)
def test_a_marker_that_cannot_be_written_is_refused(make):
    lower = Tokenizer.from_str(make().to_str())
    lower.normalizer = normalizers.Lowercase()
    of = PreTrainedTokenizerFast(tokenizer_object=lower)
    with pytest.raises(KlipError, match=r"answer_marker='ANSWER' .* read back .* it is 'answer'"):
        reader(of, "ANSWER")
    with pytest.raises(KlipError, match="must be text that the tokenizer knows"):
        reader(of, " \n")


MARKED = {"shape": "clip", "answer_marker": "#"}


def spoken(folder, share, **changes):
    """A run in which this share of the completions has an answer; what it warned of, and logged."""
    turn = iter(range(10**9))

    def rollout(prompts, its):
        texts = ["ab#c" if next(turn) % 8 < 8 * share else "abcd" for _ in prompts]
        ids = [its.processing_class.encode(text) for text in texts]
        return {
            "prompt_ids": [its.processing_class.encode(text) for text in prompts],
            "completion_ids": ids,
            "logprobs": [[-2.0] * len(one) for one in ids],
        }

    made = trainer(
        folder, KlipGRPOTrainer, ours={**MARKED, "rollout_func": rollout},
        **{"max_steps": 4, "num_iterations": 2} | changes,
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made.train()
    return [str(w.message) for w in caught if "answer_marker" in str(w.message)], logged(made)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


def test_too_few_answers_are_said_loudly_and_once(tmp_path):
    said, entries = spoken(tmp_path, share=1 / 8)
    (sentence,) = said
    assert sentence.startswith("only 4 of 32 completions have the answer_marker '#'")
    assert "ends with 'abcd'" in sentence
    assert "\n" not in sentence
    assert entries[0]["klip/answer_found"] == 1 / 8


def test_none_at_all_are_said_too(tmp_path):
    said, entries = spoken(tmp_path, share=0)
    assert len(said) == 1
    assert entries[0]["klip/answer_found"] == 0
    assert entries[0]["klip/answer/tokens"] == 0


def test_enough_answers_are_no_news(tmp_path):
    said, entries = spoken(tmp_path, share=1 / 2)
    assert said == []
    assert entries[0]["klip/answer_found"] == 1 / 2


def test_a_few_completions_are_too_few_to_judge(tmp_path):
    assert ENOUGH > 8
    said, _ = spoken(
        tmp_path, share=0, per_device_train_batch_size=8, max_steps=2, num_iterations=2
    )
    assert said == []
