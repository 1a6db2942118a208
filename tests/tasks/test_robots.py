"""What is written down about each MuJoCo task is what Gymnasium's class has by default."""

import warnings

import gymnasium
import pytest

from klip.tasks.robots import ROBOTS


@pytest.fixture(params=ROBOTS)
def pair(request):
    """A robot, and Gymnasium's environment of that id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = gymnasium.make(request.param).unwrapped
    yield ROBOTS[request.param], env
    env.close()


def test_physics_and_noise_are_gymnasiums(pair):
    robot, env = pair
    assert env.fullpath.endswith(robot.xml)
    assert env.frame_skip == robot.frame_skip
    assert env._reset_noise_scale == robot.reset_noise


def test_weights_of_the_reward_are_gymnasiums(pair):
    robot, env = pair
    assert env._ctrl_cost_weight == robot.control_cost
    assert getattr(env, "_forward_reward_weight", 1.0) == robot.forward
    assert getattr(env, "_healthy_reward", 0.0) == robot.alive
    if robot.contact_cost:
        assert env._contact_cost_weight == robot.contact_cost


def test_health_is_gymnasiums(pair):
    robot, env = pair
    assert (robot.healthy is not None) == getattr(env, "_terminate_when_unhealthy", False)
    if robot.healthy is None:
        return
    low, high = env._healthy_z_range
    assert any(a == pytest.approx(low) and b == pytest.approx(high)
               for a, b in robot.healthy.ranges)  # fmt: skip
    if hasattr(env, "_healthy_angle_range"):
        assert env._healthy_angle_range in robot.healthy.ranges


def test_hidden_positions_are_gymnasiums(pair):
    robot, env = pair
    assert env._exclude_current_positions_from_observation
    assert robot.hidden == (2 if "ant" in robot.xml or "humanoid" in robot.xml else 1)
