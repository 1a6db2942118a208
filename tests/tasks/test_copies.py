"""One environment by itself: what it gives is checked, what it raises is kept."""

import numpy as np
import pytest

from klip.tasks.copies import Copy, Failure, Here, Played, Transition

OWN = "tests.tasks.own:"
STAY, LEFT, RIGHT = (np.array(choice) for choice in (1, 0, 2))


@pytest.fixture
def copy():
    made = Copy(f"{OWN}Breaks-v0", {})
    yield made
    made.close()


def test_an_episode_is_played(copy):
    assert copy.play(1, []).ended == 0
    here = copy.play(1, [LEFT, LEFT])
    assert isinstance(here, Played)
    assert (here.observation[0], here.ended) == (-1.0, 0)
    assert copy.play(1, [LEFT] * 9).ended == 6


def test_a_step_is_an_outcome_or_a_failure_with_its_traceback(copy):
    copy.play(1, [])
    outcome = copy.step(LEFT)
    assert isinstance(outcome, Transition)
    assert outcome[1:] == (-0.5, False, False)
    failure = copy.step(RIGHT)
    assert isinstance(failure, Failure)
    assert failure[:2] == ("stepping", "RuntimeError: the wheel came off")
    assert "raise RuntimeError(reason)" in failure.traceback
    assert copy.play(1, []).doing == "resetting"


def test_arguments_reach_the_environment():
    rest = [np.zeros(1, np.float32)]
    usual, heavy = (Copy("Pendulum-v1", given).play(0, rest) for given in ({}, {"g": 1000.0}))
    assert usual.observation.tobytes() != heavy.observation.tobytes()


def test_copies_by_number():
    copies = Here(Copy(f"{OWN}Corridor-v0", {}), f"{OWN}Corridor-v0", {}, 3)
    assert list(copies.play({2: (5, []), 0: (5, [])})) == [2, 0]
    copies.drop([1])
    assert list(copies.copies) == [0, 2]
    assert [o.reward for o in copies.step({0: LEFT, 2: STAY}).values()] == [-0.5, 0.0]
    copies.close()
    assert copies.copies == {}
