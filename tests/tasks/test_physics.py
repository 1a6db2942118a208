import warnings
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest

from benchmarks.same_environment import actions_of, episode_seed
from klip.tasks import TaskError, describe, make_lanes
from klip.tasks.physics import load_model
from klip.tasks.robots import ROBOTS


def model_bytes(model):
    buffer = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


@pytest.mark.parametrize("xml", sorted({robot.xml for robot in ROBOTS.values()}))
def test_models_are_gymnasiums_to_the_byte_and_load_in_silence(xml, capfd):
    ours = load_model(xml)
    assert capfd.readouterr() == ("", "")
    assert not Path("MUJOCO_LOG.TXT").exists()
    assets = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    theirs = mujoco.MjModel.from_xml_path(str(assets / xml))
    assert model_bytes(ours) == model_bytes(theirs)


@pytest.mark.parametrize("task", ROBOTS)
def test_sizes_and_bounds_are_gymnasiums(task):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = gymnasium.make(task)
    spec = describe(task)
    assert (spec.observation_size,) == env.observation_space.shape
    assert spec.max_episode_steps == env.spec.max_episode_steps == 1000
    assert spec.action.low.dtype == env.action_space.dtype
    assert np.array_equal(spec.action.low, env.action_space.low)
    assert np.array_equal(spec.action.high, env.action_space.high)
    env.close()


def test_the_time_limit_truncates_and_the_next_episode_begins():
    lanes = make_lanes("HalfCheetah-v4", 2, episode_seed)
    lanes.reset()
    for action in actions_of("HalfCheetah-v4", 2, 999):
        step = lanes.step(action)
        assert not (step.truncated | step.terminated).any()
        assert step.final is step.observation
    step = lanes.step(action)
    assert step.truncated.all()
    assert not step.terminated.any()
    second = make_lanes("HalfCheetah-v4", 2, lambda lane, episode: episode_seed(lane, 1))
    assert step.observation.tobytes() == second.reset().tobytes()
    assert not np.array_equal(step.final, step.observation)
    assert lanes.state()["episode"].tolist() == [1, 1]
    assert lanes.state()["elapsed"].tolist() == [0, 0]


@pytest.mark.parametrize("task", ["HalfCheetah-v4", "Ant-v4", "Ant-v5", "Humanoid-v4"])
def test_a_silent_reset_of_a_bad_state_is_counted_and_harms_no_other_lane(task):
    actions = actions_of(task, 3, 12)
    lanes = make_lanes(task, 3, episode_seed)
    lanes.reset()
    state = lanes.state()
    expected = [lanes.step(action) for action in actions]
    assert lanes.warnings.tolist() == [0, 0, 0]
    state["physics"][1, 4] = np.inf
    lanes.restore(slice(None), state)
    with np.errstate(invalid="ignore"):
        for action, clean in zip(actions, expected, strict=True):
            step = lanes.step(action)
            assert np.array_equal(step.observation[::2], clean.observation[::2])
            assert np.array_equal(step.reward[::2], clean.reward[::2])
    assert lanes.warnings.tolist() == [0, 1, 0]
    again = make_lanes(task, 2, episode_seed)
    again.reset()
    again.restore(slice(0, 1), lanes.state(slice(1, 2)))
    assert again.warnings.tolist() == [1, 0]
    lanes.keep([2, 1])
    assert lanes.warnings.tolist() == [0, 1]
    lanes.reset()
    assert lanes.warnings.tolist() == [0, 0]


@pytest.mark.parametrize("task", ["HalfCheetah-v4", "Humanoid-v4"])
def test_an_unstable_episode_counts_once_though_it_is_interrupted(task):
    actions = actions_of(task, 2, 60)
    actions[::2, 1] = np.nan
    whole, interrupted = (make_lanes(task, 2, episode_seed) for _ in range(2))
    whole.reset(), interrupted.reset()
    for action in actions:
        whole.step(action), interrupted.step(action)
        interrupted.restore(slice(None), interrupted.state())
        assert interrupted.warnings.tolist() == whole.warnings.tolist()
    assert whole.warnings.tolist() == [0, 1 + whole.state()["episode"][1]]


def test_a_damaged_count_of_warnings_is_named():
    lanes = make_lanes("Hopper-v4", 1, episode_seed)
    lanes.reset()
    with pytest.raises(TaskError, match="'warned' is damaged: it counts -1"):
        lanes.restore(slice(None), lanes.state() | {"warned": np.array([-1])})
