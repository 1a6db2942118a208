"""Gradient-preserving clips and truncated weights: m = omega(w) A, with omega detached."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.backend import Array, clip, exp, minimum, stop_gradient, where
from klip.shapes.sample import Sample
from klip.shapes.shape import Band, Shape
from klip.shapes.value import Parameter, parameter


@dataclass(frozen=True)
class _Weighted(Shape, abstract=True):
    """m = omega A, J = omega A log w."""

    family = "weight"

    def omega(self, s: Sample) -> Array:
        """The weight of each sample."""
        raise NotImplementedError

    def multiplier(self, s: Sample) -> Array:
        return self.omega(s) * s.advantage

    def objective(self, s: Sample) -> Array:
        return stop_gradient(self.omega(s)) * s.advantage * s.log_w


@dataclass(frozen=True)
class CISPO(_Weighted):
    """m = clip(w, floor, cap) A.

    `floor` and `cap` are ratios, not offsets from 1: `cap` is TRL's `epsilon_high`, and verl's and
    SkyRL's `1 + clip_ratio_high`.

    >>> float(CISPO(cap=5.0).multiplier(3.0, 1.0))
    5.0
    """

    knob = ("cap",)
    number = "29"
    reference = "MiniMax-M1, arXiv:2506.13585; ScaleRL, arXiv:2510.13786"

    cap: Parameter = parameter(5.0, above=0)
    floor: Parameter = parameter(0.0, at_least=0)

    def omega(self, s: Sample) -> Array:
        return clip(s.w, self.floor, self.cap)


@dataclass(frozen=True)
class TIS(_Weighted):
    """m = min(w, cap) A.

    >>> float(TIS(cap=1.0).multiplier(3.0, 1.0))
    1.0
    """

    knob = ("cap",)
    number = "30"
    reference = "V-trace, arXiv:1802.01561; AIPO, arXiv:2505.24034"

    cap: Parameter = parameter(1.0, above=0)

    def omega(self, s: Sample) -> Array:
        return minimum(s.w, self.cap)


@dataclass(frozen=True)
class GPPO(Band):
    """m = edge A on the kill set, wA elsewhere: the clip bounds the pull and keeps it.

    >>> float(GPPO().multiplier(3.0, 1.0))
    1.28
    """

    number = "33"
    family = "weight"
    reference = "arXiv:2508.07629"
    default_band = (0.2, 0.28)

    def multiplier(self, s: Sample) -> Array:
        bottom, top = self.edges
        kept = where(s.advantage > 0, top, bottom, like=s.w)
        return where(self.killed(s), kept, s.w) * s.advantage

    def objective(self, s: Sample) -> Array:
        bottom, top = self.edges
        rescaled = where(s.advantage > 0, top, bottom, like=s.advantage) / stop_gradient(s.w) * s.w
        return where(self.killed(s), rescaled, s.w) * s.advantage


@dataclass(frozen=True)
class ASPO(Band):
    """A > 0: m = A min(1/w, cap), 0 for w > 1+high; A < 0: m = A min(w, cap), 0 for w < 1-low.

    The published radius is 0.2 at low entropy and 0.4 at high: `ASPO(eps=ByEntropy(0.2, 0.4))`.

    >>> float(ASPO().multiplier(-3.0, 1.0))
    3.0
    """

    number = "35"
    family = "weight"
    reference = "arXiv:2510.06062"

    cap: Parameter = parameter(3.0, above=0)

    def multiplier(self, s: Sample) -> Array:
        weight = minimum(where(s.advantage > 0, 1 / s.w, s.w), self.cap)
        return where(self.killed(s), 0.0, weight * s.advantage)


@dataclass(frozen=True)
class TOPR(_Weighted):
    """m = A for good samples, min(w, 1) A for the others.

    A sample is good if its advantage is positive, or, as published, if its reward is
    (`sign="reward"`, which needs that context).

    >>> [float(TOPR().multiplier(3.0, a)) for a in (2.0, -2.0)]
    [2.0, -2.0]
    """

    knob = ()
    number = "36"
    reference = "arXiv:2503.14286"

    sign: str = parameter("advantage", choices=("advantage", "reward"))

    @property
    def needs(self) -> frozenset[str]:
        """`reward`, if its sign decides."""
        return frozenset({"reward"} if self.sign == "reward" else ())

    def omega(self, s: Sample) -> Array:
        good = (s.reward if self.sign == "reward" else s.advantage) > 0
        return where(good, 1.0, minimum(s.w, 1.0))


@dataclass(frozen=True)
class GIPO(Shape):
    """m = wA exp(-(log w / sigma)^2 / 2): a bell in log w, alike for ratios of r and of 1/r.

    No sample is dropped, however old. Its authors look at sigma from 0.1 to 2; 1 is RLinf's.

    >>> [round(float(GIPO().multiplier(x, 1.0)), 3) for x in (0.0, 1.0, 3.0)]
    [1.0, 1.649, 0.223]
    """

    knob = ("sigma",)
    name = "gipo"
    number = "92"
    family = "weight"
    reference = "GIPO, arXiv:2603.03955; AcceRL, RLinf"

    sigma: Parameter = parameter(1.0, above=0)

    def multiplier(self, s: Sample) -> Array:
        return self._bell(s) * s.w * s.advantage

    def objective(self, s: Sample) -> Array:
        return stop_gradient(self._bell(s)) * s.w * s.advantage

    def _bell(self, s: Sample) -> Array:
        scaled = s.log_w / self.sigma
        return exp(-0.5 * scaled * scaled)
