"""Counts of episodes and steps, which every kind of lanes has."""

import numpy as np
import pytest
from gymnasium.utils.seeding import np_random

from klip.tasks import TaskError
from klip.tasks.clock import Clock


def test_the_clock_seeds_each_episode_of_each_lane():
    clock = Clock("Stairs-v0", 2, lambda lane, episode: 10 * lane + episode, limit=2)
    assert [clock.seed(0), clock.seed(1)] == [0, 10]
    assert clock.tick().tolist() == [False, False]
    clock.advance(np.array([False, True]))
    assert clock.tick().tolist() == [True, False]
    assert [clock.seed(0), clock.seed(1)] == [0, 11]
    assert clock.state()["elapsed"].tolist() == [2, 1]
    assert Clock("Stairs-v0", 1, lambda lane, episode: 0, limit=None).tick().tolist() == [False]


def test_a_stopped_lane_counts_no_steps_until_it_is_restored():
    clock = Clock("Stairs-v0", 3, lambda lane, episode: 10 * lane + episode, limit=2)
    clock.stop(1, "stuck")
    clock.tick()
    assert clock.tick().tolist() == [True, False, True]
    assert (clock.elapsed.tolist(), clock.going().tolist()) == ([2, 0, 2], [0, 2])
    clock.keep([2, 1])
    assert ([clock.seed(0), clock.seed(1)], clock.going().tolist()) == ([20, 10], [0])
    assert clock.failed == {1: "stuck"}
    state = {"episode": np.array([4]), "elapsed": np.array([1])}
    clock.restore(slice(1, 2), clock.check(slice(1, 2), state))
    assert clock.failed == {}
    assert clock.tick().tolist() == [True, True]
    assert clock.seed(1) == 14
    clock.stop(0, "stuck")
    clock.begin()
    assert clock.going().tolist() == [0, 1]


def test_only_the_lanes_whose_episode_is_over_advance():
    clock = Clock("Stairs-v0", 3, lambda lane, episode: 0, limit=None)
    clock.tick()
    assert clock.advance(np.zeros(3, np.bool_)).tolist() == []
    assert clock.advance(np.array([True, False, True])).tolist() == [0, 2]
    assert clock.state(slice(1, 3))["episode"].tolist() == [0, 1]
    assert clock.elapsed.tolist() == [0, 1, 0]


def test_a_reset_draws_gymnasiums_numbers():
    clock = Clock("Stairs-v0", 2, lambda lane, episode: 40 + lane, limit=None)
    assert clock.generator(1).uniform() == np_random(41)[0].uniform()


GOOD = {"episode": np.array([0, 3]), "elapsed": np.array([1, 0])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"episode": np.array([0, -1])}, "the saved 'episode' is damaged: it counts -1"),
        ({"elapsed": np.array([0, 5])}, "an open episode has 5 steps, and the time limit is 5"),
        ({"elapsed": np.array([0.0, 1.0])}, "the saved 'elapsed' is float64 and must be int64"),
        ({"elapsed": np.array([0])}, r"has shape \(1,\) and must have \(2,\)"),
        ({"elapsed": [0, 1]}, "the saved 'elapsed' is list and must be int64"),
    ],
)
def test_a_state_that_cannot_be_is_refused(change, message):
    clock = Clock("Stairs-v0", 4, lambda lane, episode: 0, limit=5)
    assert clock.check(slice(2, 4), GOOD).elapsed.tolist() == [1, 0]
    with pytest.raises(TaskError, match=message):
        clock.check(slice(2, 4), {**GOOD, **change})
    with pytest.raises(TaskError, match="has no 'episode': it is of another kind of task"):
        clock.check(slice(2, 4), {"elapsed": GOOD["elapsed"]})


@pytest.mark.parametrize("chosen", [[], [0, 0], [3], [-1]])
def test_lanes_to_keep_are_some_of_them_each_once(chosen):
    clock = Clock("Stairs-v0", 3, lambda lane, episode: 0, limit=None)
    with pytest.raises(TaskError, match="must be some of the 3 lanes, counted from 0, each once"):
        clock.keep(chosen)
