"""Which completions are kept to be looked at, and that their tokens are told as they were."""

import pytest
import torch

from klip.lab.addition import encode
from klip.lab.explaining import GROUPS, OF_EACH, Studied, explained, kept
from klip.tokens import token_loss

from .conftest import start, tiny

SIGNS = {"right": 1.0, "wrong": -1.0, "even": 0.0}
GROUP = 4


def told(*groups):
    """What is kept of a batch: each group has a prompt, and a word for each completion."""
    outcomes = [word for group in groups for word in group]
    size = len(outcomes)
    prompts = torch.tensor([encode(f"{i // GROUP}+{i % GROUP}=") for i in range(size)])
    completions = torch.tensor([encode("3#3$__")] * size)
    mask = torch.tensor([[True] * 4 + [False] * 2] * size)
    moved = torch.tensor([[0.0, 0.5, -0.5, 0.123456, 9.0, 9.0]] * size)
    advantage = torch.tensor([SIGNS[word] for word in outcomes])
    loss = token_loss(moved, torch.zeros_like(moved), advantage, mask)
    age = torch.arange(size)
    return explained(Studied(prompts, completions, age, GROUP), loss.diagnostics)


def test_right_and_wrong_ones_of_the_first_prompts_that_have_both():
    samples = told(
        ["right"] * 4,
        ["wrong", "right", "wrong", "right"],
        ["even"] * 4,
        ["wrong", "wrong", "right", "wrong"],
        ["right", "wrong", "right", "wrong"],
    )
    assert [sample.age for sample in samples] == [5, 7, 4, 6, 14, 12, 13]  # the row of each
    assert [s.prompt for s in samples] == [f"{s.age // GROUP}+{s.age % GROUP}=" for s in samples]
    assert len({sample.prompt[0] for sample in samples}) == GROUPS
    assert [sample.advantage for sample in samples[: 2 * OF_EACH]] == [1.0, 1.0, -1.0, -1.0]


def test_without_both_there_is_nothing_to_compare():
    assert told(["right"] * 4, ["wrong"] * 4, ["even"] * 4) == []


def test_kept_completions_come_in_turn_with_all_that_is_known():
    words = ["wrong", "right", "wrong", "even"]
    new = torch.tensor([[0.0, 0.5, -0.5]] * 8)
    advantage = torch.tensor([SIGNS[word] for word in ["even"] * 4 + words])
    did = token_loss(new, torch.zeros_like(new), advantage).diagnostics
    ids = torch.tensor([encode("3#3")] * 8)
    batch = Studied(torch.tensor([encode("1+2=")] * 8), ids, torch.arange(8), GROUP)
    answer, entropy = ids == ids[0, 2], torch.full((8, 3), 0.5)
    answer[:, 0] = False
    (right, wrong) = kept(batch, did, answer, entropy, count=3, step=6)
    assert (right.age, wrong.age) == (5, 4)  # the row of each
    assert (right.part, wrong.part) == ("ikp", "ipk")
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert right.span == "rra"
    assert right.entropy == (0.5,) * 3
    assert right.step == 6
    assert len(kept(batch, did, answer, entropy, count=1, step=6)) == 1


def test_tokens_are_told_by_hand():
    """PPO-Clip with eps = 0.2 on w = 1, e^0.5, e^-0.5 and e^0.123456; padding is left out."""
    right, wrong = told(["right", "wrong", "even", "even"])
    assert right.text == wrong.text == "3#3$"
    assert right.ratio == wrong.ratio == (1.0, 1.649, 0.6065, 1.131)  # four digits are enough
    assert (right.fate, right.pull) == ("kzkk", (1.0, 0.0, 0.6065, 1.131))
    assert (wrong.fate, wrong.pull) == ("kkzk", (-1.0, -1.649, 0.0, -1.131))


def test_sample_completions_explain_their_tokens(home):
    c = tiny("clip(eps=0.05)", prompts=16)
    run = start(home, c)
    for _ in range(c.shown):
        run.iterate()
    assert run.samples
    for sample in run.samples:
        tokens = zip(sample.fate, sample.ratio, sample.pull, strict=True)
        for fate, w, m in tokens:
            out = w > 1.05 if sample.advantage > 0 else w < 0.95
            assert fate == ("z" if out else "k")
            assert m == (0 if out else pytest.approx(w * sample.advantage, rel=2e-3))
