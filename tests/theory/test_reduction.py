"""How a loss puts its samples together, from its behaviour alone."""

import numpy as np
import pytest

from klip.theory.blackbox import open_box
from klip.theory.reduction import (
    Question,
    Reduction,
    coupling,
    is_elementwise,
    is_repeatable,
    masked_leak,
    reduction_of,
)

torch = pytest.importorskip("torch")


def pull(new, old, advantages):
    return -torch.exp(new - old) * advantages


def mean(new, old, advantages):
    return pull(new, old, advantages).mean()


def total(new, old, advantages):
    return pull(new, old, advantages).sum()


def divided_twice(new, old, advantages):
    return mean(new, old, advantages) / advantages.numel()


def token_mean(new, old, advantages, mask):
    return (pull(new, old, advantages) * mask).sum() / mask.sum()


def padded_mean(new, old, advantages, mask):
    return (pull(new, old, advantages) * mask).mean()


def leaking(new, old, advantages, mask):
    return pull(new, old, advantages).sum() / mask.sum()


def standardised(new, old, advantages):
    return mean(new, old, (advantages - advantages.mean()) / advantages.std())


def box(loss):
    return open_box(loss, "torch", is_elementwise)


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (pull, "per-sample"),
        (mean, "mean"),
        (total, "sum"),
        (token_mean, "masked token mean"),
        (padded_mean, "mean over padding too"),
        (divided_twice, "unknown"),
    ],
)
def test_the_reduction_is_recognised(loss, name):
    found = reduction_of(box(loss), mixes=False, shared=False)
    assert found.name == name
    assert bool(found.problem) == (name in ("unknown", "mean over padding too"))


@pytest.mark.parametrize("loss", [mean, total, token_mean])
def test_what_is_left_without_it_is_the_samples_own_pull(loss):
    opened = box(loss)
    question = Question(opened, reduction_of(opened, mixes=False, shared=False))
    x, a = np.array([0.1, -0.5, 0.0]), np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(question.pull(x, a), np.exp(x) * a, rtol=1e-9)


def test_samples_that_change_each_other_are_noticed():
    assert not coupling(box(mean)).across_batch
    mixed = coupling(box(standardised))
    assert mixed.across_batch
    assert mixed.by_advantage
    assert is_repeatable(box(standardised))


def test_a_leak_through_the_mask_is_noticed():
    assert masked_leak(box(token_mean)) == ""
    assert masked_leak(box(leaking)) == "the loss has a gradient at masked positions"


def test_the_weight_of_a_sample():
    assert Reduction("mean", 1, 1).weight((4, 8)) == 1 / 32
    assert Reduction("token sum", 1, 0).over(16.0).weight((4, 8)) == 1 / 64
