"""Running statistics, against Gymnasium's own and by hand."""

import numpy as np
import pytest
from gymnasium.wrappers.utils import RunningMeanStd

from klip.ppo.normalise import Moments, RewardScale, normalise


@pytest.mark.parametrize("envs", [1, 4])
def test_moments_are_gymnasiums(envs):
    rng = np.random.default_rng(0)
    ours, theirs = Moments.of(2, 3), [RunningMeanStd(shape=(3,)) for _ in range(2)]
    for _ in range(50):
        x = rng.normal(3, 2, size=(2, envs, 3))
        ours.update(x)
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
    for x in data:
        together.update(x)
        alone.update(x[2:3])
    np.testing.assert_array_equal(together.mean[2], alone.mean[0])
    np.testing.assert_array_equal(together.variance[2], alone.variance[0])


def test_observations_are_clipped_and_single():
    moments = Moments.of(1, 2)
    moments.update(np.zeros((1, 1, 2)))
    x = normalise(np.array([[[1e9, -1e9]]]), moments, 10.0)
    assert x.dtype == np.float32
    assert x.tolist() == [[[10.0, -10.0]]]


def test_rewards_are_scaled_by_the_discounted_return():
    """G <- gamma G + r, no mean taken off, G anew after an end of either kind."""
    scale, g = RewardScale.of(1, 1), 0.0
    statistics = RunningMeanStd(shape=())
    for t, reward in enumerate([1.0, 2.0, -1.0, 3.0, 0.5]):
        ended = np.array([[t == 2]])
        got = scale(np.array([[reward]]), ended, np.array([[0.9]]), 10.0)
        g = 0.9 * g + reward
        statistics.update(np.array([g]))
        assert got[0, 0] == pytest.approx(np.clip(reward / np.sqrt(statistics.var + 1e-8), -10, 10))
        g = 0.0 if t == 2 else g
    assert scale.discounted[0, 0] == pytest.approx(g)
