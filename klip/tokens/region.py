"""What decides the multiplier of a token: a level, a shape, gates and penalties."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from klip.errors import KlipError
from klip.shapes import Gate, Penalty, Shape
from klip.shapes.names import listed, parse_value
from klip.shapes.value import V, Value
from klip.tokens.levels import Level, Token

ROOMS = ("klip.shapes", "klip.tokens")
"""The packages whose values may be spelled by name alone."""


@dataclass(frozen=True)
class TokenRegion:
    """m = prod_g c_g * m_shape + sum_p beta_p; the shape sees the log-ratio of the level."""

    shape: Shape
    level: Level = Token()
    gates: tuple[Gate, ...] = ()
    penalties: tuple[Penalty, ...] = ()

    @staticmethod
    def read(
        shape: Shape | str,
        level: Level | str = Token(),  # noqa: B008 - a frozen value
        gates: Iterable[Gate | str] = (),
        penalties: Iterable[Penalty | str] = (),
    ) -> TokenRegion:
        """The region of these values, each a value or its spelling.

        >>> TokenRegion.read("clip", "sequence-mean", gates=["opsm(delta=0.1)"]).gates
        (OPSM(delta=0.1, anchor='old'),)
        """
        for name, values in (("gates", gates), ("penalties", penalties)):
            if isinstance(values, (str, Value)):
                raise KlipError(f"{name}={values!r} must be a list of {name} or their spellings")
        return TokenRegion(
            named(Shape, shape),
            named(Level, level),
            tuple(named(Gate, gate) for gate in gates),
            tuple(named(Penalty, penalty) for penalty in penalties),
        )

    @property
    def parts(self) -> tuple[Shape | Gate | Penalty, ...]:
        """The shape, the gates and the penalties: all parts that may need context."""
        return (self.shape, *self.gates, *self.penalties)

    @property
    def needs(self) -> frozenset[str]:
        """The context fields that any part needs."""
        return frozenset[str]().union(*(part.needs for part in self.parts))


def named(kind: type[V], value: V | str) -> V:
    """The value of a kind (shape, level, gate, penalty or reducer) that `value` is or spells.

    >>> named(Level, "geometric-mean(low=0.3, high=0.5)")
    GeometricMean(low=0.3, high=0.5)
    >>> named(Level, "sentence")
    Traceback (most recent call last):
    klip.shapes.names.NameUnknown: no level is called 'sentence'; there are token, sequence-mean, sequence-sum, geometric-mean, prefix-sum, prefix-mean
    """  # noqa: E501 - a traceback in a doctest is one line
    if isinstance(value, str):
        value = cast("V", _parsed(cast("Any", kind), value))
    if not isinstance(value, kind):
        word = kind.__name__.lower()
        hint = listed(kind, ROOMS)
        raise KlipError(f"{word}={value!r} must be a {word} or its spelling; {hint}")
    return value


@functools.lru_cache(maxsize=256)
def _parsed(kind: Any, text: str) -> Any:
    """`parse_value`, cached: it runs once for each spelling, not once for each loss."""
    return parse_value(kind, text, ROOMS)
