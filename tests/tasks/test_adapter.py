import dataclasses
import itertools

import gymnasium
import numpy as np
import pytest

from benchmarks.same_environment import episode_seed
from klip.tasks import Discrete, EnvironmentFailed, MultiDiscrete, TaskError, describe, make_lanes
from klip.tasks.adapter import GymnasiumLanes

OWN = "tests.tasks.own:"


def test_a_users_own_environment_works_by_its_module():
    spec = describe(f"{OWN}Corridor-v0")
    assert (spec.observation_size, spec.action) == (2, Discrete(3))
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
    assert lanes.action == MultiDiscrete((4, 4))
    lanes.reset()
    assert lanes.step(np.array([[0, 0], [3, 3]])).reward.tolist() == [-1.0, 2.0]


def test_real_actions_reach_the_environment_in_its_own_precision():
    lanes = make_lanes("Pendulum-v1", 2, episode_seed)
    lanes.reset()
    state, action = lanes.state(), np.array([[0.1], [0.7]])
    double = lanes.step(action)
    lanes.restore(state)
    assert np.array_equal(lanes.step(action.astype(np.float32)).reward, double.reward)


def test_the_open_episodes_actions_are_all_that_is_kept():
    lanes = make_lanes(f"{OWN}Corridor-v0", 2, episode_seed)
    lanes.reset()
    for _ in range(40):
        lanes.step(np.array([1, 2]))
    state = lanes.state()
    assert state["actions"].shape == (int(state["elapsed"].max()), 2)
    assert state["elapsed"].max() < 15


def test_an_exception_in_a_step_names_the_lane_and_says_what_it_said():
    lanes = make_lanes(f"{OWN}Breaks-v0", 3, episode_seed)
    lanes.reset()
    with pytest.raises(EnvironmentFailed, match="lane 2 while stepping: RuntimeError") as caught:
        lanes.step(np.array([0, 0, 2]))
    assert caught.value.lane == 2
    assert "the wheel came off" in caught.value.reason


def test_an_observation_of_another_size_than_promised_is_an_error():
    with pytest.raises(EnvironmentFailed, match=r"lane 0 while resetting: .* shape \(3,\)"):
        make_lanes(f"{OWN}Liar-v0", 2, episode_seed).reset()


def test_an_environment_that_is_not_deterministic_is_not_resumed():
    lanes = make_lanes(f"{OWN}Forgetful-v0", 2, episode_seed)
    lanes.reset()
    lanes.step(np.array([1, 1]))
    with pytest.raises(TaskError, match="is not deterministic: the seed and the 1 actions of lane"):
        lanes.restore(lanes.state())


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
