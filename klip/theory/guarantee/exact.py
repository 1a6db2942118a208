"""The gain J(w, A) - J(1, A) in exact fractions, for shapes whose formula is rational.

Where a logarithm or an exponential comes in, it is enclosed between two fractions. The formulas are
written here once more, by hand: nothing of the shapes' own code is executed. `slopes` has dJ/dw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

from klip.shapes import Shape
from klip.shapes.value import is_number
from klip.theory.guarantee.enclosure import (
    ONE,
    Bounds,
    exp,
    log,
    plus,
    scaled,
    sure,
    times,
)

Numbers = Mapping[str, Fraction]
Formula = Callable[[Fraction, Fraction, Numbers], Bounds]


def gain(shape: Shape, w: Fraction, advantage: Fraction) -> Bounds | None:
    """Lower and upper bound of J(w, A) - J(1, A); None for a shape that is not in `FORMULAS`.

    >>> from klip.shapes import SPO, ANO
    >>> [str(x) for x in gain(SPO(eps=0.2), Fraction(3, 2), Fraction(1))]
    ['-1/8', '-1/8']
    >>> gain(ANO(), Fraction(3, 2), Fraction(1)) is None
    True
    """
    numbers = numbers_of(shape)
    return None if numbers is None else FORMULAS[shape.name](w, advantage, numbers)


def numbers_of(shape: Shape) -> Numbers | None:
    """Its parameters, as the fractions that they spell; None for a shape not in `FORMULAS`."""
    known = shape.name in FORMULAS and not shape.source
    if not known or not all(map(is_number, shape.parameters.values())):
        return None
    numbers = {name: Fraction(repr(float(x))) for name, x in shape.parameters.items()}
    if "eps" in numbers and shape.name in BANDED:
        numbers = {"low": numbers["eps"], "high": numbers["eps"]} | numbers
    return numbers


def _clipped(w: Fraction, low: Fraction, high: Fraction) -> Fraction:
    return min(max(w, 1 - low), 1 + high)


def _beyond(w: Fraction, a: Fraction, n: Numbers) -> Fraction:
    """How far w lies outside the band where A pushes; 0 inside."""
    if a == 0:
        return Fraction(0)
    return max(w - 1 - n["high"] if a > 0 else 1 - n["low"] - w, Fraction(0))


def _is(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return sure((w - 1) * a)


def _clip(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return sure(min(w * a, _clipped(w, n["low"], n["high"]) * a) - a)


def _dual(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    inner = _clip(w, a, n)[0]
    return sure(max(inner, (n["cap"] - 1) * a) if a < 0 else inner)


def _strict(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return sure((_clipped(w, n["low"], n["high"]) - 1) * a)


def _ramp(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    d, width = _beyond(w, a, n), n["width"]
    lost = d * d / (2 * width) if 0 < d <= width else max(d - width / 2, Fraction(0)) if d else d
    return sure((w - 1) * a - abs(a) * lost)


def _rollback(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return sure((w - 1) * a - (1 + n["alpha"]) * abs(a) * _beyond(w, a, n))


def _spo(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return sure((w - 1) * a - abs(a) * (w - 1) ** 2 / (2 * n["eps"]))


def _truncated(w: Fraction, floor: Fraction, cap: Fraction) -> Bounds:
    """The integral of clip(u, floor, cap) / u from 1 to w."""

    def primitive(u: Fraction) -> Bounds:
        if u < floor:
            return plus(sure(floor), scaled(floor, log(u / floor)))
        return sure(u) if u <= cap else plus(sure(cap), scaled(cap, log(u / cap)))

    return plus(primitive(w), scaled(-ONE, primitive(ONE)))


def _cispo(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return scaled(a, _truncated(w, n.get("floor", Fraction(0)), n["cap"]))


def _gppo(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    if not _beyond(w, a, n):
        return sure((w - 1) * a)
    edge = 1 + n["high"] if a > 0 else 1 - n["low"]
    return scaled(a, plus(sure(edge - 1), scaled(edge, log(w / edge))))


def _saturating(w: Fraction, a: Fraction, tau: Fraction) -> Bounds:
    low, high = exp(-tau * (w - 1))
    sigma = (1 / (1 + high), 1 / (1 + low))
    return scaled(4 * a / tau, plus(sigma, sure(-Fraction(1, 2))))


def _kimi(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    x = log(w)
    return plus(scaled(a, x), scaled(-n["tau"] / 2, times(x, x)))


def _spma(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return plus(scaled(a + 1 / n["eta"], log(w)), sure((1 - w) / n["eta"]))


def _sppo(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    top = 1 + n["eps"]
    return scaled(a, log(min(max(w, 1 / top), top)))


def _k3(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return plus(sure((w - 1) * (a - n["b"])), scaled(n["b"], log(w)))


FORMULAS: Final[Mapping[str, Formula]] = {
    "is": _is,
    "pspo": lambda w, a, n: sure((1 - n["alpha"]) * (w - 1) * a),
    **dict.fromkeys(("clip", "clip-phi", "per-sample", "clip-higher"), _clip),
    "dual-clip": _dual,
    "strict-clip": _strict,
    "ramp": _ramp,
    "ppo-rb": _rollback,
    "spo": _spo,
    "chi2": lambda w, a, n: sure((w - 1) * a - n["b"] * (w - 1) ** 2),
    "tv": lambda w, a, n: sure((w - 1) * a - n["b"] * abs(w - 1) / 2),
    "reinforce": lambda w, a, n: scaled(a, log(w)),
    "cispo": _cispo,
    "tis": _cispo,
    "gppo": _gppo,
    "scopic": lambda w, a, n: _saturating(w, a, n["tau"]),
    "sapo": lambda w, a, n: _saturating(w, a, n["tau_positive" if a > 0 else "tau_negative"]),
    "kimi": _kimi,
    "spma": _spma,
    "spma-k1": lambda w, a, n: scaled(a + 1 / n["eta"], log(w)),
    "sppo": _sppo,
    "kl-k1": lambda w, a, n: plus(sure((w - 1) * a), scaled(n["b"], log(w))),
    "kl-k3": _k3,
    "kl": _k3,
    "p3o": lambda w, a, n: plus(_saturating(w, a, n["tau"]), _k3(w, Fraction(0), n)),
}
BANDED: Final = (
    "clip", "clip-phi", "per-sample", "clip-higher", "dual-clip", "strict-clip", "ramp", "ppo-rb",
    "gppo",
)  # fmt: skip
