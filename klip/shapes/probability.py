"""Regions of the action's probability: discrete actions, seen as "this one or another".

p is the old probability of the action and q = pw its new one. A rare action may change by a large
factor before anything is different; a likely one may not.
"""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.algebra import Gate
from klip.shapes.backend import (
    Array,
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
from klip.shapes.hard import smaller_pull
from klip.shapes.sample import Sample
from klip.shapes.shape import Band, Edges, Shape
from klip.shapes.value import Parameter, parameter

DPPO = "DPPO, arXiv:2602.04879"
KPOP = "KPop, Guo et al., Ant Group 2026; AReaL #1405, prime-rl #3283"
TINY = 1e-30  # keeps logarithms and quotients of vanishing probabilities finite
LEAST = 1e-6  # in a binary KL a probability is at least this, and that of the others too


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


def binary_kl(log_p: Array, log_q: Array) -> Array:
    """p log(p/q) + (1-p) log((1-p)/(1-q)), p and q within [1e-6, 1 - 1e-6].

    These limits are those of prime-rl and OpenRLHF; they keep it finite where an action is certain.

    >>> round(float(binary_kl(log(0.5), log(0.75))), 4), round(float(binary_kl(0.0, 0.0)), 4)
    (0.1438, 0.0)
    """
    p, q = (clip(exp(minimum(x, 0.0)), LEAST, 1 - LEAST) for x in (log_p, log_q))
    return p * (log(p) - log(q)) + (1 - p) * (log(1 - p) - log(1 - q))


def apart(log_p: Array, log_q: Array, delta: Array) -> Array:
    """Whether the binary KL exceeds `delta` in either direction."""
    return maximum(binary_kl(log_p, log_q), binary_kl(log_q, log_p)) > delta


@dataclass(frozen=True)
class KPop(_Masked):
    """m = wA, 0 where the larger of Bernoulli-KL(p || pw) and Bernoulli-KL(pw || p) is > delta.

    The advantage does not matter: what would lead back is dropped, too. The published threshold is
    called phi. Where the sampler is not the old policy, `kpop-mask` holds those two apart.

    >>> half = Context(old_log_prob=-0.6931)
    >>> [round(float(KPop().multiplier(x, 1.0, half)), 3) for x in (0.35, 0.36, -0.55, -0.56)]
    [1.419, 0.0, 0.577, 0.0]
    """

    knob = ("delta",)
    name = "kpop"
    number = "80"
    reference = KPOP

    delta: Parameter = parameter(0.1, above=0)

    def dropped(self, s: Sample) -> Array:
        return apart(s.old_log_prob, s.old_log_prob + s.log_w, self.delta)


@dataclass(frozen=True)
class KPopMask(Gate):
    """c = pi_old / pi_behaviour, 0 where their Bernoulli KL exceeds delta in either direction.

    `kpop` of the old policy and the sampler; `icepop` is the same by their ratio.

    >>> sampler = lambda x: Context(old_log_prob=-0.6931, behaviour_log_ratio=x)
    >>> [round(float(KPopMask().weight(0.0, 1.0, sampler(x))), 3) for x in (0.5, 0.6)]
    [1.649, 0.0]
    """

    name = "kpop-mask"
    number = "80"
    reference = KPOP
    requires = ("old_log_prob", "behaviour_log_ratio")

    delta: Parameter = parameter(0.1, above=0)

    def weight(self, s: Sample) -> Array:
        sampler = s.old_log_prob - s.behaviour_log_ratio
        far = apart(sampler, s.old_log_prob, self.delta)
        return where(far, 0.0, ratio(s.behaviour_log_ratio), like=s.log_w) + 0.0 * s.log_w
