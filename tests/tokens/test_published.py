"""Published losses, written by hand as their authors do: the same values and gradients."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.shapes import CISPO, CTPO, SAPO, Clip, ImportanceSampling
from klip.tokens import (
    GeometricMean,
    MeanOfMeans,
    MeanOfSums,
    PrefixMean,
    PrefixSum,
    SequenceMean,
    SequenceSum,
    token_loss,
)
from tests.shapes.samples import seeds
from tests.tokens.batches import draw, gradient, reduced


def plain_ppo(log_prob, old, advantage, mask, low=0.2, high=0.2):
    w = torch.exp(log_prob - old)
    loss = -torch.min(w * advantage, torch.clamp(w, 1 - low, 1 + high) * advantage)
    return (loss * mask).sum() / mask.sum()


@given(seeds)
def test_clip_is_the_min_form(seed):
    batch = draw(seed)
    mine = token_loss(shape=Clip(low=0.2, high=0.28), **batch).loss
    arguments = (batch[n] for n in ("log_prob", "old_log_prob", "advantages", "mask"))
    theirs = plain_ppo(*arguments, low=0.2, high=0.28)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-15)
    left, right = (gradient(x, batch["log_prob"]) for x in (mine, theirs))
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-15)


@given(seeds)
def test_gspo_is_its_sequence_objective(seed):
    batch = draw(seed, reach=0.05)
    batch["advantages"] = batch["advantages"][:, 0]
    how = {"level": SequenceMean(), "reducer": MeanOfMeans()}
    mine = token_loss(shape=Clip(low=3e-2, high=4e-2), **how, **batch).loss
    mask, count = batch["mask"], batch["mask"].sum(-1)
    mean = torch.where(mask, batch["log_prob"] - batch["old_log_prob"], 0.0).sum(-1)
    s, a = torch.exp(mean / count.clamp(min=1)), batch["advantages"]
    each = -torch.min(s * a, torch.clamp(s, 1 - 3e-2, 1 + 4e-2) * a)
    theirs = each[count > 0].mean()
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-15)
    left, right = (gradient(x, batch["log_prob"]) for x in (mine, theirs))
    torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-15)


@given(seeds)
def test_a_product_of_ratios_is_its_sequence_objective(seed):
    batch = draw(seed, reach=0.05)
    batch["advantages"] = batch["advantages"][:, 0]
    how = {"level": SequenceSum(), "reducer": MeanOfSums()}
    mine = token_loss(shape=Clip(), **how, **batch).loss
    mask, count = batch["mask"], batch["mask"].sum(-1)
    whole = torch.where(mask, batch["log_prob"] - batch["old_log_prob"], 0.0).sum(-1).exp()
    a = batch["advantages"]
    theirs = -torch.min(whole * a, torch.clamp(whole, 0.8, 1.2) * a)[count > 0].mean()
    left, right = (gradient(x, batch["log_prob"]) for x in (mine, theirs))
    torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-15)


@given(seeds)
def test_gmpo_is_its_sequence_objective(seed):
    batch = draw(seed, reach=0.5)
    batch["advantages"] = batch["advantages"][:, 0]
    how = {"level": GeometricMean(0.4, 0.4), "reducer": MeanOfMeans()}
    mine = token_loss(shape=ImportanceSampling(), **how, **batch).loss
    mask, count, a = batch["mask"], batch["mask"].sum(-1), batch["advantages"]
    side = a.sign()[:, None]
    moved = torch.where(mask, batch["log_prob"] - batch["old_log_prob"], 0.0)
    held = side * torch.min(side * moved, side * moved.clamp(-0.4, 0.4))
    rho = torch.exp(held.sum(-1) / count.clamp(min=1))
    theirs = -(rho * a)[count > 0].mean()
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-15)
    left, right = (gradient(x, batch["log_prob"]) for x in (mine, theirs))
    torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-15)


@given(seed=seeds, mean=st.booleans())
def test_ctpo_is_its_authors(seed, mean):
    """cum-token-cumprod-la, and cum-token-geomean-la, of horizon-llm/CTPO, written out again."""
    batch = draw(seed, reach=0.1)
    log_prob, old, a, mask = (batch[n] for n in ("log_prob", "old_log_prob", "advantages", "mask"))
    place = mask.cumsum(-1)
    total = torch.cumsum((log_prob - old).detach() * mask, -1)
    shown = (total / place.clamp(min=1) if mean else total) + log_prob - log_prob.detach()
    wide = place.clamp(min=1).to(a.dtype) ** (-0.5 if mean else 0.5)
    ratio, held = shown.exp(), torch.clamp(shown, -0.025 * wide, 0.05 * wide).exp()
    clipped = torch.maximum(-a * ratio, -a * held)
    each = torch.where(a < 0, torch.min(-a * (0.05 * wide).exp(), clipped), clipped)
    theirs = (each * mask).sum() / mask.sum()
    shape, level = (CTPO(power=-0.5), PrefixMean()) if mean else (CTPO(), PrefixSum())
    mine = token_loss(shape=shape, level=level, **batch).loss
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-15)
    left, right = (gradient(x, log_prob) for x in (mine, theirs))
    torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-15)
    assert (left == 0)[mask & (a != 0)].any()


@given(seeds)
def test_cispo_by_hand(seed):
    batch = draw(seed)
    mine = token_loss(shape=CISPO(cap=1.28), **batch).loss
    w = torch.exp(batch["log_prob"] - batch["old_log_prob"])
    each = -w.clamp(max=1.28).detach() * batch["advantages"] * batch["log_prob"]
    theirs = (each * batch["mask"]).sum() / batch["mask"].sum()
    left, right = (gradient(x, batch["log_prob"]) for x in (mine, theirs))
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-15)
    # Their value has log pi where ours has log w, so that it is 0 where nothing has moved.
    shift = w.clamp(max=1.28).detach() * batch["advantages"] * batch["old_log_prob"]
    expected = theirs + (shift * batch["mask"]).sum() / batch["mask"].sum()
    torch.testing.assert_close(mine, expected, rtol=1e-11, atol=1e-14)


@given(seeds)
def test_sapo_by_hand(seed):
    batch = draw(seed)
    mine = token_loss(shape=SAPO(), reducer=MeanOfMeans(), **batch).loss
    w, a = torch.exp(batch["log_prob"] - batch["old_log_prob"]), batch["advantages"]
    tau = 1.05 - 0.05 * (a > 0).double()
    each = -torch.sigmoid(tau * (w - 1)) * 4 / tau * a
    theirs = reduced("mean-of-means", each, batch["mask"])
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-15)
    left, right = (gradient(x, batch["log_prob"]) for x in (mine, theirs))
    torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-15)


@given(seeds)
def test_gspo_in_its_token_form(seed):
    """sg(s) * pi(t) / sg(pi(t)), with advantages that differ within a sequence."""
    batch = draw(seed, reach=0.05)
    how = {"level": SequenceMean(), "reducer": MeanOfMeans()}
    mine = token_loss(shape=Clip(low=3e-2, high=4e-2), **how, **batch).loss
    mask, count, new = batch["mask"], batch["mask"].sum(-1, keepdim=True), batch["log_prob"]
    moved = torch.where(mask, new - batch["old_log_prob"], 0.0)
    s = torch.exp(moved.sum(-1, keepdim=True) / count.clamp(min=1)).detach()
    s, a = s * torch.exp(new - new.detach()), batch["advantages"]
    each = -torch.min(s * a, torch.clamp(s, 1 - 3e-2, 1 + 4e-2) * a)
    theirs = reduced("mean-of-means", each, mask)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-15)
    left, right = (gradient(x, new) for x in (mine, theirs))
    torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-15)
