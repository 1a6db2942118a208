"""keep_tokens: what stands in the files is what the loss did, with rewards in their places."""

import re

import pytest
import torch
from transformers import PrinterCallback
from trl import GRPOTrainer

import klip
from examples.trl_grpo import a_model, prompts, reward, settings
from klip.adapters.trl import KlipGRPOTrainer
from klip.adapters.trl_watch import KlipWatch
from klip.errors import KlipError
from klip.runs.kept import kept_paths, read_kept
from tests.adapters.trl.test_markers import byte_level, tokenizer
from tests.adapters.trl.world import logged, parameters, trainer

RUN = {"max_steps": 6, "num_iterations": 3, "logging_steps": 2, "learning_rate": 5e-3}


@pytest.mark.parametrize("kind", ["watch", "ours"])
def test_tokens_are_kept_at_every_entry_of_the_log(kind, tmp_path):
    if kind == "watch":
        made = trainer(tmp_path, **RUN)
        made.add_callback(KlipWatch(made, ["sapo"], answer_marker="#", keep_tokens=3))
    else:
        made = trainer(tmp_path, KlipGRPOTrainer, **RUN,
                       ours={"shape": "clip", "answer_marker": "#", "keep_tokens": 3})  # fmt: skip
    made.train()
    assert len(kept_paths(tmp_path)) == len(logged(made)) == 3
    frame = read_kept(tmp_path)
    shapes = ["clip(eps=0.2)", "sapo"] if kind == "watch" else ["clip(eps=0.2)"]
    assert frame["shape"].unique(maintain_order=True).to_list() == shapes
    assert frame["step"].unique().sort().to_list() == [2, 4, 6]
    own = frame.filter("trained")
    assert set(own["span"].unique()) <= {"answer", "reasoning"}
    assert own.filter(own["fate"] == "zeroed")["multiplier"].abs().max() in (0.0, None)
    assert own["entropy"].null_count() == 0
    for (_, _), row in own.group_by("step", "sequence"):
        text = re.sub(r"<\w+>", "", "".join(row.sort("place")["text"]))  # as TRL decodes
        (score,) = reward([row["prompt"][0]], [text])
        assert row["reward"][0] == pytest.approx(score, abs=1e-6)


def test_keeping_changes_nothing(tmp_path):
    ends = []
    for keep in (0, 2):
        made = trainer(
            tmp_path, KlipGRPOTrainer, ours={"shape": "clip", "keep_tokens": keep}, **RUN
        )
        made.train()
        ends.append(parameters(made))
    assert torch.equal(*ends)


def variety(completions, **columns):
    return [float(len(set(text))) for text in completions]


def test_the_page_of_a_run_with_a_byte_pair_tokenizer(tmp_path):
    """Of what a random model writes: merged words, and bytes that are half a character."""
    of = tokenizer(byte_level)
    made = GRPOTrainer(
        model=a_model(of),
        reward_funcs=variety,
        args=settings(str(tmp_path), **RUN),
        train_dataset=prompts(),
        processing_class=of,
    )
    made.remove_callback(PrinterCallback)
    made.add_callback(KlipWatch(made, ["sapo"], keep_tokens=8))
    made.train()
    texts = read_kept(tmp_path)["text"].to_list()
    words = {text for text in texts if len(text) > 1 and text.isascii() and text.isalnum()}
    assert len(words) > 3
    assert not [text for text in texts if "\ufffd" in text]  # half a character has a name
    (page,) = klip.report(tmp_path, tmp_path / "page.html")
    html = page.read_text()
    assert not [word for word in words if f'"{word}"' not in html]


def test_a_negative_number_is_refused(tmp_path):
    with pytest.raises(KlipError, match="keep_tokens=-1"):
        trainer(tmp_path, KlipGRPOTrainer, ours={"shape": "clip", "keep_tokens": -1})
