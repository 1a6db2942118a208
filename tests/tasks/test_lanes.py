import numpy as np

from klip.tasks import Box, Discrete, MultiDiscrete
from klip.tasks.lanes import Clock


def test_action_spaces_are_values():
    one, two = (Box(np.zeros(2, np.float32), np.ones(2, np.float32)) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != Box(np.zeros(2), np.ones(2))
    assert one != Discrete(2)
    assert {Discrete(2), Discrete(2), MultiDiscrete((2,))} == {Discrete(2), MultiDiscrete((2,))}


def test_the_clock_seeds_each_episode_of_each_lane():
    clock = Clock(2, lambda lane, episode: 10 * lane + episode, limit=2)
    assert [clock.seed(0), clock.seed(1)] == [0, 10]
    assert clock.tick().tolist() == [False, False]
    clock.advance(np.array([1]))
    assert clock.tick().tolist() == [True, False]
    assert [clock.seed(0), clock.seed(1)] == [0, 11]
    assert clock.state()["elapsed"].tolist() == [2, 1]
    assert Clock(1, lambda lane, episode: 0, limit=None).tick().tolist() == [False]


def test_a_stopped_lane_counts_no_steps_until_it_is_restored():
    clock = Clock(3, lambda lane, episode: 10 * lane + episode, limit=2)
    clock.stop(1)
    clock.tick()
    assert clock.tick().tolist() == [True, False, True]
    assert (clock.elapsed.tolist(), clock.going().tolist()) == ([2, 0, 2], [0, 2])
    clock.keep([2, 1])
    assert ([clock.seed(0), clock.seed(1)], clock.going().tolist()) == ([20, 10], [0])
    clock.restore(slice(1, 2), {"episode": np.array([4]), "elapsed": np.array([1])})
    assert clock.tick().tolist() == [True, True]
    assert clock.seed(1) == 14
    clock.stop(0)
    clock.begin()
    assert clock.going().tolist() == [0, 1]
