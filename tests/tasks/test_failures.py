"""An environment that raises: its lane stands still and says why, and no other lane notices."""

import re
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.same_environment import actions_of, episode_seed
from klip.tasks import EnvironmentFailed, make_lanes
from tests.tasks.own import UNLUCKY, Corridor
from tests.tasks.test_every_lanes import assert_same, run

BREAKS = "tests.tasks.own:Breaks-v0"
RIGHT = 2  # the choice it breaks on


def unlucky(lane, episode):
    return lambda n, k: UNLUCKY if (n, k) == (lane, episode) else episode_seed(n, k)


def assert_still(fields, lane, seen):
    """From the first of these steps on, the lane observes the same, and nothing else happens."""
    observation, reward, terminated, truncated, final = (field[:, lane] for field in fields)
    assert (observation == seen).all()
    assert (final == seen).all()
    assert not reward.any()
    assert not (terminated | truncated).any()


@settings(max_examples=20)
@given(lane=st.integers(0, 3), at=st.integers(0, 25))
def test_a_step_that_raises_stops_its_lane_alone(lane, at):
    actions = np.random.default_rng(0).integers(0, RIGHT, (30, 4))
    spoilt = actions.copy()
    spoilt[at, lane] = RIGHT
    clean, lanes = (make_lanes(BREAKS, 4, episode_seed) for _ in range(2))
    first = clean.reset()
    assert lanes.reset().tobytes() == first.tobytes()
    expected, got = run(clean, actions), run(lanes, spoilt)
    assert_same(*([np.delete(f, lane, axis=1) for f in fields] for fields in (got, expected)))
    assert_same(*([f[:at, lane] for f in fields] for fields in (got, expected)))
    last = got[0][at - 1, lane] if at else first[lane]
    assert_still([f[at:] for f in got], lane, last)
    said = f"{BREAKS} failed in lane {lane} while stepping: RuntimeError: the wheel came off"
    assert lanes.failed == {lane: said}
    assert lanes.state()["elapsed"][lane] == at % 6


@settings(max_examples=20)
@given(lane=st.integers(0, 3), episode=st.integers(0, 4))
def test_a_reset_that_raises_stops_its_lane_alone(lane, episode):
    actions = np.random.default_rng(0).integers(0, RIGHT, (30, 4))
    clean = make_lanes(BREAKS, 4, episode_seed)
    lanes = make_lanes(BREAKS, 4, unlucky(lane, episode))
    first, ours = clean.reset(), lanes.reset()
    assert_same(*([np.delete(a, lane, axis=0)] for a in (ours, first)))
    expected, got = run(clean, actions), run(lanes, actions)
    assert_same(*([np.delete(f, lane, axis=1) for f in fields] for fields in (got, expected)))
    ended = np.flatnonzero((expected[2] | expected[3])[:, lane])  # none is longer than 6 steps
    if episode == 0:
        assert not ours[lane].any()
        assert_still(got, lane, 0)
    else:
        at = ended[episode - 1]
        # the episode itself ended well
        assert_same(*([f[: at + 1, lane] for f in fields[1:]] for fields in (got, expected)))
        assert got[0][at, lane].tobytes() == got[4][at, lane].tobytes()
        assert_still([f[at + 1 :] for f in got], lane, got[0][at, lane])
    said = f"{BREAKS} failed in lane {lane} while resetting: RuntimeError: the wheel is missing"
    assert lanes.failed == {lane: said}


def test_a_lane_that_failed_is_dropped_or_stays_under_another_number():
    lanes = make_lanes(BREAKS, 4, episode_seed)
    lanes.reset()
    lanes.step(np.array([0, RIGHT, 0, RIGHT]))
    said = lanes.failed[3]
    lanes.keep([3, 0, 2])
    assert lanes.failed == {0: said}
    run(lanes, np.ones((9, 3), np.int64))
    assert lanes.failed == {0: said}
    lanes.keep([1, 2])
    assert lanes.failed == {}
    assert lanes.step(np.array([0, RIGHT])).reward[1] == 0
    assert set(lanes.failed) == {1}


def test_reset_and_restore_bring_a_lane_back(monkeypatch):
    lanes = make_lanes(BREAKS, 2, episode_seed)
    first = lanes.reset()
    saved = lanes.state(slice(1, 2))
    lanes.step(np.array([0, RIGHT]))
    assert set(lanes.failed) == {1}
    with pytest.raises(EnvironmentFailed, match=r"lane 1 while resetting: .* called again"):
        lanes.restore(slice(1, 2), saved)
    assert "called again" in lanes.failed[1]
    monkeypatch.setattr("tests.tasks.own.Breaks._break_if", lambda *_: None)  # as if repaired
    assert lanes.restore(slice(1, 2), saved).tobytes() == first[1:].tobytes()
    assert lanes.failed == {}
    assert lanes.step(np.array([0, RIGHT])).reward[1] == 0.5
    lanes.failed[0] = "as if"
    assert lanes.reset().tobytes() == first.tobytes()
    assert lanes.failed == {}


@pytest.mark.parametrize("call", ["reset", "step"])
def test_a_wish_to_stop_is_not_a_failure(call, monkeypatch):
    """Ctrl-C is the user's; `sys.exit()` is the environment's, and stops nothing but its lane."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    lanes = make_lanes("tests.tasks.own:Corridor-v0", 2, episode_seed)
    lanes.reset()
    monkeypatch.setattr(Corridor, call, stop)
    with pytest.raises(KeyboardInterrupt):
        lanes.reset() if call == "reset" else lanes.step(np.array([1, 1]))


# -- MuJoCo raises an error when a contact needs more memory than the model grants ----------------


@pytest.fixture
def cramped(monkeypatch):
    """Makes robots without the memory for a contact."""

    def load(xml):
        assets = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
        text = re.sub("<size[^>]*>", "", (assets / xml).read_text())
        text = re.sub("(<mujoco[^>]*>)", r'\1<size memory="14000"/>', text, count=1)
        return mujoco.MjModel.from_xml_string(text)

    def make(task, lanes):
        with monkeypatch.context() as patch:
            patch.setattr("klip.tasks.physics.load_model", load)
            return make_lanes(task, lanes, episode_seed)

    return make


def in_the_air(task, lanes):
    """A state of each lane at a height of its own, so that they land one after the other."""
    lanes.reset()
    state = lanes.state()
    height = {"Hopper-v4": 2, "Humanoid-v4": 3}[task]  # behind the time
    state["physics"][:, height] += np.linspace(0, 0.5, lanes.lanes)
    return state


@pytest.mark.parametrize("task", ["Hopper-v4", "Humanoid-v4"])
def test_an_error_inside_mujoco_stops_its_lane_alone(task, cramped):
    clean, lanes = make_lanes(task, 6, episode_seed), cramped(task, 6)
    state = in_the_air(task, clean)
    for each in (clean, lanes):
        seen = each.restore(slice(None), state)
    stopped, doings, sizes = {}, set(), []
    for action in actions_of(task, 6, 60):
        expected, got = clean.step(action), lanes.step(action)
        for lane in set(range(6)) - set(stopped):
            if lane not in lanes.failed:
                assert_same([f[lane] for f in got], [f[lane] for f in expected])
                continue
            said = re.fullmatch(
                rf"{task} failed in lane {lane} while (\w+): (Fatal|Simulation)Error: .*memory.*",
                lanes.failed[lane],
            )
            doings.add(said[1])
            stopped[lane] = (said[0], seen[lane])
            if said[1] == "resetting":  # the episode itself ended well
                assert_same([f[lane] for f in got[1:]], [f[lane] for f in expected[1:]])
                stopped[lane] = (said[0], got.final[lane])
                assert got.observation[lane].tobytes() == got.final[lane].tobytes()
            else:
                assert_still([f[None] for f in got], lane, seen[lane])
        for lane, (said, last) in stopped.items():
            assert lanes.failed[lane] == said
            assert got.observation[lane].tobytes() == last.tobytes()
        seen = got.observation
        sizes.append(len(stopped))
    assert len(set(sizes)) > 3  # they did not fail all at once
    assert "stepping" in doings
    assert sizes[-1] == 6
    assert_still([f[None] for f in lanes.step(action)], 5, stopped[5][1])  # when none is left


def test_an_error_inside_mujoco_in_a_first_reset(cramped):
    lanes = cramped("Hopper-v4", 2)  # it stands on the ground from the start
    assert not lanes.reset().any()
    assert set(lanes.failed) == {0, 1}
    assert "lane 1 while resetting: SimulationError" in lanes.failed[1]
    assert_still([f[None] for f in lanes.step(actions_of("Hopper-v4", 2, 1)[0])], 1, 0)


@pytest.mark.parametrize("task", ["Hopper-v4", "Humanoid-v4"])
def test_a_lane_that_failed_inside_mujoco_is_kept_or_restored(task, cramped):
    lanes = cramped(task, 6)
    state = in_the_air(task, make_lanes(task, 6, episode_seed))
    lanes.restore(slice(None), state)
    steps, actions = 0, actions_of(task, 6, 60)
    while not lanes.failed:
        seen = lanes.step(actions[steps]).observation
        steps += 1
    lane, highest = min(lanes.failed), 5
    said = lanes.failed[lane]
    actions = actions[:, [highest, lane]]
    lanes.keep([highest, lane])
    assert lanes.failed == {1: said}
    elapsed = lanes.state()["elapsed"] + [1, 0]
    assert_still([f[None] for f in lanes.step(actions[steps])], 1, seen[lane])
    assert lanes.failed == {1: said}
    assert lanes.state()["elapsed"].tolist() == elapsed.tolist()
    lanes.restore(slice(1, 2), {key: array[lane : lane + 1] for key, array in state.items()})
    assert lanes.failed == {}
    run(lanes, actions[: steps - 1])
    assert lanes.state(slice(1, 2))["elapsed"] == steps - 1
    assert lanes.failed == {}
    lanes.step(actions[steps - 1])
    assert set(lanes.failed) == {1}


def test_an_error_inside_mujoco_leaves_no_stack_in_use_for_the_next_lane(cramped):
    lanes = cramped("Humanoid-v4", 2)
    state = in_the_air("Humanoid-v4", lanes)
    state["physics"][0, 3] -= 0.3  # into the ground
    lanes.restore(slice(None), state)
    lanes.step(actions_of("Humanoid-v4", 2, 1)[0])
    assert set(lanes.failed) == {0}
    assert lanes._physics._data.pstack == 0
