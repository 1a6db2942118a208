"""The reference KL: its coefficient is the slope of its value, and that of the usual code."""

import pytest
import torch
from hypothesis import given

from klip.shapes import Clip, derivative
from klip.tokens import MeanOfMeans, ReferenceKL, token_context, token_loss
from tests.shapes.samples import seeds
from tests.tokens.batches import draw, gradient

ESTIMATORS = ("k1", "k2", "k3", "weighted-k3")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_beta_is_the_slope_of_the_value(estimator):
    batch = draw(1)
    reference = batch["old_log_prob"] + 0.3
    context = token_context(batch["log_prob"], batch["old_log_prob"], reference_log_prob=reference)
    penalty, a = ReferenceKL(b=0.3, estimator=estimator), batch["advantages"]
    moved = batch["log_prob"].detach() - batch["old_log_prob"]
    slope = derivative(lambda x: penalty.objective(x, a, context), moved)
    torch.testing.assert_close(penalty.multiplier(moved, a, context), slope)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(seed=seeds)
def test_against_the_usual_code(estimator, seed):
    batch = draw(seed)
    reference = batch["old_log_prob"] + 0.2 * torch.sin(batch["old_log_prob"] * 7)
    batch["context"] = token_context(
        batch["log_prob"], batch["old_log_prob"], reference_log_prob=reference
    )
    penalties = [ReferenceKL(b=0.04, estimator=estimator)]
    mine = token_loss(shape=Clip(), penalties=penalties, reducer=MeanOfMeans(), **batch).loss
    new, a, mask = batch["log_prob"], batch["advantages"], batch["mask"]
    w, u = torch.exp(new - batch["old_log_prob"]), new - reference
    k3 = torch.exp(-u) + u - 1
    kl = {"k1": u, "k2": u * u / 2, "k3": k3, "weighted-k3": w * k3}[estimator]
    each = -torch.min(w * a, w.clamp(0.8, 1.2) * a) + 0.04 * kl
    count = mask.sum(-1)
    rows = (each * mask).sum(-1) / count.clamp(min=1)
    theirs = rows.sum() / (count > 0).sum()
    torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-14)
    left, right = (gradient(x, new) for x in (mine, theirs))
    torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-14)
