"""How shapes combine: `gate * shape`, `shape + penalty`, `by_sign(positive, negative)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from klip.shapes.backend import Array, cast, exp, minimum, where
from klip.shapes.context import NO_CONTEXT, Context
from klip.shapes.shape import Penalty, Shape
from klip.shapes.value import Parameter, Value, parameter


@dataclass(frozen=True)
class Gate(Value, abstract=True):
    """A detached weight on a shape's whole pull: `gate * shape`."""

    elementwise: ClassVar[tuple[str, ...]] = ("weight",)

    def weight(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        """What each sample's multiplier is multiplied by."""
        raise NotImplementedError

    def __mul__(self, shape: Shape) -> Gated:
        return Gated(self, shape) if isinstance(shape, Shape) else NotImplemented


@dataclass(frozen=True)
class Gated(Shape, abstract=True):
    """m = c * m_shape, with c the gate's weight.

    >>> from klip.shapes import Clip
    >>> str(Truncate(cap=2.0) * Clip())
    'truncate(cap=2.0) * clip(eps=0.2)'
    """

    gate: Gate
    shape: Shape

    def __str__(self) -> str:
        inner = f"({self.shape})" if isinstance(self.shape, Sum) else str(self.shape)
        return f"{self.gate} * {inner}"

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        c = cast(self.gate.weight(log_ratio, advantage, context), log_ratio)
        return c * self.shape.multiplier(log_ratio, advantage, context)

    def kl_weight(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array | None:
        weight = self.shape.kl_weight(log_ratio, advantage, context)
        if weight is None:
            return None
        return cast(self.gate.weight(log_ratio, advantage, context), log_ratio) * weight


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

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        pull = self.shape.multiplier(log_ratio, advantage, context)
        return pull + self.penalty.beta(log_ratio, advantage, context)

    def kl_weight(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array | None:
        weights = [
            part.kl_weight(log_ratio, advantage, context) for part in (self.shape, self.penalty)
        ]
        given = [weight for weight in weights if weight is not None]
        return sum(given[1:], given[0]) if given else None


@dataclass(frozen=True)
class BySign(Shape, abstract=True, name="by-sign"):
    """m = m_positive where A > 0, m_negative elsewhere.

    >>> from klip.shapes import Clip, Ramp
    >>> str(by_sign(Clip(), Ramp()))
    'by-sign(positive=clip(eps=0.2), negative=ramp(eps=0.2, width=0.05))'
    """

    positive: Shape
    negative: Shape

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        return where(
            advantage > 0,
            self.positive.multiplier(log_ratio, advantage, context),
            self.negative.multiplier(log_ratio, advantage, context),
        )

    def kl_weight(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array | None:
        above = self.positive.kl_weight(log_ratio, advantage, context)
        below = self.negative.kl_weight(log_ratio, advantage, context)
        if above is None and below is None:
            return None
        return where(
            advantage > 0, 0.0 if above is None else above, 0.0 if below is None else below
        )


def by_sign(positive: Shape, negative: Shape) -> BySign:
    """One shape for good actions, another for bad (and indifferent) ones."""
    return BySign(positive, negative)


@dataclass(frozen=True)
class Truncate(
    Gate, number="64", family="gate", requires=["behaviour_log_ratio"],
    reference="truncated importance sampling; verl, slime, SkyRL",
):  # fmt: skip
    """c = min(pi_old / pi_behaviour, cap): corrects for a sampler that lags behind.

    >>> gate = Truncate(cap=2.0)
    >>> float(gate.weight(0.0, 1.0, Context(behaviour_log_ratio=3.0)))
    2.0
    """

    cap: Parameter = parameter(2.0, above=0)

    def weight(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        return minimum(_behaviour_ratio(context), self.cap)


@dataclass(frozen=True)
class IcePop(
    Gate, name="icepop", number="8, 64", family="gate", requires=["behaviour_log_ratio"],
    reference="IcePop; verl, slime, NeMo-RL, OpenRLHF",
):  # fmt: skip
    """c = pi_old / pi_behaviour within [floor, cap], 0 outside.

    >>> gate = IcePop()
    >>> float(gate.weight(0.0, 1.0, Context(behaviour_log_ratio=3.0)))
    0.0
    """

    floor: Parameter = parameter(0.5, at_least=0)
    cap: Parameter = parameter(5.0, above=0)

    def weight(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        c = _behaviour_ratio(context)
        return where((c < self.floor) | (c > self.cap), 0.0, c)


@dataclass(frozen=True)
class Discount(Gate, family="gate", requires=["age"], reference="age-conditioned, KLip-PPO sec. 5"):
    """c = factor^age: older samples pull less.

    >>> float(Discount(factor=0.5).weight(0.0, 1.0, Context(age=2.0)))
    0.25
    """

    factor: Parameter = parameter(0.9, above=0)

    def weight(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        return self.factor**context.age


@dataclass(frozen=True)
class MaxAge(Gate, family="gate", requires=["age"], reference="staleness filters; AReaL, verl"):
    """c = 1 up to an age of `limit` updates, 0 beyond.

    >>> float(MaxAge(limit=4).weight(0.0, 1.0, Context(age=5.0)))
    0.0
    """

    limit: Parameter = parameter(4.0, at_least=0)

    def weight(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        return where(context.age > self.limit, 0.0, 1.0, like=log_ratio)


def _behaviour_ratio(context: Context) -> Any:
    return exp(context.behaviour_log_ratio)
