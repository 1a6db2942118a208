"""What must hold for lanes of every kind: Gymnasium's bits, independence, exact resume.

What holds for a block of lanes among others is in `test_every_block`.
"""

import io

import numpy as np
import pytest

from benchmarks.same_environment import actions_of, compare, episode_seed
from klip.tasks import Box, Discrete, TaskError, describe, make_lanes
from klip.tasks.robots import ROBOTS

FAST = ("CartPole-v1", *ROBOTS)
SLOW = ("LunarLander-v3", "Pendulum-v1", "tests.tasks.own:Corridor-v0")
OTHERS = ("BipedalWalker-v3", "tests.tasks.own:TwoCorridors-v0")


def run(lanes, actions):
    """[T] steps, all of whose arrays are joined into one per field."""
    steps = [lanes.step(action) for action in actions]
    return [np.stack(field) for field in zip(*steps, strict=True)]


def assert_same(left, right):
    for a, b in zip(left, right, strict=True):
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def random_actions(task, lanes, steps):
    if "TwoCorridors" in task:
        return np.random.default_rng(0).integers(0, 4, (steps, lanes, 2))
    return actions_of(task, lanes, steps)


@pytest.mark.parametrize("task", [*FAST, "LunarLander-v3", "Pendulum-v1"])
def test_lanes_give_gymnasiums_bits(task):
    steps = 120 if task == "LunarLander-v3" else 250
    result = compare(task, actions_of(task, 3, steps))
    assert result.differing == 0
    if task not in ("HalfCheetah-v4", "HalfCheetah-v5"):
        assert result.episodes > 0


@pytest.mark.parametrize("task", ["HalfCheetah-v4", "Walker2d-v5", "Ant-v5", "Humanoid-v5"])
def test_the_bits_follow_the_precision_of_the_actions(task):
    assert compare(task, actions_of(task, 2, 60, np.float64)).differing == 0


@pytest.mark.parametrize("task", ["HalfCheetah-v4", "Ant-v5", "Humanoid-v4"])
def test_the_memory_layout_of_the_actions_does_not_matter(task):
    actions = actions_of(task, 3, 20)
    fortran = [np.asfortranarray(action) for action in actions]
    one, other = (make_lanes(task, 3, episode_seed) for _ in range(2))
    one.reset(), other.reset()
    assert_same(run(one, actions), run(other, fortran))


@pytest.mark.parametrize("task", [*FAST, *SLOW, *OTHERS])
def test_a_lane_does_not_depend_on_the_number_of_lanes(task):
    actions = random_actions(task, 7, 60)
    seven = make_lanes(task, 7, episode_seed)
    one = make_lanes(task, 1, lambda lane, episode: episode_seed(4, episode))
    assert_same([seven.reset()[4]], [one.reset()[0]])
    assert_same(
        [field[:, 4] for field in run(seven, actions)],
        [field[:, 0] for field in run(one, actions[:, 4:5])],
    )


@pytest.mark.parametrize("task", ROBOTS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_lane_with_senseless_actions_harms_no_other(task, bad):
    actions = actions_of(task, 3, 40)
    spoilt = actions.copy()
    spoilt[5:8, 1] = bad
    with np.errstate(over="ignore", invalid="ignore"):
        assert compare(task, spoilt).differing == 0  # the spoilt lane is Gymnasium's too
        clean, other = (make_lanes(task, 3, episode_seed) for _ in range(2))
        clean.reset(), other.reset()
        ours, theirs = run(clean, actions), run(other, spoilt)
    assert_same([f[:, ::2] for f in ours], [f[:, ::2] for f in theirs])
    # what is merely too large, MuJoCo clips to the actuators' range without complaint
    assert clean.warnings.tolist() == [0, 0, 0]
    assert other.warnings.tolist() == [0, int(np.isnan(bad)), 0]


@pytest.mark.parametrize("task", [*FAST, *SLOW, *OTHERS])
def test_a_restored_state_goes_on_exactly(task):
    actions = random_actions(task, 3, 75)
    lanes = make_lanes(task, 3, episode_seed)
    lanes.reset()
    before = run(lanes, actions[:35])
    file = io.BytesIO()
    np.savez(file, **lanes.state())
    expected = run(lanes, actions[35:])

    file.seek(0)
    with np.load(file) as state:
        saved = dict(state)
    fresh = make_lanes(task, 3, episode_seed)
    for again in (fresh, lanes):  # one that was never reset, and one that has gone on
        assert again.restore(slice(None), saved).tobytes() == before[0][-1].tobytes()
        assert_same(again.state().values(), saved.values())
        assert_same(run(again, actions[35:]), expected)
    assert_same(fresh.state().values(), lanes.state().values())
    fresh.close(), lanes.close()


@pytest.mark.parametrize("task", ["CartPole-v1", "Hopper-v4", "Humanoid-v4", "Pendulum-v1"])
def test_reset_starts_all_over(task):
    actions = actions_of(task, 2, 30)
    lanes = make_lanes(task, 2, episode_seed)
    first = lanes.reset()
    before = run(lanes, actions)
    assert lanes.reset().tobytes() == first.tobytes()
    assert_same(run(lanes, actions), before)


@pytest.mark.parametrize("task", ["CartPole-v1", "Hopper-v4", "Humanoid-v4", "Pendulum-v1"])
def test_what_a_step_returned_stays_as_it_was(task):
    lanes = make_lanes(task, 2, episode_seed)
    lanes.reset()
    actions = actions_of(task, 2, 12)
    step = lanes.step(actions[0])
    copies = [field.copy() for field in step]
    run(lanes, actions[1:])
    assert_same(step, copies)
    with pytest.raises(ValueError, match="read-only"):
        step.observation[0] = 0


@pytest.mark.parametrize("task", ["CartPole-v1", "Hopper-v4", "Humanoid-v4", *SLOW])
def test_both_observations_are_one_array_exactly_where_nothing_ended(task):
    lanes = make_lanes(task, 3, episode_seed)
    lanes.reset()
    ends = []
    for action in random_actions(task, 3, 210):
        step = lanes.step(action)
        ends.append(bool((step.terminated | step.truncated).any()))
        assert (step.final is step.observation) == (not ends[-1])
    assert set(ends) == {True, False}


@pytest.mark.parametrize("task", ["CartPole-v1", "Hopper-v4", "Ant-v5", "Pendulum-v1"])
def test_wrong_shapes_are_named(task):
    lanes = make_lanes(task, 2, episode_seed)
    lanes.reset()
    with pytest.raises(TaskError, match=r"the actions have shape \(3, 9\), and must have \(2,"):
        lanes.step(np.zeros((3, 9), np.float32))
    state = make_lanes(task, 5, episode_seed)
    state.reset()
    with pytest.raises(TaskError, match="saved with another task or number of lanes"):
        lanes.restore(slice(None), state.state())
    with pytest.raises(TaskError, match="saved with another task or number of lanes"):
        lanes.restore(slice(0, 1), lanes.state())
    with pytest.raises(TaskError, match="the saved state has no 'episode'"):
        lanes.restore(slice(None), {})
    for chosen in ([], [0, 0], [2], [-1]):
        with pytest.raises(TaskError, match="must be some of the 2 lanes"):
            lanes.keep(chosen)


@pytest.mark.parametrize("task", [*FAST, *SLOW, *OTHERS])
def test_the_description_fits_the_lanes(task):
    spec, lanes = describe(task), make_lanes(task, 2, episode_seed)
    assert (spec.task, spec.observation_size) == (task, lanes.reset().shape[1])
    assert spec.action == lanes.action
    assert isinstance(spec.action, Box | Discrete) or "Two" in task
