"""Hard and rollback regions that look at more than the ratio: the state's KL, the old
probability, the place in the sequence, the age.
"""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.backend import (
    Array,
    cast,
    clip,
    exp,
    log,
    maximum,
    minimum,
    ratio,
    sqrt,
    stop_gradient,
    where,
)
from klip.shapes.context import NO_CONTEXT, Context
from klip.shapes.hard import PerSample, smaller_pull
from klip.shapes.shape import Band, Shape
from klip.shapes.soft import Ramp
from klip.shapes.thresholds import ByAge, ByPosition
from klip.shapes.value import Parameter, parameter

TRULY = "Truly PPO, Wang et al. 2020, arXiv:1903.07940"
DPPO = "DPPO, arXiv:2602.04879"
TINY = 1e-30  # keeps logarithms and quotients of vanishing probabilities finite


def _triggered(w: Array, advantage: Array, kl: Array, delta: Array) -> Array:
    """The state has left the region, and this sample pushes further out."""
    return (kl >= delta) & ((w - 1) * advantage > 0)


@dataclass(frozen=True)
class TRPPO(Shape, name="tr-ppo", number="13", family="state KL", requires=["kl"], reference=TRULY):
    """m = 0 where KL(state) >= delta and (w-1)A > 0, wA elsewhere.

    >>> float(TRPPO().multiplier(0.1, 1.0, Context(kl=0.05)))
    0.0
    """

    delta: Parameter = parameter(0.035, at_least=0)

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        w = ratio(log_ratio)
        return where(_triggered(w, advantage, context.kl, self.delta), 0.0, w * advantage)

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        w = ratio(log_ratio)
        pull = w * advantage
        out = _triggered(w, advantage, context.kl, self.delta)
        return where(out, stop_gradient(pull), pull)


@dataclass(frozen=True)
class TRPPORB(
    Shape, name="tr-ppo-rb", number="14", family="state KL", requires=["kl"], reference=TRULY
):
    """m = -alpha wA where KL(state) >= delta and (w-1)A > 0, wA elsewhere.

    >>> round(float(TRPPORB().multiplier(0.1, 1.0, Context(kl=0.05))), 4)
    -0.0553
    """

    delta: Parameter = parameter(0.03, at_least=0)
    alpha: Parameter = parameter(0.05, at_least=0)

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        w = ratio(log_ratio)
        pull = w * advantage
        out = _triggered(w, advantage, context.kl, self.delta)
        return where(out, -self.alpha * pull, pull)

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        w = ratio(log_ratio)
        out = _triggered(w, advantage, context.kl, self.delta)
        back = (1 + self.alpha) * advantage - self.alpha * w * advantage
        return where(out, back, w * advantage)


@dataclass(frozen=True)
class TrulyPPO(
    Shape, name="truly-ppo", number="15", family="state KL", requires=["kl"], reference=TRULY
):
    """J = wA - alpha KL(state) where KL(state) >= delta and (w-1)A > 0, wA elsewhere.

    The KL is the closed form, through the second channel; `estimator="k3"` puts the sampled
    stand-in w - 1 - log w in its place, and then m = wA - alpha (w-1) there.

    >>> float(TrulyPPO().kl_weight(0.1, 1.0, Context(kl=0.05)))
    5.0
    """

    delta: Parameter = parameter(0.03, at_least=0)
    alpha: Parameter = parameter(5.0, at_least=0)
    estimator: str = parameter("closed-form", choices=("closed-form", "k3"))

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        w = ratio(log_ratio)
        if self.estimator == "closed-form":
            return w * advantage
        out = _triggered(w, advantage, context.kl, self.delta)
        return where(out, w * advantage - self.alpha * (w - 1), w * advantage)

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        w = ratio(log_ratio)
        if self.estimator == "closed-form":
            return w * advantage
        out = _triggered(w, advantage, context.kl, self.delta)
        return w * advantage - where(out, self.alpha * (w - 1 - log_ratio), 0.0)

    def kl_weight(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array | None:
        if self.estimator != "closed-form":
            return None
        out = _triggered(ratio(log_ratio), advantage, context.kl, self.delta)
        return where(out, self.alpha + 0.0 * log_ratio, 0.0)


def bernoulli_kl(log_ratio: Array, old_log_prob: Array) -> Array:
    """KL of "this action or another", old from new: (1-p) log((1-p)/(1-pw)) - p log w."""
    p = minimum(exp(old_log_prob), 1.0)
    others = log(maximum(1 - p, TINY)) - log(maximum(1 - p * ratio(log_ratio), TINY))
    return (1 - p) * others - p * log_ratio


class _Masked(Shape, abstract=True):
    """wA, with some samples dropped."""

    def dropped(self, log_ratio: Array, advantage: Array, context: Context) -> Array:
        raise NotImplementedError

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        out = self.dropped(log_ratio, advantage, context)
        return where(out, 0.0, ratio(log_ratio) * advantage)

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        pull = ratio(log_ratio) * advantage
        return where(self.dropped(log_ratio, advantage, context), stop_gradient(pull), pull)


class _BernoulliRegion(_Masked, abstract=True, requires=["old_log_prob"]):
    """Drops what the advantage pushes beyond a Bernoulli KL of `delta`."""

    delta: Parameter

    def dropped(self, log_ratio: Array, advantage: Array, context: Context) -> Array:
        outward = log_ratio * advantage > 0
        return outward & (bernoulli_kl(log_ratio, context.old_log_prob) > self.delta)


@dataclass(frozen=True)
class TRGPPO(
    _BernoulliRegion, name="trgppo", number="16", family="old probability",
    reference="Wang et al. 2019, arXiv:1901.10314",
):  # fmt: skip
    """m = wA 1[not kill]: PPO-Clip between the two roots of Bernoulli-KL(p || pw) = delta.

    For discrete actions: p is the old probability of the action, and the rarer the action the
    wider the band. At p = 1/2 and delta = 0.03 it is [0.759, 1.241].

    >>> half = Context(old_log_prob=-0.6931)
    >>> [round(float(TRGPPO().multiplier(x, 1.0, half)), 3) for x in (0.21, 0.22)]
    [1.234, 0.0]
    """

    delta: Parameter = parameter(0.03, above=0)


@dataclass(frozen=True)
class DPPOKL(
    _BernoulliRegion, name="dppo-kl", number="31", family="old probability", reference=DPPO
):
    """m = wA unless Bernoulli-KL(p || pw) > delta on the side that A pushes to: then 0.

    >>> half = Context(old_log_prob=-0.6931)
    >>> [round(float(DPPOKL().multiplier(x, 1.0, half)), 3) for x in (0.26, 0.27)]
    [1.297, 0.0]
    """

    delta: Parameter = parameter(0.05, above=0)


@dataclass(frozen=True)
class DPPOTV(
    _Masked, name="dppo-tv", number="31", family="old probability", requires=["old_log_prob"],
    reference=DPPO,
):  # fmt: skip
    """m = wA unless the probability moved by more than delta where A pushes it: then 0.

    >>> rare = Context(old_log_prob=-3.0)
    >>> round(float(DPPOTV().multiplier(1.0, 1.0, rare)), 3)
    2.718
    """

    delta: Parameter = parameter(0.2, above=0)

    def dropped(self, log_ratio: Array, advantage: Array, context: Context) -> Array:
        moved = exp(context.old_log_prob) * (ratio(log_ratio) - 1)
        return ((advantage > 0) & (moved > self.delta)) | ((advantage < 0) & (moved < -self.delta))


@dataclass(frozen=True)
class DCPO(
    Band, name="dcpo", number="32", family="old probability", band=(0.16, 0.2),
    requires=["old_log_prob"], reference="arXiv:2509.02333",
):  # fmt: skip
    """PPO-Clip within [1/2 + sqrt(max(1 - 4 low/q, 0))/2, 1/2 + sqrt(1 + 4 high/q)/2], q the old
    probability; for A < 0 also m = 0 beyond `cap`.

    >>> rare = Context(old_log_prob=-3.0)
    >>> [round(float(DCPO().multiplier(x, 1.0, rare)), 3) for x in (0.9, 1.0)]
    [2.46, 0.0]
    """

    cap: Parameter = parameter(10.0, above=1)

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        w = ratio(log_ratio)
        lower, upper = self._range(context)
        above = (advantage > 0) & (w > upper)
        below = (advantage < 0) & ((w < lower) | (w > self.cap))
        return where(above | below, 0.0, w * advantage)

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        w = ratio(log_ratio)
        clipped = smaller_pull(w, clip(w, *self._range(context)), advantage)
        return where(advantage < 0, maximum(clipped, self.cap * advantage), clipped)

    def _range(self, context: Context) -> tuple[Array, Array]:
        q = maximum(exp(context.old_log_prob), TINY)
        bottom, top = self.edges
        lower = 0.5 + 0.5 * sqrt(maximum(1 - 4 * (1 - bottom) / q, 0.0))
        return lower, 0.5 + 0.5 * sqrt(1 + 4 * (top - 1) / q)


@dataclass(frozen=True)
class PositionAware(
    Shape, family="position and age", requires=["position", "length"],
    reference="KLip-PPO, section 5",
):  # fmt: skip
    """The linear ramp, its radius and width moving along the sequence: soft and wide at the
    start (the reasoning), sharp and narrow at the end (the answer).

    >>> token = lambda t: Context(position=t, length=11.0)
    >>> [round(float(PositionAware().multiplier(0.25, 1.0, token(t))), 3) for t in (0.0, 10.0)]
    [1.284, 0.0]
    """

    eps_start: Parameter = parameter(0.3, above=0)
    eps_end: Parameter = parameter(0.1, above=0)
    width_start: Parameter = parameter(0.1, at_least=0)
    width_end: Parameter = parameter(0.0, at_least=0)

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        ramp = Ramp(
            eps=ByPosition(self.eps_start, self.eps_end),
            width=ByPosition(self.width_start, self.width_end),
        )
        return ramp.multiplier(log_ratio, advantage, context)


@dataclass(frozen=True)
class AgeConditioned(
    Shape, family="position and age", requires=["age"], reference="KLip-PPO, section 5"
):
    """m = discount^age m_clip, the radius of the clip halving every `half_life` updates.

    A fresh sample meets PPO-Clip; an old one a narrower region and, if asked, a smaller weight.

    >>> [float(AgeConditioned().multiplier(0.1, 1.0, Context(age=a))) > 0 for a in (0.0, 8.0)]
    [True, False]
    """

    eps: Parameter = parameter(0.2, above=0)
    half_life: Parameter = parameter(4.0, above=0)
    floor: Parameter = parameter(0.0, at_least=0)
    discount: Parameter = parameter(1.0, above=0)

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        region = PerSample(eps=ByAge(self.eps, self.half_life, self.floor))
        weight = cast(self.discount**context.age, log_ratio)
        return weight * region.multiplier(log_ratio, advantage, context)
