"""Sequence masking by hand."""

import pytest
import torch
from hypothesis import given

from klip.shapes import Clip, Context, MissingContext, parse
from klip.tokens import OPSM, SequenceSum, token_context, token_loss, token_multiplier
from tests.shapes.samples import seeds
from tests.tokens.batches import draw


@given(seeds)
def test_drops_sequences_that_drifted_and_were_bad(seed):
    batch = draw(seed, needs={"behaviour_log_ratio"})
    batch["advantages"] = batch["advantages"][:, 0]
    mask = batch["mask"]
    moved = torch.where(mask, batch["log_prob"].detach() - batch["old_log_prob"], 0.0)
    behaviour = torch.where(mask, batch["context"].behaviour_log_ratio, 0.0)
    for anchor, distance in (("old", moved), ("behaviour", moved + behaviour)):
        drift = -distance.sum(-1) / mask.sum(-1).clamp(min=1)
        dropped = (batch["advantages"] < 0) & (drift > 0.05)
        gate = OPSM(delta=0.05, anchor=anchor)
        plain = token_loss(**batch).diagnostics.m
        gated = token_loss(gates=[gate], **batch).diagnostics.m
        assert torch.equal(gated, torch.where(dropped[:, None], 0.0, plain))
        summed = token_loss(gates=[gate], level=SequenceSum(), **batch).diagnostics.m
        assert not summed[dropped].any()


def test_the_sampler_is_asked_for_by_name():
    x = torch.zeros(1, 2)
    with pytest.raises(MissingContext, match="behaviour_log_ratio"):
        token_loss(x, x, torch.zeros(1), shape=OPSM(anchor="behaviour") * Clip())


def test_it_can_be_spelt():
    shape = parse("klip.tokens.gates:OPSM(delta=0.1) * clip")
    x = torch.tensor([[-1.0, -1.0]])
    m = shape.multiplier(x, torch.tensor([[-1.0]]), Context(mask=torch.ones(1, 2)))
    assert not m.any()


@pytest.mark.parametrize(("spelling", "wanted"), [
    ("sequence-tis(cap=2)", [2.0, 0.5, 1.0]),
    ("sequence-mis(cap=2)", [0.0, 0.5, 1.0]),
    ("sequence-mis(floor=0.6, cap=2)", [0.0, 0.0, 1.0]),
])  # fmt: skip
def test_sequences_are_corrected_as_wholes(spelling, wanted):
    """Ratios of 3, 1/2 and 1 over a sequence, whatever their tokens' are; a masked one is not."""
    own = torch.tensor([[1.5, 2.0, 9.0], [0.25, 2.0, 9.0], [3.0, 1 / 3, 9.0]]).log()
    mask = torch.tensor([[1, 1, 0]] * 3)
    zero = torch.zeros(3, 3)
    context = token_context(zero, zero, behaviour_log_prob=-own)
    m = token_multiplier(zero, zero, torch.ones(3), mask, "is", context, gates=[spelling])
    assert m[:, 0].tolist() == pytest.approx(wanted)
    assert torch.equal(m[:, 0], m[:, 1])
    assert not m[:, 2].any()
