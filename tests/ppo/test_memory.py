"""What old samples will take, before they are there."""

import pytest

from klip.ppo import acting
from klip.ppo.config import config
from klip.ppo.memory import Kept, bytes_kept, sizes_kept
from klip.tasks import describe
from tests.ppo.networks import SPACES, every_space


def layout(task):
    spec = describe(task)
    return acting.layout_of(spec.observation_size, spec.action, (64, 64))


def test_nothing_where_every_sample_is_fresh():
    assert bytes_kept(layout("CartPole-v1"), config("CartPole-v1")) == Kept(0, 0, 0)


def test_by_hand():
    """CartPole: 4 numbers of observation, an 8-byte choice, reward, end, log mu and 2 logits."""
    samples, sample = 512, 4 * (4 + 1 + 1 + 1 + 2) + 8
    slot = samples * sample + 4 * 4 * 4  # and 4 lanes' last observations
    parameters = 2 * (4 * 64 + 64 + 64 * 64 + 64) + 64 * 2 + 2 + 64 + 1
    found = bytes_kept(layout("CartPole-v1"), config("CartPole-v1", lag=3, replay=5))
    assert found.checkpoint == 4 * slot + 3 * 4 * parameters
    assert found.memory == 2 * found.checkpoint + slot


@pytest.mark.parametrize("replay", [4, 8])
def test_humanoid_fits(replay):
    """20 runs with 4 rollouts in one process, and one with 8."""
    found = bytes_kept(layout("Humanoid-v4"), config("Humanoid-v4", replay=replay))
    assert 20 * found.memory + found.batch < 1.2e9
    assert found.checkpoint < 30e6


@every_space
def test_every_kind_of_action(space):
    c = config("CartPole-v1", replay=2, trace="recorded")
    sizes = sizes_kept(acting.layout_of(5, space, (8,)), c)
    assert sizes["action"][0][:2] == (128, 4)
    assert ("old.mean" in sizes) == (space is SPACES["box"])
    assert "recorded.target" in sizes
