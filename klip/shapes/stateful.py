"""Regions that look at more than the ratio: the state's KL, the old probability, position, age."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.backend import (
    Array,
    cast,
    exp,
    log,
    maximum,
    minimum,
    sqrt,
    stop_gradient,
    where,
)
from klip.shapes.context import NO_CONTEXT, Context
from klip.shapes.hard import PerSample, smaller_pull
from klip.shapes.sample import Sample
from klip.shapes.shape import Band, Edges, Shape
from klip.shapes.soft import Ramp
from klip.shapes.thresholds import ByAge, ByPosition
from klip.shapes.value import Parameter, parameter

TRULY = "Truly PPO, Wang et al. 2020, arXiv:1903.07940"
DPPO = "DPPO, arXiv:2602.04879"
TINY = 1e-30  # keeps logarithms and quotients of vanishing probabilities finite


@dataclass(frozen=True)
class _StateRegion(Shape, abstract=True):
    """A shape that acts where the state's KL has reached `delta` and A pushes further out."""

    knob = ("delta",)
    family = "state KL"
    requires = ("kl",)

    delta: Parameter = parameter(0.03, at_least=0)

    def triggered(self, s: Sample) -> Array:
        """KL(state) >= delta and (w-1)A > 0."""
        return (s.kl >= self.delta) & ((s.w - 1) * s.advantage > 0)


@dataclass(frozen=True)
class TRPPO(_StateRegion):
    """m = 0 where KL(state) >= delta and (w-1)A > 0, wA elsewhere.

    >>> float(TRPPO().multiplier(0.1, 1.0, Context(kl=0.05)))
    0.0
    """

    name = "tr-ppo"
    number = "13"
    reference = TRULY

    delta: Parameter = parameter(0.035, at_least=0)

    def multiplier(self, s: Sample) -> Array:
        return where(self.triggered(s), 0.0, s.w * s.advantage)

    def objective(self, s: Sample) -> Array:
        pull = s.w * s.advantage
        return where(self.triggered(s), stop_gradient(pull), pull)


@dataclass(frozen=True)
class TRPPORB(_StateRegion):
    """m = -alpha wA where KL(state) >= delta and (w-1)A > 0, wA elsewhere.

    >>> round(float(TRPPORB().multiplier(0.1, 1.0, Context(kl=0.05))), 4)
    -0.0553
    """

    name = "tr-ppo-rb"
    number = "14"
    reference = TRULY

    alpha: Parameter = parameter(0.05, at_least=0)

    def multiplier(self, s: Sample) -> Array:
        pull = s.w * s.advantage
        return where(self.triggered(s), -self.alpha * pull, pull)

    def objective(self, s: Sample) -> Array:
        back = (1 + self.alpha) * s.advantage - self.alpha * s.w * s.advantage
        return where(self.triggered(s), back, s.w * s.advantage)


@dataclass(frozen=True)
class TrulyPPO(_StateRegion):
    """J = wA - alpha KL(state) where KL(state) >= delta and (w-1)A > 0, wA elsewhere.

    The KL is the closed form, through `kl_weight`; `estimator="k3"` replaces it with the sampled
    w - 1 - log w, and then m = wA - alpha (w-1) there.

    >>> float(TrulyPPO().kl_weight(0.1, 1.0, Context(kl=0.05)))
    5.0
    """

    number = "15"
    reference = TRULY

    alpha: Parameter = parameter(5.0, at_least=0)
    estimator: str = parameter("closed-form", choices=("closed-form", "k3"))

    def multiplier(self, s: Sample) -> Array:
        if self.estimator == "closed-form":
            return s.w * s.advantage
        braked = s.w * s.advantage - self.alpha * (s.w - 1)
        return where(self.triggered(s), braked, s.w * s.advantage)

    def objective(self, s: Sample) -> Array:
        if self.estimator == "closed-form":
            return s.w * s.advantage
        penalty = self.alpha * (s.w - 1 - s.log_w)
        return s.w * s.advantage - where(self.triggered(s), penalty, 0.0)

    def kl_weight(self, s: Sample) -> Array | None:
        if self.estimator != "closed-form":
            return None
        return where(self.triggered(s), self.alpha + 0.0 * s.log_w, 0.0)


class _Masked(Shape, abstract=True):
    """m = wA, 0 for some samples, chosen by the old probability of their action."""

    family = "old probability"
    requires = ("old_log_prob",)

    delta: Parameter

    def dropped(self, s: Sample) -> Array:
        """Which samples have no gradient."""
        raise NotImplementedError

    def multiplier(self, s: Sample) -> Array:
        return where(self.dropped(s), 0.0, s.w * s.advantage)

    def objective(self, s: Sample) -> Array:
        pull = s.w * s.advantage
        return where(self.dropped(s), stop_gradient(pull), pull)


class _BernoulliRegion(_Masked, abstract=True):
    """A shape that drops samples which A pushes beyond a Bernoulli KL of `delta`."""

    def dropped(self, s: Sample) -> Array:
        return (s.log_w * s.advantage > 0) & (bernoulli_kl(s) > self.delta)


def bernoulli_kl(s: Sample) -> Array:
    """KL of "this action or another", old from new: (1-p) log((1-p)/(1-pw)) - p log w."""
    p = minimum(exp(s.old_log_prob), 1.0)
    others = log(maximum(1 - p, TINY)) - log(maximum(1 - p * s.w, TINY))
    return (1 - p) * others - p * s.log_w


@dataclass(frozen=True)
class TRGPPO(_BernoulliRegion):
    """m = wA 1[not kill]: PPO-Clip between the two roots of Bernoulli-KL(p || pw) = delta.

    It is for discrete actions: p is the old probability of the action, and rare actions have wide
    bands. At p = 1/2 and delta = 0.03 the band is [0.759, 1.241].

    >>> half = Context(old_log_prob=-0.6931)
    >>> [round(float(TRGPPO().multiplier(x, 1.0, half)), 3) for x in (0.21, 0.22)]
    [1.234, 0.0]
    """

    knob = ("delta",)
    number = "16"
    reference = "Wang et al. 2019, arXiv:1901.10314"

    delta: Parameter = parameter(0.03, above=0)


@dataclass(frozen=True)
class DPPOKL(_BernoulliRegion):
    """m = wA unless Bernoulli-KL(p || pw) > delta on the side that A pushes to: then 0.

    >>> half = Context(old_log_prob=-0.6931)
    >>> [round(float(DPPOKL().multiplier(x, 1.0, half)), 3) for x in (0.26, 0.27)]
    [1.297, 0.0]
    """

    knob = ("delta",)
    name = "dppo-kl"
    number = "31"
    reference = DPPO

    delta: Parameter = parameter(0.05, above=0)


@dataclass(frozen=True)
class DPPOTV(_Masked):
    """m = wA unless the probability moved by more than delta where A pushes it: then 0.

    >>> rare = Context(old_log_prob=-3.0)
    >>> round(float(DPPOTV().multiplier(1.0, 1.0, rare)), 3)
    2.718
    """

    knob = ("delta",)
    name = "dppo-tv"
    number = "31"
    reference = DPPO

    delta: Parameter = parameter(0.2, above=0)

    def dropped(self, s: Sample) -> Array:
        moved = exp(s.old_log_prob) * (s.w - 1)
        above = (s.advantage > 0) & (moved > self.delta)
        return above | ((s.advantage < 0) & (moved < -self.delta))


@dataclass(frozen=True)
class DCPO(Band):
    """PPO-Clip within [1/2 + sqrt(max(1 - 4 low/q, 0))/2, 1/2 + sqrt(1 + 4 high/q)/2], q the old
    probability; for A < 0 also m = 0 beyond `cap`.

    >>> rare = Context(old_log_prob=-3.0)
    >>> [round(float(DCPO().multiplier(x, 1.0, rare)), 3) for x in (0.9, 1.0)]
    [2.46, 0.0]
    """

    number = "32"
    family = "old probability"
    reference = "arXiv:2509.02333"
    requires = ("old_log_prob",)
    default_band = (0.16, 0.2)

    cap: Parameter = parameter(10.0, above=1)

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        return self.at(context, like)._range(context.old_log_prob)

    def multiplier(self, s: Sample) -> Array:
        lower, upper = self._range(s.old_log_prob)
        above = (s.advantage > 0) & (s.w > upper)
        below = (s.advantage < 0) & ((s.w < lower) | (s.w > self.cap))
        return where(above | below, 0.0, s.w * s.advantage)

    def objective(self, s: Sample) -> Array:
        clipped = smaller_pull(s, *self._range(s.old_log_prob))
        return where(s.advantage < 0, maximum(clipped, self.cap * s.advantage), clipped)

    def _range(self, old_log_prob: Array) -> Edges:
        q = maximum(exp(old_log_prob), TINY)
        bottom, top = self.edges
        lower = 0.5 + 0.5 * sqrt(maximum(1 - 4 * (1 - bottom) / q, 0.0))
        return lower, 0.5 + 0.5 * sqrt(1 + 4 * (top - 1) / q)


@dataclass(frozen=True)
class PositionAware(Shape):
    """The linear ramp, its radius and width moving along the sequence: soft and wide at the
    start (the reasoning), sharp and narrow at the end (the answer).

    >>> token = lambda t: Context(position=t, length=11.0)
    >>> [round(float(PositionAware().multiplier(0.25, 1.0, token(t))), 3) for t in (0.0, 10.0)]
    [1.284, 0.0]
    """

    knob = ("eps_start", "eps_end")
    family = "position and age"
    reference = "KLip-PPO, section 5"
    requires = ("position", "length")

    eps_start: Parameter = parameter(0.3, above=0)
    eps_end: Parameter = parameter(0.1, above=0)
    width_start: Parameter = parameter(0.1, at_least=0)
    width_end: Parameter = parameter(0.0, at_least=0)

    @property
    def region(self) -> Ramp:
        """The ramp with its radius and its width by position."""
        eps = ByPosition(self.eps_start, self.eps_end)
        return Ramp(eps=eps, width=ByPosition(self.width_start, self.width_end))

    def multiplier(self, s: Sample) -> Array:
        return self.region.multiplier(s)

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        return self.region.band(context, like)


@dataclass(frozen=True)
class AgeConditioned(Shape):
    """m = discount^age m_clip, the radius of the clip halving every `half_life` updates.

    A fresh sample meets PPO-Clip; an old one meets a narrower region and, with `discount` < 1, has
    a smaller weight.

    >>> [float(AgeConditioned().multiplier(0.1, 1.0, Context(age=a))) > 0 for a in (0.0, 8.0)]
    [True, False]
    """

    knob = ("eps",)
    family = "position and age"
    reference = "KLip-PPO, section 5"
    requires = ("age",)

    eps: Parameter = parameter(0.2, above=0)
    half_life: Parameter = parameter(4.0, above=0)
    floor: Parameter = parameter(0.0, at_least=0)
    discount: Parameter = parameter(1.0, above=0)

    @property
    def region(self) -> PerSample:
        """The clip with its radius by age."""
        return PerSample(eps=ByAge(self.eps, self.half_life, self.floor))

    def multiplier(self, s: Sample) -> Array:
        return cast(self.discount**s.age, s.log_w) * self.region.multiplier(s)

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        return self.region.band(context, like)
