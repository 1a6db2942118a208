"""Hard clips, and the two baselines without any trust region."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.backend import Array, clip, maximum, minimum, ratio, where
from klip.shapes.context import NO_CONTEXT, Context
from klip.shapes.shape import Band, Penalty, Shape
from klip.shapes.value import Parameter, parameter

PPO = "Schulman et al. 2017, arXiv:1707.06347"


def smaller_pull(w: Array, clipped: Array, advantage: Array) -> Array:
    """min(w A, clipped A), the choice made before the products are rounded.

    Its value is the same to the last bit. But a ratio that lies outside the band by its last bit
    can have the product of the edge itself, and a tie would then keep a gradient that is killed.
    """
    return where(advantage < 0, maximum(w, clipped), minimum(w, clipped)) * advantage


@dataclass(frozen=True)
class ImportanceSampling(
    Penalty, name="is", number="1", family="baseline",
    reference="Kakade & Langford 2002; TRPO, arXiv:1502.05477",
):  # fmt: skip
    """m = wA, beta = 0: the unconstrained surrogate.

    >>> round(float(ImportanceSampling().multiplier(0.5, 2.0)), 4)
    3.2974
    """

    def beta(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        return 0.0 * log_ratio * advantage

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        return ratio(log_ratio) * advantage


@dataclass(frozen=True)
class Reinforce(
    Shape, number="2", family="baseline", reference="Williams 1992; verl gpg, ROLL vanilla"
):
    """m = A: the score function, blind to the ratio.

    >>> float(Reinforce().multiplier(0.5, 2.0))
    2.0
    """

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        return advantage + 0.0 * log_ratio

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        return advantage * log_ratio


@dataclass(frozen=True)
class Clip(Band, number="3", family="hard clip", reference=PPO):
    """J = min(wA, clip(w, 1-low, 1+high) A): PPO-Clip, differentiated from its `min`.

    >>> [float(Clip(eps=0.2).multiplier(x, 1.0)) for x in (0.0, 0.5)]
    [1.0, 0.0]
    """

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        w = ratio(log_ratio)
        return smaller_pull(w, clip(w, *self.edges), advantage)


@dataclass(frozen=True)
class ClipPhi(Band, number="3Φ", family="hard clip", reference="KLip-PPO, appendix A"):
    """J = wA - Phi, Phi = (w - edge) A on the kill set: PPO-Clip in weight space.

    >>> [float(ClipPhi(eps=0.2).multiplier(x, 1.0)) for x in (0.0, 0.5)]
    [1.0, 0.0]
    """

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        w = ratio(log_ratio)
        bottom, top = self.edges
        above = where((w > top) & (advantage > 0), (w - top) * advantage, 0.0)
        below = where((w < bottom) & (advantage < 0), (w - bottom) * advantage, 0.0)
        return w * advantage - (above + below)


@dataclass(frozen=True)
class PerSample(Band, number="3β", family="hard clip", reference="KLip-PPO, theorem 1"):
    """beta = -wA on the kill set, 0 elsewhere: PPO-Clip as a KL penalty, sample by sample.

    >>> [float(PerSample(eps=0.2).multiplier(x, 1.0)) for x in (0.0, 0.5)]
    [1.0, 0.0]
    """

    def beta(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        w = ratio(log_ratio)
        return where(self.killed(w, advantage), -(w * advantage), 0.0)


@dataclass(frozen=True)
class ClipHigher(
    Clip, number="4", family="hard clip", band=(0.2, 0.28), reference="DAPO, arXiv:2503.14476"
):
    """J = min(wA, clip(w, 1-low, 1+high) A) with high > low: more room upwards.

    >>> str(ClipHigher())
    'clip-higher(low=0.2, high=0.28)'
    """


@dataclass(frozen=True)
class DualClip(Band, number="5", family="hard clip", reference="Ye et al. 2020, arXiv:1912.09729"):
    """As PPO-Clip; for A < 0, J = max(min(wA, clip(w) A), cap*A), so m = 0 for w > cap too.

    `cap` is a ratio. Two-sided GRPO's delta (INTELLECT-2, TRL) is the same gradient.

    >>> float(DualClip(cap=3.0).multiplier(1.2, -1.0))
    0.0
    """

    cap: Parameter = parameter(3.0, above=1)

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        w = ratio(log_ratio)
        dropped = self.killed(w, advantage) | ((advantage < 0) & (w > self.cap))
        return where(dropped, 0.0, w * advantage)

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        w = ratio(log_ratio)
        clipped = smaller_pull(w, clip(w, *self.edges), advantage)
        return where(advantage < 0, maximum(clipped, self.cap * advantage), clipped)


@dataclass(frozen=True)
class StrictClip(
    Band, number="6", family="hard clip", reference="ratio_strict in Truly PPO, arXiv:1903.07940"
):
    """J = clip(w, 1-low, 1+high) A, without the min: the pass side is killed too.

    >>> float(StrictClip().multiplier(0.5, -1.0))
    0.0
    """

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        w = ratio(log_ratio)
        bottom, top = self.edges
        return where((w < bottom) | (w > top), 0.0, w * advantage)

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        return clip(ratio(log_ratio), *self.edges) * advantage
