"""Which ratio a shape is shown: by hand, whatever the padding, and straight through backwards."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.shapes import Clip, ImportanceSampling
from klip.tokens import (
    GeometricMean,
    MeanOfMeans,
    MeanOfSums,
    PrefixMean,
    PrefixSum,
    SequenceMean,
    SequenceSum,
    Token,
    TokenMean,
    token_loss,
)
from tests.shapes.samples import seeds
from tests.tokens.batches import LEVELS, draw, gradient


def shown(level, batch):
    """What a level shows of a batch, as `token_loss` puts it to it."""
    mask = batch["mask"]
    log_ratio = torch.where(mask, batch["log_prob"].detach() - batch["old_log_prob"], 0.0)
    return level.view(log_ratio, batch["advantages"], mask)


MASK = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
LOG_RATIO = torch.tensor([[0.1, -0.6, 0.8], [0.3, 0.0, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("level", "sign", "expected"),
    [
        (Token(), 1, LOG_RATIO.tolist()),
        (SequenceMean(), 1, [[0.1], [0.3], [0.0]]),
        (SequenceSum(), 1, [[0.3], [0.3], [0.0]]),
        (PrefixSum(), 1, [[0.1, -0.5, 0.3], [0.3, 0.3, 0.3], [0.0, 0.0, 0.0]]),
        (PrefixMean(), 1, [[0.1, -0.25, 0.1], [0.3, 0.3, 0.3], [0.0, 0.0, 0.0]]),
        (GeometricMean(0.4, 0.2), 1, [[-0.1], [0.2], [0.0]]),  # 0.8 and 0.3 count as 0.2
        (GeometricMean(0.4, 0.2), -1, [[0.5 / 3], [0.3], [0.0]]),  # -0.6 counts as -0.4
        (GeometricMean(0.4, 0.2), 0, [[0.1], [0.3], [0.0]]),
    ],
    ids=[
        "token",
        "mean",
        "sum",
        "prefix sum",
        "prefix mean",
        "geometric, A > 0",
        "geometric, A < 0",
        "geometric, A = 0",
    ],
)
def test_by_hand(level, sign, expected):
    view = level.view(LOG_RATIO, torch.full((3, 1), float(sign)), MASK)
    torch.testing.assert_close(view.log_ratio, torch.tensor(expected))


def test_a_token_in_the_middle_that_does_not_count_is_stepped_over():
    log_ratio, mask = torch.tensor([[0.1, 0.0, 0.5]]), torch.tensor([[True, False, True]])
    total, mean = (level.view(log_ratio, torch.ones(1, 1), mask).log_ratio[0, 2].item()
                   for level in (PrefixSum(), PrefixMean()))  # fmt: skip
    assert (total, mean) == pytest.approx((0.6, 0.3))


@given(seeds)
@settings(max_examples=20)
def test_a_prefix_ends_as_the_sequence(seed):
    batch = draw(seed)
    pairs = ((PrefixSum(), SequenceSum()), (PrefixMean(), SequenceMean()))
    for prefix, whole in pairs:
        ends = shown(prefix, batch).log_ratio[:, -1:]
        torch.testing.assert_close(ends, shown(whole, batch).log_ratio, rtol=1e-13, atol=1e-14)


def test_only_a_geometric_mean_drops_tokens_itself():
    up, down = torch.ones(3, 1), -torch.ones(3, 1)
    level = GeometricMean(0.4, 0.2)
    dropped = [(~level.view(LOG_RATIO, a, MASK).kept).nonzero().tolist() for a in (up, down)]
    assert dropped == [[[0, 2], [1, 0]], [[0, 1]]]
    for other in (Token(), SequenceMean(), SequenceSum()):
        assert other.view(LOG_RATIO, up, MASK).kept is None


@given(seeds, st.sampled_from(sorted(LEVELS)), st.integers(1, 4))
@settings(max_examples=40)
def test_padding_is_not_seen(seed, name, more):
    batch = draw(seed)
    wide = {k: torch.nn.functional.pad(batch[k].detach(), (0, more))
            for k in ("log_prob", "old_log_prob", "advantages", "mask")}  # fmt: skip
    here, there = (shown(LEVELS[name], b).log_ratio for b in (batch, wide))
    if name == "token" or "prefix" in name:
        there = there[:, : here.shape[1]]
    torch.testing.assert_close(here, there, rtol=1e-14, atol=1e-15)


@given(seeds)
@settings(max_examples=40)
def test_levels_of_a_sequence_are_one_number_in_order(seed):
    batch = draw(seed)
    mean, total = (shown(level, batch).log_ratio for level in (SequenceMean(), SequenceSum()))
    assert mean.shape == total.shape == (5, 1)
    torch.testing.assert_close(total, mean * batch["mask"].sum(-1, keepdim=True))
    wide = shown(GeometricMean(100.0, 100.0), batch)
    assert torch.equal(wide.log_ratio, mean)  # a clip that nothing reaches
    assert wide.kept.all()
    up = batch | {"advantages": torch.ones(5, 1)}
    tight = shown(GeometricMean(0.1, 0.1), up).log_ratio
    slack = 1e-12  # a mean of equal numbers may round above them
    assert (tight <= mean + slack).all()
    assert (tight <= 0.1 + slack).all()


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("seen_by", [Clip(), ImportanceSampling()], ids=str)
def test_the_gradient_goes_straight_through(name, seen_by):
    """A token's multiplier is that of what is shown, and acts on its own log-probability alone."""
    batch = draw(11)
    mask = batch["mask"]
    view = shown(LEVELS[name], batch)
    m = seen_by.multiplier(view.log_ratio, batch["advantages"]).expand(mask.shape)
    counts = mask if view.kept is None else mask & view.kept
    m = torch.where(counts, m, 0.0)
    loss = token_loss(shape=seen_by, level=LEVELS[name], reducer=TokenMean(), **batch).loss
    expected = -m / mask.sum()
    torch.testing.assert_close(gradient(loss, batch["log_prob"]), expected, rtol=1e-12, atol=0.0)


def test_one_token_a_sequence_makes_all_levels_and_means_agree():
    batch = draw(2, rows=6, length=1) | {"mask": torch.ones(6, 1)}
    losses = [
        token_loss(level=level, reducer=reducer, **batch).loss.item()
        for level in (Token(), SequenceMean(), SequenceSum())
        for reducer in (TokenMean(), MeanOfMeans(), MeanOfSums())
    ]
    assert losses == pytest.approx([losses[0]] * 9, rel=1e-14)
