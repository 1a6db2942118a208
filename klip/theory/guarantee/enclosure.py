"""Arithmetic on enclosures: a number is known to lie between two fractions, and so is what follows.

A logarithm and an exponential are no fractions; bounds of them are.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

Bounds = tuple[Fraction, Fraction]
"""Lower and upper bound."""
ONE: Final = Fraction(1)
DIGITS: Final = 10**40
"""Bounds are rounded outwards to multiples of its inverse."""


def log(x: Fraction) -> Bounds:
    """Bounds of log x: 2 artanh((x-1)/(x+1)) by its series, after halving x into [2/3, 4/3].

    >>> low, high = log(Fraction(2))
    >>> float(low), float(high - low) < 1e-30
    (0.6931471805599453, True)
    """
    if x == 1:
        return Fraction(0), Fraction(0)
    halvings = 0
    while x > Fraction(4, 3):
        x, halvings = x / 2, halvings + 1
    while x < Fraction(2, 3):
        x, halvings = x * 2, halvings - 1
    low, high = _artanh_twice((x - 1) / (x + 1))
    if halvings:
        two = _artanh_twice(Fraction(1, 3))
        more = times(two, (Fraction(halvings),) * 2)
        low, high = low + more[0], high + more[1]
    return outwards(low, high)


def _artanh_twice(y: Fraction) -> Bounds:
    """2 (y + y^3/3 + y^5/5 + ...) for |y| <= 1/3: the rest is below its first term times 9/8."""
    total, power, terms = Fraction(0), y, 45
    for i in range(terms):
        total += power / (2 * i + 1)
        power = power * y * y
        if power.denominator > DIGITS**3:
            power = Fraction(round(power * DIGITS**2), DIGITS**2)
    rest = abs(power) * Fraction(9, 8) + Fraction(1, DIGITS)
    return 2 * (total - rest), 2 * (total + rest)


def exp(x: Fraction) -> Bounds:
    """Bounds of e^x: a Taylor series with its rest at x / 2^k, squared k times.

    >>> low, high = exp(Fraction(1))
    >>> float(low), float(high - low) < 1e-30
    (2.718281828459045, True)
    """
    if x == 0:
        return ONE, ONE
    k = 0
    while abs(x) > Fraction(1, 4):
        x, k = x / 2, k + 1
    total, term = Fraction(0), ONE
    for i in range(1, 25):
        total, term = total + term, term * x / i
    rest = 2 * abs(term) + Fraction(1, DIGITS)
    bounds = outwards(total - rest, total + rest)
    for _ in range(k):
        bounds = outwards(bounds[0] ** 2, bounds[1] ** 2)
    return bounds


def outwards(low: Fraction, high: Fraction) -> Bounds:
    """The bounds with short fractions, which enclose the given ones."""
    return (
        Fraction(low * DIGITS // 1, DIGITS) if low.denominator > DIGITS else low,
        Fraction(-(-high * DIGITS // 1), DIGITS) if high.denominator > DIGITS else high,
    )


def times(x: Bounds, y: Bounds) -> Bounds:
    """Bounds of the product."""
    products = [a * b for a in x for b in y]
    return min(products), max(products)


def plus(x: Bounds, y: Bounds) -> Bounds:
    """Bounds of the sum."""
    return x[0] + y[0], x[1] + y[1]


def scaled(factor: Fraction, x: Bounds) -> Bounds:
    """Bounds of a multiple."""
    return times((factor, factor), x)


def sure(x: Fraction) -> Bounds:
    """A number that is known."""
    return x, x


def inverse(x: Bounds) -> Bounds:
    """Bounds of 1/x, for an x that is positive."""
    return 1 / x[1], 1 / x[0]


def hull(*several: Bounds) -> Bounds:
    """The least bounds that enclose all of them."""
    return min(low for low, _ in several), max(high for _, high in several)


def log_of(x: Bounds) -> Bounds:
    """Bounds of log x, for an x that is positive."""
    return log(x[0])[0], log(x[1])[1]


def exp_of(x: Bounds) -> Bounds:
    """Bounds of e^x."""
    return exp(x[0])[0], exp(x[1])[1]
