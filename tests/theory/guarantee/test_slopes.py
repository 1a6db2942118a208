"""G in fractions, against the shapes' own code in floats and against the gains in fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.shapes import Clip, parse
from klip.theory.guarantee.exact import FORMULAS, gain
from klip.theory.guarantee.law import Law
from klip.theory.guarantee.slopes import SLOPES, slope

ADVANTAGES = [Fraction(1), Fraction(-1), Fraction(-5, 2), Fraction(3, 10)]
odd = st.integers(1, 4000).map(lambda n: Fraction(2 * n + 1, 2003))
"""Ratios that are no shape's edge."""


def test_they_are_of_the_same_shapes():
    assert SLOPES.keys() == FORMULAS.keys()


@pytest.mark.parametrize("name", sorted(SLOPES))
def test_every_slope_is_its_shapes_pull_over_the_ratio(name):
    shape = parse(name).initial
    for a in ADVANTAGES:
        for w in (Fraction(n, 37) for n in (2, 13, 29, 31, 36, 38, 43, 45, 47, 90, 240)):
            low, high = slope(shape, (w, w), a)
            m = Law(shape).pull(np.log(float(w)), float(a))
            assert low <= high
            assert float(low) == pytest.approx(float(m) / float(w), rel=1e-9, abs=1e-12)
            assert float(high - low) < 1e-20


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(SLOPES)), st.sampled_from(ADVANTAGES), odd, odd)
def test_a_secant_of_the_gain_lies_within_the_slopes_on_the_way(name, a, x, y):
    """J(high) - J(low) = (high - low) G(somewhere between)."""
    low, high = min(x, y), max(x, y)
    if low == high:
        return
    shape = parse(name).initial
    below, above = slope(shape, (low, high), a)
    start, end = gain(shape, low, a), gain(shape, high, a)
    assert (end[1] - start[0]) / (high - low) >= below
    assert (end[0] - start[1]) / (high - low) <= above


def test_an_interval_over_an_edge_has_both_sides():
    assert slope(Clip(eps=0.2), (Fraction(1), Fraction(2)), Fraction(1)) == (0, 1)
    assert slope(Clip(eps=0.2), (Fraction(1, 2), Fraction(1)), Fraction(-1)) == (-1, 0)
    assert slope(parse("ano").initial, (Fraction(1), Fraction(1)), Fraction(1)) is None
