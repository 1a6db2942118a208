"""One environment by itself: what it gives is checked, what it raises is kept."""

import sys

import numpy as np
import pytest

from klip.tasks.copies import Copy, Failure, Here, Played, Transition
from tests.tasks.own import Corridor

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


class Leaves(Corridor):
    """Ends Python, or gives what is no number, in the place that it is told."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def reset(self, *, seed=None, options=None):
        if self.where == "reset":
            sys.exit("I am done here")
        seen, info = super().reset(seed=seed)
        return (seen * np.nan if self.where == "nan" else seen), info

    def step(self, action):
        if self.where == "step":
            sys.exit()
        return super().step(action)

    def close(self):
        if self.where == "close":
            sys.exit()


@pytest.fixture
def leaves(monkeypatch):
    def made(where):
        monkeypatch.setattr("klip.tasks.copies.make_environment", lambda *_: Leaves(where))
        return Copy("Leaves-v0", {})

    return made


def test_an_environment_that_ends_python_is_a_failure(leaves):
    """Its neighbours in the process go on."""
    assert leaves("reset").play(1, [])[:2] == ("resetting", "SystemExit: I am done here")
    copy = leaves("step")
    copy.play(1, [])
    assert copy.step(LEFT).reason.startswith("SystemExit")
    leaves("close").close()


def test_a_first_observation_that_is_no_number_is_said_to_be(leaves):
    failure = leaves("nan").play(1, [])
    assert failure[:2] == ("resetting", "ValueError: observation[0] is nan")
