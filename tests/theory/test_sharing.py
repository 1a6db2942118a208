"""The ratio that samples share, held against losses that share one."""

import pytest

from klip.theory.blackbox import one_by_one, open_box
from klip.theory.reduction import Question, coupling, is_elementwise, reduction_of
from klip.theory.sharing import sharing_of
from tests.theory import losses_torch

torch = pytest.importorskip("torch")


def surrogate(ratio, a):
    return -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a)


def product(new, old, advantages, mask):
    a = (advantages * mask).sum(-1) / mask.sum(-1)
    return surrogate(torch.exp(((new - old) * mask).sum(-1)), a).mean()


def detached_mean_probability(new, old, advantages, mask):
    share = new.exp().mean(-1, keepdim=True) / old.exp().mean(-1, keepdim=True)
    ratio = share.detach() * torch.exp(new - new.detach())
    return (surrogate(ratio, advantages) * mask).sum() / mask.sum()


def largest(new, old, advantages, mask):
    ratio = torch.exp((new - old).amax(-1, keepdim=True))
    return (surrogate(ratio, advantages) * mask).sum() / mask.sum()


def whole_batch(new, old, advantages):
    return surrogate(torch.exp((new - old).mean()), advantages).mean()


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (losses_torch.gspo, "exp(mean log w), as in GSPO"),
        (losses_torch.narrow_gspo, "exp(mean log w), as in GSPO"),
        (losses_torch.gspo_with_k3, "exp(mean log w), as in GSPO"),
        (product, "exp(sum log w)"),
        (losses_torch.gmpo, "exp(mean of the clipped log w), as in GMPO"),
        (losses_torch.mean_ratio, "the mean of w"),
        (losses_torch.mean_probability_ratio, "the ratio of mean probabilities"),
        (detached_mean_probability, "the ratio of mean probabilities"),
        (largest, "something that is neither a mean nor a product of w"),
        (whole_batch, "exp(mean log w), as in GSPO"),
    ],
)
def test_the_shared_ratio_is_recognised(loss, words):
    box = open_box(loss, "torch", is_elementwise)
    across = coupling(box).across_batch
    reduction = reduction_of(box, across, True)
    question = Question(box, reduction, 1, single=one_by_one(box) if across else None)
    assert sharing_of(question, 1e-6).words == words
