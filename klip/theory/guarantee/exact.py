"""The gain J(w, A) - J(1, A) in exact fractions, for shapes whose formula is rational.

Where a logarithm or an exponential comes in, the gain is enclosed between two fractions. The
formulas are written here once more, by hand: nothing of the shapes' own code is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

from klip.shapes import Shape
from klip.shapes.value import is_number

Bounds = tuple[Fraction, Fraction]
Numbers = Mapping[str, Fraction]
Formula = Callable[[Fraction, Fraction, Numbers], Bounds]

ONE: Final = Fraction(1)
DIGITS: Final = 10**40
"""Enclosures are rounded outwards to multiples of its inverse."""


def gain(shape: Shape, w: Fraction, advantage: Fraction) -> Bounds | None:
    """Lower and upper bound of J(w, A) - J(1, A); None for a shape that is not in `FORMULAS`.

    >>> from klip.shapes import SPO, ANO
    >>> [str(x) for x in gain(SPO(eps=0.2), Fraction(3, 2), Fraction(1))]
    ['-1/8', '-1/8']
    >>> gain(ANO(), Fraction(3, 2), Fraction(1)) is None
    True
    """
    formula = FORMULAS.get(shape.name)
    if formula is None or shape.source or not all(map(is_number, shape.parameters.values())):
        return None
    numbers = {name: Fraction(repr(float(x))) for name, x in shape.parameters.items()}
    if "eps" in numbers and shape.name in BANDED:
        numbers = {"low": numbers["eps"], "high": numbers["eps"]} | numbers
    return formula(w, advantage, numbers)


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
        more = _times(two, (Fraction(halvings),) * 2)
        low, high = low + more[0], high + more[1]
    return _outwards(low, high)


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
    k = 0
    while abs(x) > Fraction(1, 4):
        x, k = x / 2, k + 1
    total, term = Fraction(0), ONE
    for i in range(1, 25):
        total, term = total + term, term * x / i
    rest = 2 * abs(term) + Fraction(1, DIGITS)
    bounds = _outwards(total - rest, total + rest)
    for _ in range(k):
        bounds = _outwards(bounds[0] ** 2, bounds[1] ** 2)
    return bounds


def _outwards(low: Fraction, high: Fraction) -> Bounds:
    return (
        Fraction(low * DIGITS // 1, DIGITS) if low.denominator > DIGITS else low,
        Fraction(-(-high * DIGITS // 1), DIGITS) if high.denominator > DIGITS else high,
    )


def _times(x: Bounds, y: Bounds) -> Bounds:
    products = [a * b for a in x for b in y]
    return min(products), max(products)


def _plus(x: Bounds, y: Bounds) -> Bounds:
    return x[0] + y[0], x[1] + y[1]


def _scaled(factor: Fraction, x: Bounds) -> Bounds:
    return _times((factor, factor), x)


def _sure(x: Fraction) -> Bounds:
    return x, x


def _clipped(w: Fraction, low: Fraction, high: Fraction) -> Fraction:
    return min(max(w, 1 - low), 1 + high)


def _beyond(w: Fraction, a: Fraction, n: Numbers) -> Fraction:
    """How far w lies outside the band where A pushes; 0 inside."""
    if a == 0:
        return Fraction(0)
    return max(w - 1 - n["high"] if a > 0 else 1 - n["low"] - w, Fraction(0))


def _is(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return _sure((w - 1) * a)


def _clip(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return _sure(min(w * a, _clipped(w, n["low"], n["high"]) * a) - a)


def _dual(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    inner = _clip(w, a, n)[0]
    return _sure(max(inner, (n["cap"] - 1) * a) if a < 0 else inner)


def _strict(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return _sure((_clipped(w, n["low"], n["high"]) - 1) * a)


def _ramp(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    d, width = _beyond(w, a, n), n["width"]
    lost = d * d / (2 * width) if 0 < d <= width else max(d - width / 2, Fraction(0)) if d else d
    return _sure((w - 1) * a - abs(a) * lost)


def _rollback(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return _sure((w - 1) * a - (1 + n["alpha"]) * abs(a) * _beyond(w, a, n))


def _spo(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return _sure((w - 1) * a - abs(a) * (w - 1) ** 2 / (2 * n["eps"]))


def _truncated(w: Fraction, floor: Fraction, cap: Fraction) -> Bounds:
    """The integral of clip(u, floor, cap) / u from 1 to w."""

    def primitive(u: Fraction) -> Bounds:
        if u < floor:
            return _plus(_sure(floor), _scaled(floor, log(u / floor)))
        return _sure(u) if u <= cap else _plus(_sure(cap), _scaled(cap, log(u / cap)))

    return _plus(primitive(w), _scaled(-ONE, primitive(ONE)))


def _cispo(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return _scaled(a, _truncated(w, n.get("floor", Fraction(0)), n["cap"]))


def _gppo(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    if not _beyond(w, a, n):
        return _sure((w - 1) * a)
    edge = 1 + n["high"] if a > 0 else 1 - n["low"]
    return _scaled(a, _plus(_sure(edge - 1), _scaled(edge, log(w / edge))))


def _saturating(w: Fraction, a: Fraction, tau: Fraction) -> Bounds:
    low, high = exp(-tau * (w - 1))
    sigma = (1 / (1 + high), 1 / (1 + low))
    return _scaled(4 * a / tau, _plus(sigma, _sure(-Fraction(1, 2))))


def _kimi(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    x = log(w)
    return _plus(_scaled(a, x), _scaled(-n["tau"] / 2, _times(x, x)))


def _spma(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return _plus(_scaled(a + 1 / n["eta"], log(w)), _sure((1 - w) / n["eta"]))


def _sppo(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    top = 1 + n["eps"]
    return _scaled(a, log(min(max(w, 1 / top), top)))


def _k3(w: Fraction, a: Fraction, n: Numbers) -> Bounds:
    return _plus(_sure((w - 1) * (a - n["b"])), _scaled(n["b"], log(w)))


FORMULAS: Final[Mapping[str, Formula]] = {
    "is": _is,
    "pspo": lambda w, a, n: _sure((1 - n["alpha"]) * (w - 1) * a),
    **dict.fromkeys(("clip", "clip-phi", "per-sample", "clip-higher"), _clip),
    "dual-clip": _dual,
    "strict-clip": _strict,
    "ramp": _ramp,
    "ppo-rb": _rollback,
    "spo": _spo,
    "chi2": lambda w, a, n: _sure((w - 1) * a - n["b"] * (w - 1) ** 2),
    "tv": lambda w, a, n: _sure((w - 1) * a - n["b"] * abs(w - 1) / 2),
    "reinforce": lambda w, a, n: _scaled(a, log(w)),
    "cispo": _cispo,
    "tis": _cispo,
    "gppo": _gppo,
    "scopic": lambda w, a, n: _saturating(w, a, n["tau"]),
    "sapo": lambda w, a, n: _saturating(w, a, n["tau_positive" if a > 0 else "tau_negative"]),
    "kimi": _kimi,
    "spma": _spma,
    "spma-k1": lambda w, a, n: _scaled(a + 1 / n["eta"], log(w)),
    "sppo": _sppo,
    "kl-k1": lambda w, a, n: _plus(_sure((w - 1) * a), _scaled(n["b"], log(w))),
    "kl-k3": _k3,
    "kl": _k3,
    "p3o": lambda w, a, n: _plus(_saturating(w, a, n["tau"]), _k3(w, Fraction(0), n)),
}
BANDED: Final = (
    "clip", "clip-phi", "per-sample", "clip-higher", "dual-clip", "strict-clip", "ramp", "ppo-rb",
    "gppo",
)  # fmt: skip
