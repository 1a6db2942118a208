"""Curves: jumps are found where they are, and ramps are left alone."""

import numpy as np
import pytest

from klip.theory.curves import trace


def test_trace_finds_jumps_and_no_slopes():
    assert trace(lambda x: 50 * np.clip(x - 0.1, 0, 0.01), 0.0, 1.0).jumps == ()
    found = trace(lambda x: np.where(x > 0.3, 2.0, 0.0) + np.where(x > 0.7, 1.0, 0.0), 0.0, 1.0)
    assert [(j.at, j.left, j.right) for j in found.jumps] == [
        (pytest.approx(0.3), 0.0, 2.0),
        (pytest.approx(0.7), 2.0, 3.0),
    ]


def test_trace_is_not_fooled_by_the_middle_of_a_jump():
    (jump,) = trace(np.sign, -1.0, 1.002).jumps
    assert (jump.left, jump.right) == (-1.0, 1.0)
