"""The effective advantage G = m/w = dJ/dw over an interval of ratios, enclosed between fractions.

The formulas are those of `exact`, differentiated by hand: the shapes' own code is not executed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from klip.shapes import Shape
from klip.theory.guarantee.enclosure import (
    Bounds,
    exp,
    hull,
    inverse,
    log_of,
    plus,
    scaled,
    sure,
    times,
)
from klip.theory.guarantee.exact import Numbers, numbers_of

Slope = Callable[[Bounds, Fraction, Numbers], Bounds]
ZERO: Final = sure(Fraction(0))


def slope(shape: Shape, w: Bounds, advantage: Fraction) -> Bounds | None:
    """Bounds of G at every ratio between the bounds of w; None for a shape not in `SLOPES`.

    >>> from klip.shapes import Clip, SPO
    >>> [str(x) for x in slope(SPO(eps=0.2), (Fraction(1), Fraction(3, 2)), Fraction(1))]
    ['-3/2', '1']
    >>> [str(x) for x in slope(Clip(eps=0.2), (Fraction(13, 10), Fraction(9)), Fraction(1))]
    ['0', '0']
    """
    numbers = numbers_of(shape)
    return None if numbers is None else SLOPES[shape.name](w, advantage, numbers)


def _zones(w: Bounds, edges: Sequence[Fraction], values: Sequence[Bounds]) -> Bounds:
    """Bounds of a function that has one of `values` on each zone between the edges."""
    ends = [None, *edges, None]
    met = [
        value
        for value, (start, end) in zip(values, itertools.pairwise(ends), strict=True)
        if (start is None or w[1] >= start) and (end is None or w[0] <= end)
    ]
    return hull(*met)


def _ends(f: Callable[[Fraction], Fraction], w: Bounds) -> Bounds:
    """Bounds of a monotone function."""
    return hull(sure(f(w[0])), sure(f(w[1])))


def _banded(w: Bounds, a: Fraction, n: Numbers, outside: Bounds) -> Bounds:
    """A within the band, `outside` where A pushes beyond it."""
    if a > 0:
        return _zones(w, [1 + n["high"]], [sure(a), outside])
    return _zones(w, [1 - n["low"]], [outside, sure(a)]) if a < 0 else ZERO


def _dual(w: Bounds, a: Fraction, n: Numbers) -> Bounds:
    if a < 0:
        return _zones(w, [1 - n["low"], n["cap"]], [ZERO, sure(a), ZERO])
    return _banded(w, a, n, ZERO)


def _ramp(w: Bounds, a: Fraction, n: Numbers) -> Bounds:
    if not n["width"]:
        return _banded(w, a, n, ZERO)

    def share(u: Fraction) -> Fraction:
        beyond = u - 1 - n["high"] if a > 0 else 1 - n["low"] - u
        return 1 - min(max(beyond / n["width"], Fraction(0)), Fraction(1))

    return scaled(a, _ends(share, w))


def _truncated(w: Bounds, a: Fraction, n: Numbers) -> Bounds:
    floor, cap = n.get("floor", Fraction(0)), n["cap"]
    return scaled(a, _ends(lambda u: min(max(u, floor), cap) / u, w))


def _gppo(w: Bounds, a: Fraction, n: Numbers) -> Bounds:
    if a > 0:
        return scaled(a, _ends(lambda u: min((1 + n["high"]) / u, Fraction(1)), w))
    return scaled(a, _ends(lambda u: max((1 - n["low"]) / u, Fraction(1)), w))


def _saturating(w: Bounds, a: Fraction, tau: Fraction) -> Bounds:
    """4 A s (1 - s) with s = 1 / (1 + e^(-tau (w-1))): it is largest at w = 1, and even there."""
    sides = []
    for u in w:
        low, high = exp(-tau * abs(u - 1))
        sides.append((4 * low / (1 + low) ** 2, 4 * high / (1 + high) ** 2))
    if w[0] <= 1 <= w[1]:
        sides.append(sure(Fraction(1)))
    return scaled(a, hull(*sides))


def _kimi(w: Bounds, a: Fraction, n: Numbers) -> Bounds:
    return times(plus(sure(a), scaled(-n["tau"], log_of(w))), inverse(w))


def _sppo(w: Bounds, a: Fraction, n: Numbers) -> Bounds:
    top = 1 + n["eps"]
    return _zones(w, [1 / top, top], [ZERO, scaled(a, inverse(w)), ZERO])


def _k3(w: Bounds, a: Fraction, n: Numbers) -> Bounds:
    return plus(sure(a - n["b"]), scaled(n["b"], inverse(w)))


def _tv(w: Bounds, a: Fraction, n: Numbers) -> Bounds:
    if w[0] == w[1] == 1:  # the sign of 0 is 0
        return sure(a)
    return _zones(w, [Fraction(1)], [sure(a + n["b"] / 2), sure(a - n["b"] / 2)])


def _quadratic(w: Bounds, a: Fraction, weight: Fraction) -> Bounds:
    return _ends(lambda u: a - weight * (u - 1), w)


SLOPES: Final[Mapping[str, Slope]] = {
    "is": lambda w, a, n: sure(a),
    "pspo": lambda w, a, n: sure((1 - n["alpha"]) * a),
    **dict.fromkeys(
        ("clip", "clip-phi", "per-sample", "clip-higher"),
        lambda w, a, n: _banded(w, a, n, ZERO),
    ),
    "dual-clip": _dual,
    "strict-clip": lambda w, a, n: _zones(w, [1 - n["low"], 1 + n["high"]], [ZERO, sure(a), ZERO]),
    "ramp": _ramp,
    "ppo-rb": lambda w, a, n: _banded(w, a, n, sure(-n["alpha"] * a)),
    "spo": lambda w, a, n: _quadratic(w, a, abs(a) / n["eps"]),
    "chi2": lambda w, a, n: _quadratic(w, a, 2 * n["b"]),
    "tv": _tv,
    "reinforce": lambda w, a, n: scaled(a, inverse(w)),
    "cispo": _truncated,
    "tis": _truncated,
    "gppo": _gppo,
    "scopic": lambda w, a, n: _saturating(w, a, n["tau"]),
    "sapo": lambda w, a, n: _saturating(w, a, n["tau_positive" if a > 0 else "tau_negative"]),
    "kimi": _kimi,
    "spma": lambda w, a, n: plus(scaled(a + 1 / n["eta"], inverse(w)), sure(-1 / n["eta"])),
    "spma-k1": lambda w, a, n: scaled(a + 1 / n["eta"], inverse(w)),
    "sppo": _sppo,
    "kl-k1": lambda w, a, n: plus(sure(a), scaled(n["b"], inverse(w))),
    "kl-k3": _k3,
    "kl": _k3,
    "p3o": lambda w, a, n: plus(_saturating(w, a, n["tau"]), _k3(w, Fraction(0), n)),
}
"""By the shape's name; the same names as in `exact`."""
