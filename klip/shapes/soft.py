"""Soft clips, rollbacks and saturating gates: the step of PPO-Clip, relaxed."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.backend import (
    Array,
    absolute,
    clip,
    exp,
    log,
    log1p,
    maximum,
    minimum,
    sech2,
    sigmoid,
    sign,
    tanh,
    where,
)
from klip.shapes.sample import Sample
from klip.shapes.shape import Band, Shape
from klip.shapes.value import Parameter, ParameterError, parameter

KLIP = "KLip-PPO, section 5"
NARROW = 1e-25  # replaces a width of 0: d / NARROW is 0 at d = 0 and beyond 1 for any d > 0


@dataclass(frozen=True)
class Ramp(Band):
    """m = wA (1-g), g = clip(d/width, 0, 1), d the overshoot: the linear ramp.

    >>> [round(float(Ramp().multiplier(x, 1.0)), 3) for x in (0.0, 0.2, 0.25)]
    [1.0, 0.699, 0.0]
    """

    number = "9"
    family = "soft clip"
    reference = KLIP

    width: Parameter = parameter(0.05, at_least=0, softness=True)

    def multiplier(self, s: Sample) -> Array:
        g = clip(self.overshoot(s) / maximum(self.width, NARROW), 0.0, 1.0)
        return s.w * s.advantage * (1 - g)


@dataclass(frozen=True)
class Asymmetric(Band):
    """m = wA (1-g): a ramp of its own width on either side of the band; width 0 is the step.

    By default it is soft below (A < 0, w < 1), where beta > 0 raises log pi and so pulls the policy
    back to what the rollout did, and sharp above (A > 0, w > 1), where beta < 0 pushes it away.

    >>> [round(float(Asymmetric().multiplier(*x)), 3) for x in ((0.2, 1.0), (-0.25, -1.0))]
    [0.0, -0.449]
    """

    family = "soft clip"
    reference = KLIP

    width_below: Parameter = parameter(0.05, at_least=0)
    width_above: Parameter = parameter(0.0, at_least=0)

    def multiplier(self, s: Sample) -> Array:
        width = where(s.advantage > 0, self.width_above, self.width_below, like=s.w)
        g = clip(self.overshoot(s) / maximum(width, NARROW), 0.0, 1.0)
        return s.w * s.advantage * (1 - g)


@dataclass(frozen=True)
class SigmoidGate(Band):
    """m = wA sigma(-d/temperature), d the overshoot. At w = 1 it is not A but 0.982 A.

    >>> round(float(SigmoidGate().multiplier(0.0, 1.0)), 3)
    0.982
    """

    number = "10"
    family = "soft clip"
    reference = "KLip-PPO, reference code"

    temperature: Parameter = parameter(0.05, above=0, softness=True)

    def multiplier(self, s: Sample) -> Array:
        return s.w * s.advantage * sigmoid(-self.overshoot(s) / self.temperature)


@dataclass(frozen=True)
class SoftMin(Band):
    """J = -|A| t log(e^(-u/t) + e^(-c/t)), u = w sgn A, c = clip(w) sgn A, t the temperature.

    In the band m = wA; outside m = wA sigma((c-u)/t), of which half is gone at either edge.

    >>> [round(float(SoftMin().multiplier(x, 1.0)), 3) for x in (0.18, 0.19, 0.5)]
    [1.197, 0.549, 0.0]
    """

    number = "11"
    family = "soft clip"
    reference = "KLip-PPO, reference code"

    temperature: Parameter = parameter(0.05, above=0, softness=True)

    def multiplier(self, s: Sample) -> Array:
        bottom, top = self.edges
        gap = sign(s.advantage) * (clip(s.w, bottom, top) - s.w)
        softened = s.w * s.advantage * sigmoid(gap / self.temperature)
        return where((s.w < bottom) | (s.w > top), softened, s.w * s.advantage)

    def objective(self, s: Sample) -> Array:
        u, c = s.w * sign(s.advantage), clip(s.w, *self.edges) * sign(s.advantage)
        smoothing = self.temperature * log1p(exp(-absolute(u - c) / self.temperature))
        return absolute(s.advantage) * (minimum(u, c) - smoothing)


@dataclass(frozen=True)
class PPORB(Band):
    """m = -alpha wA on the kill set, wA elsewhere: PPO with rollback.

    >>> round(float(PPORB(alpha=0.3).multiplier(0.5, 1.0)), 4)
    -0.4946
    """

    name = "ppo-rb"
    number = "12"
    family = "rollback"
    reference = "Truly PPO, Wang et al. 2020, arXiv:1903.07940"

    alpha: Parameter = parameter(0.3, at_least=0)

    def multiplier(self, s: Sample) -> Array:
        pull = s.w * s.advantage
        return where(self.killed(s), -self.alpha * pull, pull)

    def objective(self, s: Sample) -> Array:
        bottom, top = self.edges
        edge = where(s.advantage > 0, top, bottom, like=s.advantage)
        back = -self.alpha * s.w * s.advantage + (1 + self.alpha) * edge * s.advantage
        return where(self.killed(s), back, s.w * s.advantage)


@dataclass(frozen=True)
class SPO(Shape):
    """J = wA - |A| (w-1)^2 / (2 eps), m = w (A - |A| (w-1)/eps).

    >>> round(float(SPO(eps=0.2).multiplier(0.5, 1.0)), 4)
    -3.6991
    """

    knob = ("eps",)
    number = "18"
    family = "rollback"
    reference = "Xie et al. 2025, arXiv:2401.16025; CFPO, arXiv:2601.22801"

    eps: Parameter = parameter(0.2, above=0)

    def multiplier(self, s: Sample) -> Array:
        return s.w * (s.advantage - absolute(s.advantage) * (s.w - 1) / self.eps)

    def objective(self, s: Sample) -> Array:
        return s.w * s.advantage - absolute(s.advantage) * (s.w - 1) ** 2 / (2 * self.eps)


@dataclass(frozen=True)
class PSPO(Shape):
    """J = ((1-alpha) w + alpha) A, m = (1-alpha) wA: the unconstrained surrogate, rescaled.

    >>> float(PSPO(alpha=0.1).multiplier(0.0, 1.0))
    0.9
    """

    knob = ("alpha",)
    number = "19"
    family = "soft clip"
    reference = "Dwyer et al. 2025, arXiv:2509.21282"

    alpha: Parameter = parameter(0.1, at_least=0)

    def multiplier(self, s: Sample) -> Array:
        return (1 - self.alpha) * s.w * s.advantage

    def objective(self, s: Sample) -> Array:
        return ((1 - self.alpha) * s.w + self.alpha) * s.advantage


@dataclass(frozen=True)
class _Saturating(Shape, abstract=True):
    """J = (4/tau) sigma(tau (w-1)) A."""

    family = "saturating gate"

    def tau_at(self, s: Sample) -> Array:
        """The steepness of each sample's gate."""
        raise NotImplementedError

    def multiplier(self, s: Sample) -> Array:
        x = self.tau_at(s) * (s.w - 1)
        return 4 * sigmoid(x) * sigmoid(-x) * s.w * s.advantage

    def objective(self, s: Sample) -> Array:
        tau = self.tau_at(s)
        return 4 / tau * sigmoid(tau * (s.w - 1)) * s.advantage


@dataclass(frozen=True)
class Scopic(_Saturating):
    """J = (4/tau) s A, s = sigma(tau (w-1)); m = 4 s (1-s) wA.

    >>> round(float(Scopic(tau=4.0).multiplier(0.5, 1.0)), 4)
    0.4263
    """

    knob = ("tau",)
    number = "21"
    reference = "Chen et al. 2022, arXiv:2205.10047"

    tau: Parameter = parameter(4.0, above=0)

    def tau_at(self, s: Sample) -> Array:
        return self.tau


@dataclass(frozen=True)
class P3O(_Saturating):
    """J = (4/tau) sigma(tau (w-1)) A - b KL(state): Scopic with a closed-form KL.

    >>> float(P3O().kl_weight(0.0, 1.0))
    0.1
    """

    knob = ("tau",)
    name = "p3o"
    number = "21"
    reference = "Chen et al. 2022, arXiv:2205.10047"

    tau: Parameter = parameter(4.0, above=0)
    b: Parameter = parameter(0.1, at_least=0)

    def tau_at(self, s: Sample) -> Array:
        return self.tau

    def kl_weight(self, s: Sample) -> Array:
        return self.b + 0.0 * s.log_w


@dataclass(frozen=True)
class SAPO(_Saturating):
    """J = (4/tau) sigma(tau (w-1)) A, with a tau for each sign of A: Scopic, per sign.

    >>> round(float(SAPO().multiplier(0.5, -1.0)), 4)
    -1.4714
    """

    knob = ("tau_positive", "tau_negative")
    number = "22"
    reference = "Qwen, arXiv:2511.20347"

    tau_positive: Parameter = parameter(1.0, above=0)
    tau_negative: Parameter = parameter(1.05, above=0)

    def tau_at(self, s: Sample) -> Array:
        return where(s.advantage > 0, self.tau_positive, self.tau_negative, like=s.advantage)


@dataclass(frozen=True)
class DPODrift(Shape):
    """J = wA - drift; A >= 0: ReLU(x - alpha tanh(x/alpha)), x = (w-1)A; A < 0: likewise with
    x = A log w and b. So m = wA sech^2(x/alpha) for A >= 0, w > 1, and A (w - tanh^2(x/b)) for
    A < 0, w < 1; wA elsewhere.

    >>> round(float(DPODrift().multiplier(-0.7, -1.0)), 4)
    0.1811
    """

    knob = ("alpha",)
    name = "dpo-drift"
    number = "23"
    family = "rollback"
    reference = "Discovered Policy Optimisation, Lu et al. 2022, arXiv:2210.05639"

    alpha: Parameter = parameter(2.0, above=0)
    b: Parameter = parameter(0.6, above=0)

    def multiplier(self, s: Sample) -> Array:
        pull = s.w * s.advantage
        good = where(s.w > 1, pull * sech2((s.w - 1) * s.advantage / self.alpha), pull)
        brake = tanh(s.log_w * s.advantage / self.b)
        bad = where(s.w < 1, s.advantage * (s.w - brake * brake), pull)
        return where(s.advantage >= 0, good, bad)

    def objective(self, s: Sample) -> Array:
        up, down = (s.w - 1) * s.advantage, s.log_w * s.advantage
        good = maximum(up - self.alpha * tanh(up / self.alpha), 0.0)
        bad = maximum(down - self.b * tanh(down / self.b), 0.0)
        return s.w * s.advantage - where(s.advantage >= 0, good, bad)


@dataclass(frozen=True)
class ANO(Shape):
    """m = w G'(w) A for A > 0, w G'(2-w) A for A < 0; G'(x) = push nu (1-E) / ((1+E)(E+nu)),
    E = e^(a (x-1-eps)).

    G' is `push` far below 1, 1 at x = 1, 0 at 1 + eps, and never less than -`pull`; these fix nu
    and a.

    >>> [round(float(ANO().multiplier(x, 1.0)), 3) for x in (0.0, 0.5)]
    [1.0, -2.173]
    """

    knob = ("eps",)
    number = "25"
    family = "rollback"
    reference = "Redescending gain fields, arXiv:2605.02320"

    eps: Parameter = parameter(0.2, above=0)
    push: Parameter = parameter(10.0, above=1)
    pull: Parameter = parameter(1.5, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pull >= self.push:
            raise ParameterError(f"ano: pull={self.pull} must be less than push={self.push}")

    def multiplier(self, s: Sample) -> Array:
        return s.w * self._gain(where(s.advantage > 0, s.w, 2 - s.w)) * s.advantage

    def _gain(self, x: Array) -> Array:
        """G'(x), written in e^-|t| so that neither tail overflows."""
        nu, a = self._constants()
        t = a * (x - 1 - self.eps)
        q = exp(-absolute(t))
        rising = (1 - q) / ((1 + q) * (q + nu))  # t <= 0: E = q
        falling = (q - 1) * q / ((1 + q) * (1 + nu * q))  # t > 0: E = 1/q
        return self.push * nu * where(t > 0, falling, rising)

    def _constants(self) -> tuple[Array, Array]:
        """Nu from min G' = -pull, then a from G'(1) = 1; both are roots of quadratics."""
        k = self.pull / self.push
        s = (4 * k + (16 * k**2 + 4 * (1 - k) * (2 + 4 * k)) ** 0.5) / (2 * (1 - k))
        nu = s**2 / 2 - 1
        half = (1 + nu + self.push * nu) / 2
        e = -half + (half**2 + (self.push - 1) * nu) ** 0.5
        return nu, -log(e) / self.eps
