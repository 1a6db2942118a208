"""What TRL knows of a batch reaches the shape; markers are found; processes are put together."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from klip.adapters.trl_batch import ANSWER, VERSION, across_processes, look, mark, markers
from klip.shapes import ByAge, ByEntropy, Clip, MissingContext, Truncate
from klip.tokens import OPSM, TokenRegion

NEW = torch.tensor([[0.0, 0.3, 0.3, 0.0], [0.0, 0.3, 0.0, 0.0]])
OLD = torch.zeros(2, 4)


def a_batch(**more):
    return {
        "completion_ids": torch.tensor([[5, 9, 7, 8], [5, 6, 7, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
        "advantages": torch.ones(2),
        "old_per_token_logps": OLD,
        **more,
    }


def region(shape, **more):
    return TokenRegion(shape, **more)


def test_age_is_the_number_of_updates_since():
    narrowing = region(Clip(eps=ByAge(fresh=0.5, half_life=1.0)))
    batch = a_batch(**{VERSION: torch.tensor([7, 5])})
    seen = look(narrowing, batch, NEW, None, now=7)  # w = 1.35: within 1.5, beyond 1.125
    assert (seen.m[:, 1] == 0).tolist() == [False, True]
    assert {"age=0/kill", "age=2-3/kill"} <= seen.metrics().keys()


def test_a_batch_without_ages_serves_no_shape_that_needs_them():
    with pytest.raises(MissingContext, match="age"):
        look(region(Clip(eps=ByAge())), a_batch(), NEW, None, now=0)


def test_entropy_is_the_policys():
    entropy = torch.tensor([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    seen = look(region(Clip(eps=ByEntropy(0.2, 0.4, 1.0))), a_batch(), NEW, entropy, now=0)
    assert (seen.m == 0).tolist() == [[False, False, True, False], [False, True, False, True]]


def test_the_sampler_is_what_the_gate_sees():
    sampler = OLD - 1.0
    sampler[0, 0] = float("nan")  # could not be scored: no correction
    gated = region(Clip(), gates=(Truncate(cap=2.0),))
    seen = look(gated, a_batch(sampling_per_token_logps=sampler), NEW, None, now=0)
    assert seen.m[0, 0] == 1
    assert seen.m[1, 0] == 2
    dropping = region(Clip(), gates=(OPSM(delta=0.5, anchor="behaviour"),))
    batch = a_batch(sampling_per_token_logps=OLD + 1.0, advantages=-torch.ones(2))
    assert not look(dropping, batch, NEW, None, now=0).m.any()


def test_what_a_tool_said_is_neither_answer_nor_reasoning():
    batch = a_batch(tool_mask=torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]))
    answer = mark(batch, [(9,)])
    assert answer.mask.int().tolist() == [[0, 0, 1, 0], [0, 0, 0, 0]]
    assert answer.found.tolist() == [True, False]
    seen = look(region(Clip()), {**batch, ANSWER: answer.mask}, NEW, None, now=0)
    found = seen.metrics()
    assert (found["answer/tokens"], found["reasoning/tokens"]) == (1, 5)


def byte_pairs():
    """A byte-level tokenizer that has merged the marker with what often stands before it."""
    text = ["so 12 #### 12", "then\n#### 7", "x#### 3", "a ####b"] * 20 + [
        "####",
        " ####",
        "\n####",
    ]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(
        text,
        trainers.BpeTrainer(
            vocab_size=300,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return made


def words():
    """A tokenizer that marks the start of a word, as Llama's first one does."""
    pieces = ["<unk>", "▁", "▁####", "####", *"0123456789abx", "▁a", "▁1", "▁.", "."]
    made = Tokenizer(
        models.Unigram([(piece, -1.0 - (len(piece) == 1)) for piece in pieces], unk_id=0)
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    return made


@pytest.mark.parametrize("make", [byte_pairs, words])
@pytest.mark.parametrize("before", ["x ", "x", "12", "1 2 ", "a", ""])
def test_a_marker_is_found_however_it_is_tokenised(make, before):
    tokenizer = make()

    def encode(text):
        return tokenizer.encode(text).ids

    ids = torch.tensor([encode(f"{before}#### 31")])
    spelled = markers(encode, "####", tokenizer.token_to_id("<unk>"))
    answer = mark({"completion_ids": ids, "completion_mask": torch.ones_like(ids)}, spelled)
    assert answer.found.all()
    after = [tokenizer.id_to_token(int(i)) for i in ids[answer.mask]]
    assert "".join(after).replace("▁", "").replace("Ġ", "") == "31"


def test_one_process_is_taken_as_it_is():
    seen = look(region(Clip()), a_batch(**{VERSION: torch.tensor([0, 0])}), NEW, None, now=1)
    assert across_processes([seen.metrics()]) == seen.metrics()


@given(st.lists(st.integers(1, 50), min_size=2, max_size=4), st.randoms())
def test_fractions_of_processes_are_those_of_all_their_tokens(sizes, draw):
    parts = [[draw.random() < 0.5 for _ in range(n)] for n in sizes]
    found = [
        {"tokens": float(len(p)), "kill": sum(p) / len(p), "ratio_max": float(i), "inert": 1.0}
        for i, p in enumerate(parts)
    ]
    whole = across_processes(found)
    everything = [x for part in parts for x in part]
    assert whole["tokens"] == len(everything)
    assert whole["kill"] == pytest.approx(sum(everything) / len(everything))
    assert whole["ratio_max"] == len(sizes) - 1
    assert whole["inert"] == 1


def test_a_part_that_only_one_process_has_is_that_ones():
    found = [{"tokens": 4.0, "age=1/tokens": 4.0, "age=1/kill": 0.5}, {"tokens": 2.0}]
    assert across_processes(found) == {"tokens": 6.0, "age=1/tokens": 4.0, "age=1/kill": 0.5}
