"""Running statistics, against Gymnasium's own and by hand."""

import numpy as np
import pytest
from gymnasium.wrappers.utils import RunningMeanStd

from klip.ppo.normalise import Moments, RewardScale, normalise


@pytest.mark.parametrize("envs", [1, 4])
def test_moments_are_gymnasiums(envs):
    rng = np.random.default_rng(0)
    ours, theirs = Moments.of(2, 3), [RunningMeanStd(shape=(3,)) for _ in range(2)]
    for weights in ours.ahead(50, envs):
        x = rng.normal(3, 2, size=(2, envs, 3))
        ours.update(x, weights)
        for run, statistics in enumerate(theirs):
            statistics.update(x[run])
    for run, statistics in enumerate(theirs):
        np.testing.assert_allclose(ours.mean[run], statistics.mean, rtol=1e-12)
        np.testing.assert_allclose(ours.variance[run], statistics.var, rtol=1e-12)
        assert ours.count[run] == pytest.approx(statistics.count)


def test_a_runs_statistics_do_not_depend_on_its_neighbours():
    """Bit for bit, and beside a neighbour that is not finite."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(30, 5, 2, 3))
    data[10:, 1] = np.nan
    together, alone = Moments.of(5, 3), Moments.of(1, 3)
    for x, all_weights, weights in zip(
        data, together.ahead(30, 2), alone.ahead(30, 2), strict=True
    ):
        together.update(x, all_weights)
        alone.update(x[2:3], weights)
    np.testing.assert_array_equal(together.mean[2], alone.mean[0])
    np.testing.assert_array_equal(together.variance[2], alone.variance[0])


def test_observations_are_clipped_and_single():
    moments = Moments.of(1, 2)
    moments.update(np.zeros((1, 1, 2)), *moments.ahead(1, 1))
    x = normalise(np.array([[[1e9, -1e9]]]), moments, 10.0)
    assert x.dtype == np.float32
    assert x.tolist() == [[[10.0, -10.0]]]


def test_weights_are_computed_for_as_many_updates_as_one_likes():
    """Bit for bit, from any count on."""
    one, many = Moments.of(2, 3), Moments.of(2, 3)
    data = np.random.default_rng(1).normal(size=(40, 2, 1, 3))
    for x in data:
        one.update(x, *one.ahead(1, 1))
    for half in (data[:25], data[25:]):
        for x, weights in zip(half, many.ahead(len(half), 1), strict=True):
            many.update(x, weights)
    for name in ("mean", "variance", "count"):
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name))


@pytest.mark.parametrize("envs", [1, 3])
def test_runs_that_have_counted_alike_or_not_have_the_same_bits(envs):
    """A run that joins others later, as after a restore, makes their weights arrays."""
    data = np.random.default_rng(3).normal(size=(20, 2, envs, 3))
    late, alone = Moments.of(2, 3), Moments.of(1, 3)
    late.count[1] = 77.0
    assert np.ndim(next(alone.ahead(1, envs)).share) == 0
    assert np.ndim(next(late.ahead(1, envs)).share) == 2
    for x, both, one in zip(data, late.ahead(20, envs), alone.ahead(20, envs), strict=True):
        late.update(x, both)
        alone.update(x[:1], one)
    np.testing.assert_array_equal(late.mean[:1], alone.mean)
    np.testing.assert_array_equal(late.variance[:1], alone.variance)


@pytest.mark.parametrize("envs", [1, 3])
def test_rewards_are_scaled_by_the_discounted_return(envs):
    """G <- gamma G + r, no mean taken off, G anew after an end of either kind."""
    rng = np.random.default_rng(0)
    rewards, ended = rng.normal(1, 5, (60, 2, envs)), rng.random((60, 2, envs)) < 0.1
    gamma = np.array([[0.9], [0.99]])
    scale = RewardScale.of(2, envs)
    got = np.concatenate([scale(rewards[:20], ended[:20], gamma, 2.0),
                          scale(rewards[20:], ended[20:], gamma, 2.0)])  # fmt: skip
    for run in range(2):
        statistics, g = RunningMeanStd(shape=()), np.zeros(envs)
        for t in range(60):
            g = gamma[run, 0] * g + rewards[t, run]
            statistics.update(g)
            expected = np.clip(rewards[t, run] / np.sqrt(statistics.var + 1e-8), -2, 2)
            np.testing.assert_allclose(got[t, run], expected, rtol=1e-12)
            g[ended[t, run]] = 0.0
        np.testing.assert_allclose(scale.discounted[run], g)
    assert np.ptp(got) == 4.0, "some are clipped"


def test_single_numbers_are_those_of_arrays_to_the_last_bit():
    """Python computes where a run has one environment; NumPy's operations say the same."""
    rng = np.random.default_rng(2)
    rewards, ended = rng.normal(0, 3, (500, 1, 1)), rng.random((500, 1, 1)) < 0.05
    rewards[400:] *= 1e200  # and where numbers overflow
    gamma, scale = np.array([[0.99]]), RewardScale.of(1, 1)
    moments, discounted = Moments.of(1), np.zeros((1, 1))
    expected = np.empty_like(rewards)
    with np.errstate(all="ignore"):
        for t, weights in enumerate(moments.ahead(500, 1)):
            discounted *= gamma
            discounted += rewards[t]
            moments.update(discounted, weights)
            expected[t] = rewards[t] / np.sqrt(moments.variance + 1e-8)[:, None]
            discounted[ended[t]] = 0.0
    np.testing.assert_array_equal(scale(rewards, ended, gamma, np.inf), expected)
    for name in ("mean", "variance", "count"):
        np.testing.assert_array_equal(getattr(scale.moments, name), getattr(moments, name))
    np.testing.assert_array_equal(scale.discounted, discounted)
