"""What is enclosed lies inside."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.theory.guarantee.enclosure import exp, exp_of, hull, inverse, log, log_of, outwards, times

thousandths = st.integers(1, 8000).map(lambda n: Fraction(n, 1000))


@settings(max_examples=50, deadline=None)
@given(thousandths)
def test_logarithms_are_enclosed(x):
    low, high = log(x)
    assert float(low) == pytest.approx(np.log(float(x)), abs=1e-12)
    assert high - low < Fraction(1, 10**25)
    back = exp(low)[0], exp(high)[1]
    assert back[0] <= x <= back[1]


@settings(max_examples=30, deadline=None)
@given(thousandths, thousandths, st.integers(0, 4), st.integers(0, 4))
def test_what_lies_inside_stays_inside(x, y, i, j):
    """A point of each interval goes where the interval goes."""
    low, high = min(x, y), max(x, y)
    point, other = (low + (high - low) * Fraction(n, 4) for n in (i, j))
    for of, value in ((inverse, 1 / point), (lambda b: times(b, b), point * other)):
        assert of((low, high))[0] <= value <= of((low, high))[1]
    assert log_of((low, high))[0] <= log(point)[0] <= log(point)[1] <= log_of((low, high))[1]
    assert exp_of((low, high))[0] <= exp(point)[0] <= exp(point)[1] <= exp_of((low, high))[1]


def test_hulls_and_short_fractions():
    assert hull((Fraction(1), Fraction(2)), (Fraction(0), Fraction(1))) == (0, 2)
    third = Fraction(1, 3) + Fraction(1, 7**60)
    low, high = outwards(third, third)
    assert low < third < high
    assert high - low < Fraction(1, 10**39)
    assert exp(Fraction(0)) == (1, 1)
