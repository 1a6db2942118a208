import numpy as np
import pytest

from klip.tasks import Box, Discrete, MultiDiscrete
from klip.tasks.lanes import EnvironmentFailed, TaskError, read_only, with_rows


def test_action_spaces_are_values():
    one, two = (Box(np.zeros(2, np.float32), np.ones(2, np.float32)) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != Box(np.zeros(2), np.ones(2))
    assert one != Discrete(2)
    assert {Discrete(2), Discrete(2), MultiDiscrete((2,))} == {Discrete(2), MultiDiscrete((2,))}


def test_an_environment_that_failed_is_named_with_its_lane():
    error = EnvironmentFailed("Stairs-v0", 3, "stepping", "OSError: fell")
    assert str(error) == "Stairs-v0 failed in lane 3 while stepping: OSError: fell"
    assert (error.lane, error.reason) == (3, "OSError: fell")
    assert isinstance(error, TaskError)


def test_arrays_that_were_handed_out_stay_as_they_were():
    given = read_only(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="read-only"):
        given[0] = 1
    other = with_rows(given, slice(1, 2), np.ones((1, 2)))
    assert other.tolist() == [[0, 0], [1, 1], [0, 0]]
    assert not given.any()
    assert not other.flags.writeable
