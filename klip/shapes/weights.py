"""Gradient-preserving clips and truncated weights: m = omega(w) A, with omega detached."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.backend import Array, clip, minimum, ratio, stop_gradient, where
from klip.shapes.context import NO_CONTEXT, Context
from klip.shapes.shape import Band, Shape
from klip.shapes.value import Parameter, parameter


@dataclass(frozen=True)
class CISPO(
    Shape, name="cispo", number="29", family="weight",
    reference="MiniMax-M1, arXiv:2506.13585; ScaleRL, arXiv:2510.13786",
):  # fmt: skip
    """m = clip(w, floor, cap) A.

    `floor` and `cap` are ratios, not offsets from 1: TRL's `epsilon_high` is `cap`, verl's and
    SkyRL's `1 + clip_ratio_high` is `cap`.

    >>> float(CISPO(cap=5.0).multiplier(3.0, 1.0))
    5.0
    """

    cap: Parameter = parameter(5.0, above=0)
    floor: Parameter = parameter(0.0, at_least=0)

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        return clip(ratio(log_ratio), self.floor, self.cap) * advantage

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        weight = clip(ratio(log_ratio), self.floor, self.cap)
        return stop_gradient(weight) * advantage * log_ratio


@dataclass(frozen=True)
class TIS(
    Shape, name="tis", number="30", family="weight",
    reference="V-trace, arXiv:1802.01561; AIPO, arXiv:2505.24034",
):  # fmt: skip
    """m = min(w, cap) A.

    >>> float(TIS(cap=1.0).multiplier(3.0, 1.0))
    1.0
    """

    cap: Parameter = parameter(1.0, above=0)

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        return minimum(ratio(log_ratio), self.cap) * advantage

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        weight = minimum(ratio(log_ratio), self.cap)
        return stop_gradient(weight) * advantage * log_ratio


@dataclass(frozen=True)
class GPPO(
    Band, name="gppo", number="33", family="weight", band=(0.2, 0.28),
    reference="arXiv:2508.07629",
):  # fmt: skip
    """m = edge A on the kill set, wA elsewhere: the clip bounds the pull and keeps it.

    >>> float(GPPO().multiplier(3.0, 1.0))
    1.28
    """

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        w = ratio(log_ratio)
        bottom, top = self.edges
        kept = where(advantage > 0, top, bottom, like=w)
        return where(self.killed(w, advantage), kept, w) * advantage

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        w = ratio(log_ratio)
        bottom, top = self.edges
        rescaled = where(advantage > 0, top, bottom, like=advantage) / stop_gradient(w) * w
        return where(self.killed(w, advantage), rescaled, w) * advantage


@dataclass(frozen=True)
class ASPO(Band, name="aspo", number="35", family="weight", reference="arXiv:2510.06062"):
    """A > 0: m = A min(1/w, cap), 0 for w > 1+high; A < 0: m = A min(w, cap), 0 for w < 1-low.

    The published radius is 0.2 at low entropy and 0.4 at high: `ASPO(eps=ByEntropy(0.2, 0.4))`.

    >>> float(ASPO().multiplier(-3.0, 1.0))
    3.0
    """

    cap: Parameter = parameter(3.0, above=0)

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        w = ratio(log_ratio)
        weight = minimum(where(advantage > 0, 1 / w, w), self.cap)
        return where(self.killed(w, advantage), 0.0, weight * advantage)


@dataclass(frozen=True)
class TOPR(Shape, name="topr", number="36", family="weight", reference="arXiv:2503.14286"):
    """m = A for good samples, min(w, 1) A for the others.

    What is good is told by the advantage, or as published by the sign of the reward
    (`sign="reward"`, which needs that context).

    >>> [float(TOPR().multiplier(3.0, a)) for a in (2.0, -2.0)]
    [2.0, -2.0]
    """

    sign: str = parameter("advantage", choices=("advantage", "reward"))

    @property
    def needs(self) -> frozenset[str]:
        """`reward`, if that tells good from bad."""
        return frozenset({"reward"} if self.sign == "reward" else ())

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        good = (context.reward if self.sign == "reward" else advantage) > 0
        return where(good, 1.0, minimum(ratio(log_ratio), 1.0)) * advantage

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        good = (context.reward if self.sign == "reward" else advantage) > 0
        truncated = stop_gradient(minimum(ratio(log_ratio), 1.0)) * advantage * log_ratio
        return where(good, advantage * log_ratio, truncated)
