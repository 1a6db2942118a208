"""Regions that look at more than the ratio: the state's KL, position, age."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.backend import Array, cast, exp, maximum, stop_gradient, where
from klip.shapes.context import NO_CONTEXT, Context
from klip.shapes.hard import PerSample, smaller_pull
from klip.shapes.sample import Sample
from klip.shapes.shape import Shape
from klip.shapes.soft import Ramp
from klip.shapes.thresholds import ByAge, ByPosition
from klip.shapes.value import Parameter, parameter

TRULY = "Truly PPO, Wang et al. 2020, arXiv:1903.07940"


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
class CTPO(Shape):
    """PPO-Clip in log w within [-log_low t^power, log_high t^power], t = 1, 2, ... the position;
    for A < 0 also m = 0 above log_cap t^power.

    As published, w is the ratio of all tokens up to t, whose logarithm spreads as sqrt(t):
    `token_loss(shape="ctpo", level="prefix-sum")`. Its other form has their geometric mean, which
    narrows: `level="prefix-mean"` with `power=-0.5`.

    >>> at = lambda t: Context(position=t - 1.0)
    >>> [round(float(CTPO().multiplier(0.2, 1.0, at(t))), 3) for t in (15.0, 17.0)]
    [0.0, 1.221]
    """

    knob = ("log_low", "log_high", "log_cap")
    number = "90"
    family = "position and age"
    reference = "CTPO, arXiv:2605.07331"
    requires = ("position",)

    log_low: Parameter = parameter(0.025, above=0)
    log_high: Parameter = parameter(0.05, above=0)
    log_cap: Parameter = parameter(0.05, above=0)
    power: Parameter = parameter(0.5)

    def multiplier(self, s: Sample) -> Array:
        wide = self._scale(s.context)
        above = (s.advantage > 0) & (s.log_w > self.log_high * wide)
        out = (s.log_w < -self.log_low * wide) | (s.log_w > self.log_cap * wide)
        return where(above | ((s.advantage < 0) & out), 0.0, s.w * s.advantage)

    def objective(self, s: Sample) -> Array:
        wide = self._scale(s.context)
        clipped = smaller_pull(s, exp(-self.log_low * wide), exp(self.log_high * wide))
        cap = exp(self.log_cap * wide)
        return where(s.advantage < 0, maximum(clipped, cap * s.advantage), clipped)

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        own = self.at(context, like)
        wide = cast(own._scale(context), like)
        return exp(-own.log_low * wide), exp(own.log_high * wide)

    def _scale(self, context: Context) -> Array:
        return (context.position + 1.0) ** self.power


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
