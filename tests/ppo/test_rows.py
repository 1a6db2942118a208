"""A line of the metrics file, by age where samples may be old."""

import numpy as np
import pytest

from klip.ppo.diagnostics import MASSES, SHARES
from klip.ppo.rows import by_age

NAMES = (*SHARES, *MASSES, "mass", "ratio", "kl", "pull", "weight", "square", "count")


def sums(**known):
    return {name: np.array(known.get(name, np.ones(3))) for name in NAMES}


def test_shares_and_means():
    found = by_age(
        sums(count=[4.0, 8.0, 0.0], pull=[3.0, 1.0, 0.0], kl=[1.0, 4.0, 0.0], mass=[2.0, 4.0, 0.0],
             weight=[4.0, 4.0, 0.0], square=[4.0, 8.0, 0.0], kill=[0.0, 6.0, 0.0]),
        [0, 1], "", 4,
    )  # fmt: skip
    assert found["age.samples"] == [1 / 3, 2 / 3, None, None]
    assert found["age.pull"] == [0.75, 0.25, None, None]
    assert found["age.kl"] == [0.25, 0.5, None, None]
    assert found["age.kill"] == [0.0, 0.75, None, None]
    assert found["age.ess"] == [1.0, 0.25, None, None]
    assert found["age.behaviour_ratio"] == [1.0, 0.5, None, None]
    assert found["age.killed_mass"] == [0.5, 0.25, None, None]


def test_rollouts_of_one_age_count_together():
    """The first iterations with a lag: the same policy acted in several of them."""
    found = by_age(sums(count=[4.0, 4.0, 8.0], kill=[0.0, 2.0, 2.0]), [2, 3, 3], "", 5)
    assert found["age.samples"] == [None, None, 0.25, 0.75, None]
    assert found["age.kill"] == [None, None, 0.0, pytest.approx(1 / 3), None]


def test_the_sets_of_a_reference_band_are_marked():
    found = by_age(sums(), [0, 1, 2], "@0.2", 3)
    marked = {"age.inside@0.2", "age.kill@0.2", "age.pass@0.2", "age.killed_mass@0.2"}
    assert {name for name in found if "@" in name} == marked
    assert "age.zeroed" in found


def test_a_class_of_none_is_no_number():
    """With all epochs stopped there is nothing to say."""
    assert by_age(sums(count=np.zeros(3), pull=np.zeros(3)), [0, 1, 2], "", 3) == {}
