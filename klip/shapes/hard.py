"""Hard clips, and the two baselines without any trust region."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.backend import Array, clip, maximum, minimum, where
from klip.shapes.sample import Sample
from klip.shapes.shape import Band, Penalty, Shape
from klip.shapes.value import Parameter, parameter

PPO = "Schulman et al. 2017, arXiv:1707.06347"


def smaller_pull(s: Sample, bottom: Array, top: Array) -> Array:
    """min(w A, clip(w, bottom, top) A), chosen before the products are rounded.

    The value is the same to the last bit. But a ratio outside the band by its last bit can have
    the same product as the edge, and the tie would then keep a gradient that should be killed.
    """
    clipped = clip(s.w, bottom, top)
    return where(s.advantage < 0, maximum(s.w, clipped), minimum(s.w, clipped)) * s.advantage


@dataclass(frozen=True)
class ImportanceSampling(Penalty):
    """m = wA, beta = 0: the unconstrained surrogate.

    >>> round(float(ImportanceSampling().multiplier(0.5, 2.0)), 4)
    3.2974
    """

    knob = ()
    name = "is"
    number = "1"
    family = "baseline"
    reference = "Kakade & Langford 2002; TRPO, arXiv:1502.05477"

    def beta(self, s: Sample) -> Array:
        return 0.0 * s.log_w * s.advantage

    def objective(self, s: Sample) -> Array:
        return s.w * s.advantage


@dataclass(frozen=True)
class Reinforce(Shape):
    """m = A: the score function, blind to the ratio.

    >>> float(Reinforce().multiplier(0.5, 2.0))
    2.0
    """

    knob = ()
    number = "2"
    family = "baseline"
    reference = "Williams 1992; verl gpg, ROLL vanilla"

    def multiplier(self, s: Sample) -> Array:
        return s.advantage + 0.0 * s.log_w

    def objective(self, s: Sample) -> Array:
        return s.advantage * s.log_w


@dataclass(frozen=True)
class _MinClip(Band, abstract=True):
    """J = min(wA, clip(w, 1-low, 1+high) A), differentiated as it stands."""

    family = "hard clip"

    def objective(self, s: Sample) -> Array:
        return smaller_pull(s, *self.edges)

    def evaluate(self, s: Sample) -> tuple[Array, Array]:
        """(m, J) in a third of the passes over memory, for the shape that is used most.

        On the kill set the `min` is the constant edge * A; elsewhere it is wA. The tests hold
        this to `multiplier` and `objective`, bit for bit.
        """
        (bottom, top), killed, pull = self.edges, self.killed(s), s.w * s.advantage
        edge = where(s.advantage > 0, top, bottom, like=s.w)
        return where(killed, 0.0, pull), where(killed, edge * s.advantage, pull)


@dataclass(frozen=True)
class Clip(_MinClip):
    """J = min(wA, clip(w, 1-low, 1+high) A): PPO-Clip, differentiated from its `min`.

    >>> [float(Clip(eps=0.2).multiplier(x, 1.0)) for x in (0.0, 0.5)]
    [1.0, 0.0]
    """

    number = "3"
    reference = PPO


@dataclass(frozen=True)
class ClipPhi(Band):
    """J = wA - Phi, Phi = (w - edge) A on the kill set: PPO-Clip in weight space.

    >>> [float(ClipPhi(eps=0.2).multiplier(x, 1.0)) for x in (0.0, 0.5)]
    [1.0, 0.0]
    """

    number = "3Φ"
    family = "hard clip"
    reference = "KLip-PPO, appendix A"

    def objective(self, s: Sample) -> Array:
        bottom, top = self.edges
        above = where((s.w > top) & (s.advantage > 0), (s.w - top) * s.advantage, 0.0)
        below = where((s.w < bottom) & (s.advantage < 0), (s.w - bottom) * s.advantage, 0.0)
        return s.w * s.advantage - (above + below)


@dataclass(frozen=True)
class PerSample(Band):
    """beta = -wA on the kill set, 0 elsewhere: PPO-Clip as a KL penalty, sample by sample.

    >>> [float(PerSample(eps=0.2).multiplier(x, 1.0)) for x in (0.0, 0.5)]
    [1.0, 0.0]
    """

    number = "3β"
    family = "hard clip"
    reference = "KLip-PPO, theorem 1"

    def beta(self, s: Sample) -> Array:
        # The product is negated as a whole, so that a compiler sees w*A twice and cancels it to 0.
        return where(self.killed(s), -(s.w * s.advantage), 0.0)


@dataclass(frozen=True)
class ClipHigher(_MinClip):
    """J = min(wA, clip(w, 1-low, 1+high) A) with high > low: more room upwards.

    >>> str(ClipHigher())
    'clip-higher(low=0.2, high=0.28)'
    """

    number = "4"
    reference = "DAPO, arXiv:2503.14476"
    default_band = (0.2, 0.28)


@dataclass(frozen=True)
class DualClip(Band):
    """As PPO-Clip; for A < 0, J = max(min(wA, clip(w) A), cap*A), so m = 0 for w > cap too.

    `cap` is a ratio. Two-sided GRPO's delta (INTELLECT-2, TRL) is the same gradient.

    >>> float(DualClip(cap=3.0).multiplier(1.2, -1.0))
    0.0
    """

    number = "5"
    family = "hard clip"
    reference = "Ye et al. 2020, arXiv:1912.09729"

    cap: Parameter = parameter(3.0, above=1)

    def multiplier(self, s: Sample) -> Array:
        dropped = self.killed(s) | ((s.advantage < 0) & (s.w > self.cap))
        return where(dropped, 0.0, s.w * s.advantage)

    def objective(self, s: Sample) -> Array:
        clipped = smaller_pull(s, *self.edges)
        return where(s.advantage < 0, maximum(clipped, self.cap * s.advantage), clipped)


@dataclass(frozen=True)
class StrictClip(Band):
    """J = clip(w, 1-low, 1+high) A, without the min: the pass side is killed too.

    >>> float(StrictClip().multiplier(0.5, -1.0))
    0.0
    """

    number = "6"
    family = "hard clip"
    reference = "ratio_strict in Truly PPO, arXiv:1903.07940"

    def multiplier(self, s: Sample) -> Array:
        bottom, top = self.edges
        return where((s.w < bottom) | (s.w > top), 0.0, s.w * s.advantage)

    def objective(self, s: Sample) -> Array:
        return clip(s.w, *self.edges) * s.advantage
