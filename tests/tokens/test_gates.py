"""Sequence masking by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import Clip, Context, MissingContext, parse
from klip.tokens import (
    CPPO,
    OPSM,
    SequenceSum,
    SequenceTrust,
    token_context,
    token_loss,
    token_multiplier,
)
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


HALF = torch.full((2, 3), 0.5)
Q = torch.tensor([[0.6, 0.5, 0.01], [0.7, 0.5, 0.01]])  # the last token of each is masked
# Bernoulli KL of 1/2 from 0.6: log(0.25 / 0.24) / 2 = 0.02041; from 0.7: log(0.25/0.21)/2 = 0.08718


@pytest.mark.parametrize(("spelling", "kept"), [
    ("sequence-trust(delta=0.0103)", [True, False]),  # 0.02041 / 2 = 0.01021 and 0.04359
    ("sequence-trust(delta=0.0102)", [False, False]),
    ("sequence-trust(delta=0.0436)", [True, True]),
    ("sequence-trust(delta=0.0501, divergence=binary-tv)", [True, False]),  # 0.1 / 2 and 0.2 / 2
    ("sequence-trust(delta=0.0499, divergence=binary-tv)", [False, False]),
])  # fmt: skip
def test_sequence_trust_by_hand(spelling, kept):
    mask = torch.tensor([[True, True, False]] * 2)
    context = token_context(Q.log(), Q.log(), behaviour_log_prob=HALF.log())
    m = token_multiplier(
        Q.log(), Q.log(), torch.ones(2), mask, "is", context, gates=[spelling]
    )  # old over sampler
    wanted = torch.where(torch.tensor(kept)[:, None] & mask, Q / HALF, 0.0)
    torch.testing.assert_close(m, wanted)
    # the same pair, new over sampler, the ratio dividing by the sampler
    context = token_context(Q.log(), HALF.log(), behaviour_log_prob=HALF.log())
    new = spelling[:-1] + ", policy=new)"
    m = token_multiplier(Q.log(), HALF.log(), torch.ones(2), mask, "is", context, gates=[new])
    torch.testing.assert_close(m, wanted)


@given(seed=seeds, gating=st.sampled_from(["binary-kl", "binary-tv"]))
def test_sequence_trust_is_openrlhfs(seed, gating):
    """PolicyLoss of 0.11.2, is_correction_level=seq and mode=mask, written out again."""
    batch = draw(seed, needs={"behaviour_log_ratio"})
    batch["advantages"] = batch["advantages"][:, 0]
    old, mask = batch["old_log_prob"], batch["mask"]
    rollout = (old - 0.1 * batch["context"].behaviour_log_ratio).clamp(max=-1e-3)
    p, q = rollout.exp().clamp(1e-6, 1 - 1e-6), old.exp().clamp(1e-6, 1 - 1e-6)
    kl = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    stat = torch.where(mask, kl if gating == "binary-kl" else (p - q).abs(), 0.0)
    delta = 0.003 if gating == "binary-kl" else 0.03
    keep = (stat.sum(-1) / mask.sum(-1).clamp(min=1) <= delta)[:, None]
    weight = torch.where(keep, (old - rollout).exp(), 0.0)
    batch["context"] = token_context(old, old, behaviour_log_prob=rollout)
    plain = token_loss(**batch).diagnostics.m
    gated = token_loss(gates=[SequenceTrust(delta, gating)], **batch).diagnostics.m
    torch.testing.assert_close(gated, weight * plain)


def kept_by_cppo(old, new, advantage, delta=0.2, w_min=0.8, floor=0.02):
    """CPPO's mask of one sequence, as UniRL has it: without padding, with torch's quantile."""
    d, length = (new.exp() - old.exp()).abs(), len(old)
    weights = 1 - (1 - w_min) * torch.arange(length) / max(length - 1, 1)
    z, b = weights * d, float(torch.quantile(d, 0.9).clamp(floor, 2 * floor))
    keep = []
    for t in range(length):
        limit = min(delta, delta + b * float(weights[:t].sum()) - float(z[:t].sum()))
        keep.append(bool(advantage[t] * (new[t] - old[t]) <= 0 or z[t] <= limit))
    return torch.tensor(keep)


@given(seed=seeds, delta=st.floats(0.02, 0.4))
def test_cppo_is_the_published_mask(seed, delta):
    batch = draw(seed, reach=0.8)
    batch["log_prob"] = batch["log_prob"].detach().clamp(max=-0.01)
    names = ("log_prob", "old_log_prob", "advantages", "mask")
    m = token_multiplier(*(batch[name] for name in names), "is", gates=[CPPO(delta)])
    for i, row in enumerate(batch["mask"]):
        if not row.any():
            continue
        old, new, a = (batch[k][i][row] for k in ("old_log_prob", "log_prob", "advantages"))
        wanted = torch.where(kept_by_cppo(old, new, a, delta), (new - old).exp() * a, 0.0)
        torch.testing.assert_close(m[i][row], wanted)


def test_cppo_by_hand():
    """p = 1/2; D = .175, .175, .053; v D = .175, .157, .042; limits .2, .065, -.056."""
    old, new = torch.full((3, 3), 0.5).log(), torch.tensor([[0.3, 0.3, 0.1]] * 3)
    m = token_multiplier(old + new, old, torch.tensor([1.0, -1.0, 1.0]), shape="is", gates=["cppo"])
    w = new[0].exp()
    torch.testing.assert_close(m[0], torch.stack([w[0], 0 * w[1], 0 * w[2]]))
    torch.testing.assert_close(m[1], -w)  # what leads back is kept
    one = token_multiplier(old + new, old, torch.ones(3), torch.tensor([[0, 0, 1]] * 3), "is",
                           gates=["cppo"])  # fmt: skip
    torch.testing.assert_close(one[0], torch.stack([0 * w[0], 0 * w[1], w[2]]))  # v = 1 if alone


def test_cppo_says_what_it_needs():
    context = Context(mask=1.0, old_log_prob=-1.0, position=0.0, length=4.0)
    with pytest.raises(KlipError, match=r"cppo adds up over .* samples \[4\] must be .* \[B, T\]"):
        CPPO().weight(torch.zeros(4), torch.ones(4), context)
    with pytest.raises(MissingContext, match="cppo needs length"):
        CPPO().weight(torch.zeros(1, 4), torch.ones(1, 4))
