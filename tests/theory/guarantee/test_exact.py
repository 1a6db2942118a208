"""Gains in fractions, against the shapes' own code integrated in floats."""

from fractions import Fraction

import numpy as np
import pytest

from klip.shapes import Clip, parse
from klip.theory.guarantee.exact import FORMULAS, gain
from klip.theory.guarantee.law import Law
from klip.theory.views import integral


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_every_formula_is_its_shapes_integral(name):
    shape = parse(name).initial
    for a in (Fraction(1), Fraction(-1), Fraction(-5, 2), Fraction(3, 10), Fraction(0)):
        ratios = [Fraction(n, 20) for n in (1, 8, 15, 17, 20, 21, 24, 25, 26, 44, 70, 130)]
        floats = np.log([float(w) for w in ratios])
        expected = integral(Law(shape).pull, floats, float(a))
        for w, value in zip(ratios, expected, strict=True):
            low, high = gain(shape, w, a)
            assert low <= high
            assert float(low) == pytest.approx(value, abs=2e-5, rel=2e-5)
            assert float(high - low) < 1e-20


def test_two_radii_and_what_is_not_known():
    low, _ = gain(Clip(low=0.1, high=0.3), Fraction(2), Fraction(1))
    assert low == Fraction(3, 10)
    assert gain(parse("ano").initial, Fraction(2), Fraction(1)) is None
    assert gain(parse("clip(eps=by-age)").initial, Fraction(2), Fraction(1)) is None
