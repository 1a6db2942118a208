"""The way in: each task gets the fastest lanes that are Gymnasium's own, bit for bit."""

import gymnasium
import pytest

from klip.tasks import TaskError, describe, make_lanes
from klip.tasks.adapter import GymnasiumLanes
from klip.tasks.cartpole import CartPoleLanes
from klip.tasks.physics import MujocoLanes


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("CartPole-v1", CartPoleLanes),
        ("Hopper-v5", MujocoLanes),
        ("Pendulum-v1", GymnasiumLanes),
        ("CartPole-v0", GymnasiumLanes),  # another limit and threshold of reward
    ],
)
def test_each_task_gets_its_kind_of_lanes(task, kind):
    lanes = make_lanes(task, 2, lambda lane, episode: lane + 10 * episode)
    assert type(lanes) is kind
    spec = describe(task)
    assert (lanes.task, lanes.lanes) == (task, 2)
    assert (lanes.observation_size, lanes.action) == (spec.observation_size, spec.action)
    assert lanes.reset().shape == (2, spec.observation_size)
    lanes.close()


@pytest.mark.parametrize("change", [{"kwargs": {"sutton_barto_reward": True}}, {"kwargs": {}}])
def test_only_gymnasiums_own_cartpole_is_taken_for_it(monkeypatch, change):
    """A user may register the id anew, with other arguments or another class."""
    spec = gymnasium.registry["CartPole-v1"]
    entry = spec.entry_point if change["kwargs"] else (lambda **_: None)
    own = gymnasium.envs.registration.EnvSpec("CartPole-v1", entry_point=entry, **change)
    monkeypatch.setitem(gymnasium.registry, "CartPole-v1", own)
    if change["kwargs"]:
        lanes = make_lanes("CartPole-v1", 1, lambda lane, episode: 0)
        assert isinstance(lanes, GymnasiumLanes)
        lanes.close()
    else:
        with pytest.raises(TaskError, match="CartPole-v1 could not be made"):
            make_lanes("CartPole-v1", 1, lambda lane, episode: 0)


def test_there_is_at_least_one_lane():
    with pytest.raises(TaskError, match="CartPole-v1: 0 lanes were asked for"):
        make_lanes("CartPole-v1", 0, lambda lane, episode: 0)
