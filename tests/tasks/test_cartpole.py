import numpy as np
import pytest

from benchmarks.same_environment import compare, episode_seed
from klip.tasks import TaskError, make_lanes


def balance(observation):
    """Push towards the side the pole falls to: it stands until the time limit."""
    return (0.3 * observation[:, 0] + observation[:, 1] + 10 * observation[:, 2]
            + 3 * observation[:, 3] > 0).astype(np.int64)  # fmt: skip


def test_a_pole_that_stands_is_truncated_at_500():
    lanes = make_lanes("CartPole-v1", 3, episode_seed)
    observation, actions = lanes.reset(), []
    for t in range(500):
        actions.append(balance(observation))
        step = lanes.step(actions[-1])
        assert step.truncated.tolist() == [t == 499] * 3
        assert not step.terminated.any()
        observation = step.observation
    assert not np.array_equal(step.final, step.observation)
    assert compare("CartPole-v1", np.stack(actions)).differing == 0


def test_a_pole_that_falls_terminates_long_before():
    lanes = make_lanes("CartPole-v1", 3, episode_seed)
    lanes.reset()
    steps = [lanes.step(np.ones(3, np.int64)) for _ in range(12)]
    assert any(step.terminated.any() for step in steps)
    assert not any(step.truncated.any() for step in steps)


def test_a_fall_on_the_last_step_is_both():
    lanes = make_lanes("CartPole-v1", 2, episode_seed)
    lanes.reset()
    state = lanes.state()
    state["elapsed"][0] = 499
    state["motion"][0] = [0, 0, 0.2, 3.0]
    lanes.restore(slice(None), state)
    step = lanes.step(np.array([1, 1]))
    assert step.terminated.tolist() == step.truncated.tolist() == [True, False]
    assert step.reward.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("wrong", [-1, 2, 77])
def test_an_action_that_is_no_choice_is_an_error(wrong):
    lanes = make_lanes("CartPole-v1", 2, episode_seed)
    lanes.reset()
    with pytest.raises(TaskError, match="an action is 0 or 1"):
        lanes.step(np.array([0, wrong]))


@pytest.mark.parametrize("motion", [np.nan, np.inf, 1e300, 2.5])
def test_no_pole_is_restored_that_has_fallen(motion):
    lanes = make_lanes("CartPole-v1", 2, episode_seed)
    lanes.reset()
    state = lanes.state()
    state["motion"][1, 0] = motion
    with pytest.raises(TaskError, match="'motion' is damaged"):
        lanes.restore(slice(None), state)
