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
