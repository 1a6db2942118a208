"""The two ways to step simulations are one physics, and one's trouble is not another's."""

import mujoco
import numpy as np
import pytest

from klip.tasks.physics import load_model
from klip.tasks.simulations import InTurn, Together, _StoppedClock

LANES = 3


@pytest.fixture(scope="module")
def model():
    return load_model("hopper.xml")


def started(kind, model):
    """Simulations at three different places, with their fields computed."""
    simulations = kind(model, LANES)
    positions = simulations.bind("qpos")
    simulations.bind("xpos")
    every = np.arange(LANES)
    simulations.restart(every)
    positions += 0.01 * every[:, None]
    assert simulations.forward(every) == {}
    return simulations


def test_both_ways_give_the_same_bits(model):
    together, in_turn = started(Together, model), started(InTurn, model)
    rng = np.random.default_rng(0)
    for _ in range(20):
        controls = rng.uniform(-1, 1, (LANES, model.nu))
        for simulations in (together, in_turn):
            simulations.bind("ctrl")[:] = controls
            assert simulations.step(4, None) == {}
        assert together.state.tobytes() == in_turn.state.tobytes()
        assert together.bind("xpos").tobytes() == in_turn.bind("xpos").tobytes()


@pytest.mark.parametrize("kind", [Together, InTurn])
def test_some_step_and_the_others_stand(kind, model):
    simulations = started(kind, model)
    before = simulations.state.copy()
    simulations.step(4, np.array([0, 2]))
    moved = (simulations.state != before).any(axis=1)
    assert moved.tolist() == [True, False, True]
    simulations.restart(np.array([2]))
    fresh = kind(model, 1)
    fresh.restart(np.array([0]))
    assert simulations.state[2].tobytes() == fresh.state[0].tobytes()


@pytest.mark.parametrize("kind", [Together, InTurn])
def test_an_unstable_simulation_is_marked_until_it_starts_anew(kind, model):
    simulations = started(kind, model)
    simulations.bind("qvel")[1] = 1e20
    with np.errstate(all="ignore"):
        simulations.step(4, None)
    assert simulations.unstable().tolist() == [False, True, False]
    simulations.restart(np.array([1]))
    assert not simulations.unstable().any()


def test_contact_forces_are_there_only_in_turn(model):
    together, in_turn = started(Together, model), started(InTurn, model)
    forces = [simulations.bind("cfrc_ext") for simulations in (together, in_turn)]
    for _ in range(50):  # the hopper falls on its foot
        together.step(4, None)
        in_turn.step(4, None)
    assert not forces[0].any()
    assert forces[1].any()


@pytest.fixture
def clock():
    """Somebody's own clock in MuJoCo, and how often it was read."""
    read = []

    def seconds():
        read.append(1)
        return float(len(read))

    mujoco.set_mjcb_time(seconds)
    yield seconds, read
    mujoco.set_mjcb_time(None)


@pytest.mark.parametrize("kind", [Together, InTurn])
def test_mujocos_clock_is_not_read_while_they_step_and_runs_on_afterwards(kind, model, clock):
    seconds, read = clock
    simulations = started(kind, model)
    simulations.step(4, None)
    assert mujoco.get_mjcb_time() is seconds
    assert not read
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data)
    assert read
    assert data.timer[mujoco.mjtTimer.mjTIMER_STEP].duration > 0


@pytest.mark.parametrize("kind", [Together, InTurn])
def test_the_clock_comes_back_after_an_error(kind, model, clock, monkeypatch):
    def fails(*_):
        raise RuntimeError("broken")

    simulations = started(kind, model)
    monkeypatch.setattr(mujoco, "mj_step", fails)
    monkeypatch.setattr(simulations, "_batch", type("Broken", (), {"step": fails}), raising=False)
    with pytest.raises(RuntimeError, match="broken"):
        simulations.step(4, None)
    assert mujoco.get_mjcb_time() is clock[0]


def test_threads_that_overlap_leave_the_clock_as_the_first_found_it(clock):
    stopped = _StoppedClock()
    stopped.__enter__()
    stopped.__enter__()
    stopped.__exit__()
    assert mujoco.get_mjcb_time() is not clock[0], "one of them is still within"
    stopped.__exit__()
    assert mujoco.get_mjcb_time() is clock[0]
