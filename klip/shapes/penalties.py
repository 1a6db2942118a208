"""KL penalties and their relatives: log-space shapes anchored at the old policy."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.backend import (
    Array,
    absolute,
    clip,
    derivative,
    log,
    ratio,
    sign,
    sqrt,
    where,
)
from klip.shapes.sample import Sample
from klip.shapes.shape import Penalty, Shape
from klip.shapes.value import Parameter, parameter

PPO = "Schulman et al. 2017, arXiv:1707.06347"
RPG = "RPG, arXiv:2505.17508"


@dataclass(frozen=True)
class _KLPenalty(Penalty, abstract=True):
    """J = wA - b k, where k estimates a KL."""

    knob = ("b",)
    family = "KL penalty"

    b: Parameter = parameter(1.0, at_least=0)


@dataclass(frozen=True)
class KLk1(_KLPenalty):
    """beta = b: PPO-KL with the sampled -log w. m(1, A) = A + b: a gauge, not a pull.

    >>> float(KLk1(b=0.5).multiplier(0.0, 1.0))
    1.5
    """

    name = "kl-k1"
    number = "42"
    reference = PPO

    def beta(self, s: Sample) -> Array:
        return self.b + 0.0 * s.log_w

    def objective(self, s: Sample) -> Array:
        return s.w * s.advantage + self.b * s.log_w


@dataclass(frozen=True)
class KLk2(_KLPenalty):
    """beta = -b log w: PPO-KL with (log w)^2 / 2.

    >>> float(KLk2(b=0.5).beta(1.0, 1.0))
    -0.5
    """

    name = "kl-k2"
    number = "43"
    reference = "Hilton, arXiv:2110.00641"

    def beta(self, s: Sample) -> Array:
        return -self.b * s.log_w

    def objective(self, s: Sample) -> Array:
        return s.w * s.advantage - self.b * s.log_w * s.log_w / 2


@dataclass(frozen=True)
class KLk3(_KLPenalty):
    """beta = b (1-w): PPO-KL with w - 1 - log w. The same expectation as k1, and 0 at w = 1.

    >>> round(float(KLk3(b=0.5).beta(1.0, 1.0)), 4)
    -0.8591
    """

    name = "kl-k3"
    number = "44"
    reference = "RPG (UFKL), Schulman's k3"

    def beta(self, s: Sample) -> Array:
        return self.b * (1 - s.w)

    def objective(self, s: Sample) -> Array:
        return s.w * s.advantage - self.b * (s.w - 1 - s.log_w)


@dataclass(frozen=True)
class KLInverseK3(_KLPenalty):
    """beta = b (1/w - 1): the penalty 1/w - 1 + log w, k3 as GRPO writes it.

    It estimates KL(new || old) for samples of the new policy; on old ones it is a shape of its own.

    >>> round(float(KLInverseK3(b=0.5).beta(1.0, 1.0)), 4)
    -0.3161
    """

    name = "kl-inverse-k3"
    number = "56"
    reference = "GRPO, arXiv:2402.03300, with the old policy as its reference"

    def beta(self, s: Sample) -> Array:
        return self.b * (ratio(-s.log_w) - 1)

    def objective(self, s: Sample) -> Array:
        penalty = ratio(-s.log_w) - 1 + s.log_w
        return s.w * s.advantage - self.b * penalty


@dataclass(frozen=True)
class KL(_KLPenalty):
    """J = wA - b KL(state): PPO-KL with the closed form, through the second channel.

    >>> float(KL(b=0.5).kl_weight(1.0, 1.0))
    0.5
    """

    number = "45"
    reference = PPO

    def beta(self, s: Sample) -> Array:
        return 0.0 * s.log_w * s.advantage

    def objective(self, s: Sample) -> Array:
        return s.w * s.advantage

    def kl_weight(self, s: Sample) -> Array:
        return self.b + 0.0 * s.log_w


@dataclass(frozen=True)
class KLReverse(_KLPenalty):
    """beta = -b w (log w + 1): KL(new || old) by w log w. A gauge of kl-reverse-k3.

    >>> float(KLReverse(b=0.5).beta(0.0, 1.0))
    -0.5
    """

    name = "kl-reverse"
    number = "46"
    reference = RPG

    def beta(self, s: Sample) -> Array:
        return -self.b * s.w * (s.log_w + 1)

    def objective(self, s: Sample) -> Array:
        return s.w * s.advantage - self.b * s.w * s.log_w


@dataclass(frozen=True)
class KLReverseK3(_KLPenalty):
    """beta = -b w log w: KL(new || old) by w log w - w + 1. Equilibrium at w = e^(A/b).

    >>> round(float(KLReverseK3(b=0.5).beta(1.0, 1.0)), 4)
    -1.3591
    """

    name = "kl-reverse-k3"
    number = "47"
    reference = RPG + "; MDPO"

    def beta(self, s: Sample) -> Array:
        return -self.b * s.w * s.log_w

    def objective(self, s: Sample) -> Array:
        return s.w * s.advantage - self.b * (s.w * s.log_w - s.w + 1)


@dataclass(frozen=True)
class FDivergence(Penalty, abstract=True):
    """J = wA - b f(w), beta = -b w f'(w), with f(1) = f'(1) = 0.

    A class defines `f`; its derivative `slope` is automatic unless the class defines it too.
    """

    knob = ("b",)
    family = "f-divergence"

    b: Parameter = parameter(1.0, at_least=0)

    def f(self, w: Array) -> Array:
        """The generator."""
        raise NotImplementedError

    def slope(self, w: Array) -> Array:
        """f'(w)."""
        return derivative(self.f, w)

    def beta(self, s: Sample) -> Array:
        return -self.b * s.w * self.slope(s.w)

    def objective(self, s: Sample) -> Array:
        return s.w * s.advantage - self.b * self.f(s.w)


@dataclass(frozen=True)
class Chi2(FDivergence):
    """f = (w-1)^2, beta = -2 b w (w-1).

    >>> round(float(Chi2(b=0.5).beta(1.0, 1.0)), 4)
    -4.6708
    """

    number = "55"
    reference = "fRPO; chi-squared"

    def f(self, w: Array) -> Array:
        return (w - 1) * (w - 1)

    def slope(self, w: Array) -> Array:
        return 2 * (w - 1)


@dataclass(frozen=True)
class Hellinger2(FDivergence):
    """f = (sqrt(w) - 1)^2, beta = -b (w - sqrt(w)).

    >>> round(float(Hellinger2(b=0.5).beta(1.0, 1.0)), 4)
    -0.5348
    """

    number = "55"
    reference = "fRPO; squared Hellinger"

    def f(self, w: Array) -> Array:
        root = sqrt(w) - 1
        return root * root

    def slope(self, w: Array) -> Array:
        return 1 - 1 / sqrt(w)


@dataclass(frozen=True)
class TotalVariation(FDivergence):
    """f = |w-1| / 2, beta = -b w sgn(w-1) / 2.

    >>> round(float(TotalVariation(b=0.5).beta(1.0, 1.0)), 4)
    -0.6796
    """

    name = "tv"
    number = "55"
    reference = "fRPO; total variation"

    def f(self, w: Array) -> Array:
        return absolute(w - 1) / 2

    def slope(self, w: Array) -> Array:
        return sign(w - 1) / 2


@dataclass(frozen=True)
class SPMA(Shape):
    """J = A log w - (w - 1 - log w) / eta, m = A - (w-1)/eta.

    >>> round(float(SPMA(eta=1.0).multiplier(0.5, 1.0)), 4)
    0.3513
    """

    knob = ("eta",)
    number = "51"
    family = "log space"
    reference = "arXiv:2411.12042"

    eta: Parameter = parameter(1.0, above=0)

    def multiplier(self, s: Sample) -> Array:
        return s.advantage - (s.w - 1) / self.eta

    def objective(self, s: Sample) -> Array:
        return s.advantage * s.log_w - (s.w - 1 - s.log_w) / self.eta


@dataclass(frozen=True)
class SPMAk1(Shape):
    """J = A log w + log w / eta, m = A + 1/eta.

    >>> float(SPMAk1(eta=2.0).multiplier(0.5, 1.0))
    1.5
    """

    knob = ("eta",)
    name = "spma-k1"
    number = "51"
    family = "log space"
    reference = "arXiv:2411.12042"

    eta: Parameter = parameter(1.0, above=0)

    def multiplier(self, s: Sample) -> Array:
        return s.advantage + 1 / self.eta + 0.0 * s.log_w

    def objective(self, s: Sample) -> Array:
        return (s.advantage + 1 / self.eta) * s.log_w


@dataclass(frozen=True)
class SPPO(Shape):
    """J = A log clip(w, 1/(1+eps), 1+eps), m = A inside that band and 0 outside.

    >>> [float(SPPO().multiplier(x, 2.0)) for x in (0.2, 0.3)]
    [2.0, 0.0]
    """

    knob = ("eps",)
    number = "52"
    family = "log space"
    reference = "arXiv:2108.05828"

    eps: Parameter = parameter(0.3, above=0)

    def multiplier(self, s: Sample) -> Array:
        top = 1 + self.eps
        return where((s.w < 1 / top) | (s.w > top), 0.0, s.advantage + 0.0 * s.log_w)

    def objective(self, s: Sample) -> Array:
        top = 1 + self.eps
        return s.advantage * log(clip(s.w, 1 / top, top))


@dataclass(frozen=True)
class Kimi(Shape):
    """J = A log pi - tau (log w)^2 / 2, m = A - tau log w. Equilibrium at w = e^(A/tau).

    >>> float(Kimi(tau=0.5).multiplier(1.0, 2.0))
    1.5
    """

    knob = ("tau",)
    number = "54"
    family = "log space"
    reference = "Kimi k1.5, arXiv:2501.12599; DRO; OPMD"

    tau: Parameter = parameter(0.1, above=0)

    def multiplier(self, s: Sample) -> Array:
        return s.advantage - self.tau * s.log_w

    def objective(self, s: Sample) -> Array:
        return s.advantage * s.log_w - self.tau * s.log_w * s.log_w / 2
