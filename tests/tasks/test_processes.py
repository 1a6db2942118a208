"""Environments in processes: the same bits as here, whatever becomes of a process."""

import os
import signal

import numpy as np
import pytest

from benchmarks.same_environment import episode_seed
from klip.tasks import TaskError, make_lanes
from tests.tasks.test_every_lanes import assert_same, run

CORRIDOR, BREAKS = "tests.tasks.own:Corridor-v0", "tests.tasks.own:Breaks-v0"
ACTIONS = np.random.default_rng(0).integers(0, 2, (40, 5))


@pytest.fixture
def made():
    """Makes lanes, and closes them."""
    every = []

    def make(task, lanes=5, processes=2, **arguments):
        every.append(make_lanes(task, lanes, episode_seed, arguments, processes))
        return every[-1]

    yield make
    for lanes in every:
        lanes.close()


def pids(lanes):
    return [stepper.process._popen.pid for stepper in lanes._copies._processes]


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("task", [CORRIDOR, "Pendulum-v1"])
def test_the_bits_do_not_depend_on_where_a_copy_is(task, made):
    here, there = made(task, processes=0), made(task)
    assert here.reset().tobytes() == there.reset().tobytes()
    actions = ACTIONS if task == CORRIDOR else ACTIONS[..., None].astype(np.float32) - 0.3
    assert_same(run(here, actions[:20]), run(there, actions[:20]))
    state, other = here.state(), there.state()
    assert all(state[key].tobytes() == other[key].tobytes() for key in state)
    for lanes in (here, there):
        lanes.restore(slice(1, 4), {key: array[1:4] for key, array in state.items()})
        lanes.keep([4, 1, 2])
    assert_same(run(here, actions[20:, :3]), run(there, actions[20:, :3]))


def test_a_killed_process_is_replaced_and_nobody_can_tell(made):
    here, there = made(CORRIDOR, processes=0), made(CORRIDOR)
    here.reset(), there.reset()
    for t, action in enumerate(ACTIONS):
        if t % 15 == 3:
            os.kill(pids(there)[t % 2], signal.SIGKILL)
        assert_same(here.step(action), there.step(action))
    assert there.failed == {}


def test_an_environment_that_kills_its_process_fails_with_those_beside_it(made):
    lanes = made("tests.tasks.own:Deadly-v0", 4)
    lanes.reset()
    step = lanes.step(np.array([0, 2, 0, 0]))  # lanes 1 and 3 are in one process
    assert set(lanes.failed) == {1, 3}
    assert "its process ended with exit code 9, 3 times in a row" in lanes.failed[1]
    assert step.reward.tolist() == [0.5 * -1, 0, 0.5 * -1, 0]
    assert lanes.step(np.array([0, 0, 0, 0])).reward.tolist() == [-1, 0, -1, 0]


def test_what_an_environment_raises_comes_with_its_traceback(made):
    lanes = made(BREAKS)
    lanes.reset()
    lanes.step(np.array([0, 2, 0, 0, 0]))
    said = f"{BREAKS} failed in lane 1 while stepping: RuntimeError: the wheel came off"
    assert lanes.failed == {1: said}
    assert "own.py" in lanes.tracebacks[1]
    assert "RuntimeError: the wheel came off" in lanes.tracebacks[1]


def test_arguments_arrive_as_they_are(made):
    """A tuple stays a tuple."""
    lanes = made("tests.tasks.own:Corridor-v0", 2, start=(1.5, "x"))
    assert lanes.reset()[:, 0].tolist() == [1.5, 1.5]
    assert lanes.failed == {}


def test_no_process_is_left(made):
    lanes = made(CORRIDOR, 3)
    lanes.reset()
    first, second = pids(lanes)
    lanes.keep([1])
    assert not is_there(first)
    lanes.close()
    assert not is_there(second)
    orphan = made(CORRIDOR, 1, 1)
    orphan.reset()
    (alone,) = orphan._copies._processes
    alone.process.pipe.close()  # as when whoever asks was killed
    assert alone.process._popen.wait(10) == 1
    orphan._copies._processes = []


def test_tasks_that_are_stepped_in_one_call_need_none():
    with pytest.raises(TaskError, match="CartPole-v1 steps all its copies in one call"):
        make_lanes("CartPole-v1", 2, episode_seed, {}, 2)


def test_what_an_environment_prints_is_no_answer(made, capfd):
    lanes = made("tests.tasks.own:Chatty-v0", 2)
    lanes.reset()
    assert lanes.step(np.array([0, 0])).reward.tolist() == [-0.5, -0.5]
    lanes.close()
    assert "hello" in capfd.readouterr().out
