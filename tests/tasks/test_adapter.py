import dataclasses
import itertools
import re

import gymnasium
import numpy as np
import pytest

from benchmarks.same_environment import episode_seed
from klip.tasks import Discrete, MultiDiscrete, TaskError, describe, make_lanes
from klip.tasks.adapter import GymnasiumLanes
from tests.tasks.own import Corridor

OWN = "tests.tasks.own:"


def test_a_users_own_environment_works_by_its_module():
    spec = describe(f"{OWN}Corridor-v0")
    assert (spec.observation_size, spec.action) == (2, Discrete(3, start=1))
    assert spec.max_episode_steps == 15
    lanes = make_lanes(f"{OWN}Corridor-v0", 2, episode_seed)
    assert lanes.reset()[:, 0].tolist() == [0, 0]
    for _ in range(5):
        lanes.step(np.array([1, 2]))  # 1 is "stay", since the choices are numbered from 1
    step = lanes.step(np.array([1, 2]))
    assert step.final[:, 0].tolist() == [0.0, 3.0]
    assert step.terminated.tolist() == [False, True]
    assert step.observation[:, 0].tolist() == [0.0, 0.0]
    for _ in range(9):
        step = lanes.step(np.array([1, 1]))
    assert step.truncated.tolist() == [True, False]


def test_several_choices_at_once():
    lanes = make_lanes(f"{OWN}TwoCorridors-v0", 2, episode_seed)
    assert lanes.action == MultiDiscrete((4, 4), start=(1, 1))
    lanes.reset()
    assert lanes.step(np.array([[0, 0], [3, 3]])).reward.tolist() == [-1.0, 2.0]


def test_real_actions_reach_the_environment_in_its_own_precision():
    lanes = make_lanes("Pendulum-v1", 2, episode_seed)
    lanes.reset()
    state, action = lanes.state(), np.array([[0.1], [0.7]])
    double = lanes.step(action)
    lanes.restore(slice(None), state)
    assert np.array_equal(lanes.step(action.astype(np.float32)).reward, double.reward)


def test_the_open_episodes_actions_are_all_that_is_kept():
    lanes = make_lanes(f"{OWN}Corridor-v0", 2, episode_seed)
    lanes.reset()
    for _ in range(40):
        lanes.step(np.array([1, 2]))
    state = lanes.state()
    assert state["elapsed"].tolist() == [10, 4]
    assert state["actions"].tolist() == [[1] * 10, [2] * 4 + [0] * 6]
    assert lanes.state(slice(1, 2))["actions"].tolist() == [[2] * 4]


def test_an_observation_of_another_size_than_promised_is_a_failure():
    lanes = make_lanes(f"{OWN}Liar-v0", 2, episode_seed)
    assert lanes.reset().tolist() == [[0, 0], [0, 0]]
    assert set(lanes.failed) == {0, 1}
    assert re.search(r"lane 0 while resetting: .* shape \(3,\)", lanes.failed[0])


def test_an_environment_that_is_not_deterministic_is_not_resumed_but_may_stay():
    lanes = make_lanes(f"{OWN}Forgetful-v0", 3, episode_seed)
    lanes.reset()
    before = lanes.step(np.array([1, 1, 1])).observation
    message = "is not deterministic: the seed and the 1 actions of lane 0"
    with pytest.raises(TaskError, match=message):
        lanes.restore(slice(0, 1), lanes.state(slice(0, 1)))
    assert message in lanes.failed[0]
    lanes.keep([2, 1])
    after = lanes.step(np.array([1, 2])).observation
    assert lanes.failed == {}
    assert after[:, 0].tolist() == pytest.approx([before[2, 0], before[1, 0] + 0.5])


def test_an_episode_that_ends_when_it_is_repeated_is_not_resumed():
    lanes = make_lanes(f"{OWN}Corridor-v0", 2, episode_seed)
    lanes.reset()
    for _ in range(7):
        lanes.step(np.array([1, 1]))
    state = lanes.state()
    state["actions"][1] = 2
    with pytest.raises(TaskError, match="lane 1's open episode led to its end at action 6"):
        lanes.restore(slice(None), state)
    assert set(lanes.failed) == {0, 1}


def test_environments_are_closed_once_dropped_and_each_though_one_raises(monkeypatch):
    closed = []

    def close(env):
        closed.append(env)
        raise RuntimeError("stuck door")

    monkeypatch.setattr(Corridor, "close", close)
    lanes = make_lanes(f"{OWN}Corridor-v0", 4, episode_seed)
    lanes.reset()
    envs = [copy.env.unwrapped for copy in lanes._copies.copies.values()]
    lanes.keep([3, 0])
    assert closed == envs[1:3]
    lanes.close()
    assert closed == [envs[1], envs[2], envs[0], envs[3]]


def test_every_episode_of_bipedal_walker_is_a_function_of_its_seed():
    """Gymnasium's keeps its world: a later episode has other bits than a first one."""
    task = "BipedalWalker-v3"
    actions = np.random.default_rng(0).uniform(-1, 1, (400, 1, 4)).astype(np.float32)
    lanes = make_lanes(task, 1, episode_seed)
    lanes.reset()
    stream = iter(actions)
    for action in stream:
        if (step := lanes.step(action)).terminated[0]:
            break
    again = make_lanes(task, 1, lambda lane, episode: episode_seed(lane, 1))
    assert again.reset().tobytes() == step.observation.tobytes()
    for action in itertools.islice(stream, 40):
        assert again.step(action).observation.tobytes() == lanes.step(action).observation.tobytes()


def test_an_environment_registered_anew_is_not_taken_for_gymnasiums(monkeypatch):
    spec = gymnasium.spec("CartPole-v1")
    changed = dataclasses.replace(spec, kwargs={"sutton_barto_reward": True})
    monkeypatch.setitem(gymnasium.registry, "CartPole-v1", changed)
    lanes = make_lanes("CartPole-v1", 1, episode_seed)
    assert isinstance(lanes, GymnasiumLanes)
    lanes.reset()
    assert lanes.step(np.array([0])).reward == 0.0
