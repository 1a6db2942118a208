"""How shapes combine: `gate * shape`, `shape + penalty`, `by_sign(positive, negative)`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from klip.shapes.backend import Array, cast, exp, minimum, stop_gradient, where
from klip.shapes.context import NO_CONTEXT, Context
from klip.shapes.sample import Sample
from klip.shapes.shape import Penalty, Shape
from klip.shapes.value import Parameter, Value, entry, parameter


@dataclass(frozen=True)
class Gate(Value, abstract=True):
    """A detached weight on a shape's whole pull: `gate * shape`.

    A class defines `weight(self, s)`; callers write `gate.weight(log_ratio, advantage, context)`.
    """

    family = "gate"
    elementwise: ClassVar[tuple[str, ...]] = ("weight",)

    @entry
    def weight(self, s: Sample) -> Array:
        """The factor on each sample's multiplier."""
        raise NotImplementedError

    def __mul__(self, shape: Shape) -> Gated:
        return Gated(self, shape) if isinstance(shape, Shape) else NotImplemented


@dataclass(frozen=True)
class Gated(Shape, abstract=True):
    """m = c * m_shape, with c the gate's weight.

    >>> from klip.shapes import Clip, KLk3
    >>> str(Truncate(cap=2.0) * Clip())
    'truncate(cap=2.0) * clip(eps=0.2)'
    >>> (Truncate() * (Clip() + KLk3(b=0.1))).brief
    'truncate * (clip + kl-k3(b=0.1))'
    """

    gate: Gate
    shape: Shape

    def __str__(self) -> str:
        return f"{self.gate} * {self._bracketed(str(self.shape))}"

    @property
    def brief(self) -> str:
        return f"{self.gate.brief} * {self._bracketed(self.shape.brief)}"

    def _bracketed(self, inner: str) -> str:
        return f"({inner})" if isinstance(self.shape, Sum) else inner

    @property
    def published(self) -> bool:
        return self.shape.published

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        return self.shape.band(context, like)

    def _weight(self, s: Sample) -> Array:
        return cast(self.gate.weight(s), s.log_w)

    def multiplier(self, s: Sample) -> Array:
        return self._weight(s) * self.shape.multiplier(s)

    def objective(self, s: Sample) -> Array:
        return stop_gradient(self._weight(s)) * self.shape.objective(s)

    def evaluate(self, s: Sample) -> tuple[Array, Array | None]:
        m, value = self.shape.evaluate(s)
        c = self._weight(s)
        return c * m, None if value is None else c * value

    def kl_weight(self, s: Sample) -> Array | None:
        weight = self.shape.kl_weight(s)
        return None if weight is None else self._weight(s) * weight


@dataclass(frozen=True)
class Sum(Shape, abstract=True):
    """m = m_shape + beta_penalty: the two coefficients add, w*A counts once.

    >>> from klip.shapes import Clip, KLk3
    >>> str(Clip() + KLk3(b=0.1))
    'clip(eps=0.2) + kl-k3(b=0.1)'
    """

    shape: Shape
    penalty: Penalty

    def __str__(self) -> str:
        return f"{self.shape} + {self.penalty}"

    @property
    def brief(self) -> str:
        return f"{self.shape.brief} + {self.penalty.brief}"

    @property
    def published(self) -> bool:
        return self.shape.published and self.penalty.published

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        return self.shape.band(context, like)

    def multiplier(self, s: Sample) -> Array:
        return self.shape.multiplier(s) + self.penalty.beta(s)

    def objective(self, s: Sample) -> Array:
        return self.shape.objective(s) + self.penalty.cost(s)

    def evaluate(self, s: Sample) -> tuple[Array, Array | None]:
        m, value = self.shape.evaluate(s)
        return m + self.penalty.beta(s), None if value is None else value + self.penalty.cost(s)

    def kl_weight(self, s: Sample) -> Array | None:
        weights = [part.kl_weight(s) for part in (self.shape, self.penalty)]
        terms = [weight for weight in weights if weight is not None]
        return sum(terms[1:], terms[0]) if terms else None


@dataclass(frozen=True)
class BySign(Shape, abstract=True):
    """m = m_positive where A > 0, m_negative elsewhere.

    >>> from klip.shapes import Clip, Ramp
    >>> from klip.shapes import Clip
    >>> str(by_sign(Clip(), Ramp()))
    'by-sign(positive=clip(eps=0.2), negative=ramp(eps=0.2, width=0.05))'
    >>> by_sign(Clip(), Ramp()).brief
    'by-sign(clip, ramp)'
    """

    positive: Shape
    negative: Shape

    @property
    def brief(self) -> str:
        return f"{self.name}({self.positive.brief}, {self.negative.brief})"

    @property
    def published(self) -> bool:
        return self.positive.published and self.negative.published

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        """The edges of the kill set: the lower of `negative`, the upper of `positive`.

        The side of a part without a band has no edge: 0 below, infinity above.
        """
        above, below = self.positive.band(context, like), self.negative.band(context, like)
        if above is None and below is None:
            return None
        return 0.0 if below is None else below[0], math.inf if above is None else above[1]

    def multiplier(self, s: Sample) -> Array:
        return where(s.advantage > 0, self.positive.multiplier(s), self.negative.multiplier(s))

    def objective(self, s: Sample) -> Array:
        return where(s.advantage > 0, self.positive.objective(s), self.negative.objective(s))

    def evaluate(self, s: Sample) -> tuple[Array, Array | None]:
        (m, value), (other, other_value) = self.positive.evaluate(s), self.negative.evaluate(s)
        good = s.advantage > 0
        known = value is not None and other_value is not None
        return where(good, m, other), where(good, value, other_value) if known else None

    def kl_weight(self, s: Sample) -> Array | None:
        above, below = self.positive.kl_weight(s), self.negative.kl_weight(s)
        if above is None and below is None:
            return None
        return where(
            s.advantage > 0, 0.0 if above is None else above, 0.0 if below is None else below
        )


def by_sign(positive: Shape, negative: Shape) -> BySign:
    """The shape that is `positive` where A > 0 and `negative` elsewhere.

    >>> from klip.shapes import Clip
    >>> str(by_sign(Clip(eps=0.1), Clip(eps=0.3)))
    'by-sign(positive=clip(eps=0.1), negative=clip(eps=0.3))'

    Args:
        positive: the shape where A > 0
        negative: the shape elsewhere

    Returns:
        one shape, which composes as any other

    """
    return BySign(positive, negative)


@dataclass(frozen=True)
class Truncate(Gate):
    """c = min(pi_old / pi_behaviour, cap): corrects for a sampler that lags behind.

    >>> gate = Truncate(cap=2.0)
    >>> float(gate.weight(0.0, 1.0, Context(behaviour_log_ratio=3.0)))
    2.0
    """

    number = "64"
    reference = "truncated importance sampling; verl, slime, SkyRL"
    requires = ("behaviour_log_ratio",)

    cap: Parameter = parameter(2.0, above=0)

    def weight(self, s: Sample) -> Array:
        return minimum(exp(s.behaviour_log_ratio), self.cap)


@dataclass(frozen=True)
class IcePop(Gate):
    """c = pi_old / pi_behaviour within [floor, cap], 0 outside.

    >>> gate = IcePop()
    >>> float(gate.weight(0.0, 1.0, Context(behaviour_log_ratio=3.0)))
    0.0
    """

    name = "icepop"
    number = "8, 64"
    reference = "IcePop; verl, slime, NeMo-RL, OpenRLHF"
    requires = ("behaviour_log_ratio",)

    floor: Parameter = parameter(0.5, at_least=0)
    cap: Parameter = parameter(5.0, above=0)

    def weight(self, s: Sample) -> Array:
        c = exp(s.behaviour_log_ratio)
        return where((c < self.floor) | (c > self.cap), 0.0, c)


@dataclass(frozen=True)
class Discount(Gate):
    """c = factor^age: older samples pull less.

    >>> float(Discount(factor=0.5).weight(0.0, 1.0, Context(age=2.0)))
    0.25
    """

    reference = "age-conditioned, KLip-PPO sec. 5"
    requires = ("age",)

    factor: Parameter = parameter(0.9, above=0)

    def weight(self, s: Sample) -> Array:
        return self.factor**s.age


@dataclass(frozen=True)
class MaxAge(Gate):
    """c = 1 up to an age of `limit` updates, 0 beyond.

    >>> float(MaxAge(limit=4).weight(0.0, 1.0, Context(age=5.0)))
    0.0
    """

    reference = "staleness filters; AReaL, verl"
    requires = ("age",)

    limit: Parameter = parameter(4.0, at_least=0)

    def weight(self, s: Sample) -> Array:
        return where(s.age > self.limit, 0.0, 1.0, like=s.log_w)
