"""Old samples: shapes and gates that tell three policies apart.

    w_b = w e^behaviour_log_ratio    the new policy over the sampler, which acted
    w_p = w e^proximal_log_ratio     the new policy over the one at the start of the iteration
    c = w_b / w_p                    that at the start over the sampler

They say the same whichever of the two w divides by. A shape that pulls with w_b has c in it: a
trainer that weighs samples by c itself would count it twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.algebra import Gate
from klip.shapes.backend import (
    Array,
    log,
    maximum,
    minimum,
    ratio,
    stop_gradient,
    where,
)
from klip.shapes.context import NO_CONTEXT, Context
from klip.shapes.hard import smaller_pull
from klip.shapes.sample import Sample
from klip.shapes.shape import Band, Edges, Shape
from klip.shapes.thresholds import PerAge
from klip.shapes.value import Parameter, parameter


def start_over_sampler(context: Context) -> Array:
    """c: how far the policy has moved since the sample was taken, before this iteration."""
    return ratio(context.behaviour_log_ratio - context.proximal_log_ratio)


@dataclass(frozen=True)
class GePPO(Band):
    """J = min(w_b A, clip(w_b, c-low, c+high) A): a band around c, so w_p within 1 +- eps/c.

    What is bounded is the move of this iteration, however old the sample. The published eps is
    PPO's 0.2, divided by the mean age plus 1 under the weights by age: 0.1 for the weights
    (.4, .3, .2, .1). The rule for the step size is `tv-step-size`.

    >>> old = Context(behaviour_log_ratio=0.0, proximal_log_ratio=-0.5)  # c = 1.65
    >>> [round(float(GePPO().multiplier(x, 1.0, old)), 3) for x in (0.0, 0.5, 0.6)]
    [1.0, 1.649, 0.0]
    """

    name = "geppo"
    family = "old samples"
    reference = "Queeney et al. 2021, arXiv:2111.00072"
    requires = ("behaviour_log_ratio", "proximal_log_ratio")
    default_band = (0.1, 0.1)

    def objective(self, s: Sample) -> Array:
        return smaller_pull(s.at(s.log_w + s.behaviour_log_ratio), *self._around(s.context))

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        bottom, top = self.at(context, like)._around(context)
        old = ratio(context.behaviour_log_ratio)
        return bottom / old, top / old

    def _around(self, context: Context) -> Edges:
        """The edges of w_b; with c = 1 they are those of the clip to the last bit."""
        c, (bottom, top) = start_over_sampler(context), self.edges
        return bottom + (c - 1), top + (c - 1)


@dataclass(frozen=True)
class A3PO(Band):
    """m = w_b A, 0 where w_b^(1/(1+age)) leaves the band as A pushes it: a band of w_b between
    (1-low)^(1+age) and (1+high)^(1+age), which widens with age.

    The policy at the start of the iteration is not evaluated but interpolated, in log space and by
    age, between the sampler and the new one; the decoupled clip of that is this band.

    >>> old = Context(behaviour_log_ratio=0.0, age=2.0)  # up to 1.2^3 = 1.728
    >>> [round(float(A3PO().multiplier(x, 1.0, old)), 3) for x in (0.5, 0.6)]
    [1.649, 0.0]
    """

    name = "a3po"
    number = "62"
    family = "old samples"
    reference = "A-3PO, arXiv:2512.06547; AReaL"
    requires = ("behaviour_log_ratio", "age")

    def multiplier(self, s: Sample) -> Array:
        moved = s.at(s.log_w + s.behaviour_log_ratio)
        each = s.at(moved.log_w / (1 + s.age))
        return where(self.killed(each), 0.0, moved.w * s.advantage)

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        bottom, top = self.at(context, like).edges
        old, power = ratio(context.behaviour_log_ratio), 1 + context.age
        return maximum(bottom, 0.0) ** power / old, top**power / old


@dataclass(frozen=True)
class IMPACT(Band):
    """J = min(rA, clip(r, 1-low, 1+high) A), r = min(1/c, cap) w_b: w_p, and no more than cap w_b.

    The published target is a copy of the policy that follows it slowly; here it is the policy at
    the start of the iteration.

    >>> old = Context(behaviour_log_ratio=0.0, proximal_log_ratio=1.0)  # c = 0.37, so r = 2 w_b
    >>> [float(IMPACT().multiplier(x, 1.0, old)) for x in (-1.0, 0.0)]
    [0.7357588823428847, 0.0]
    """

    number = "63"
    family = "old samples"
    reference = "IMPACT, arXiv:1912.00167; RLlib APPO"
    requires = ("behaviour_log_ratio", "proximal_log_ratio")
    default_band = (0.4, 0.4)

    cap: Parameter = parameter(2.0, above=0)

    def objective(self, s: Sample) -> Array:
        return smaller_pull(s.at(s.log_w + self._shift(s.context)), *self.edges)

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        own = self.at(context, like)
        (bottom, top), moved = own.edges, ratio(own._shift(context))
        return bottom / moved, top / moved

    def _shift(self, context: Context) -> Array:
        """log(r / w)."""
        capped = context.behaviour_log_ratio + log(self.cap)
        return minimum(context.proximal_log_ratio, capped)


@dataclass(frozen=True)
class P3OESS(Shape):
    """m = min(w_b, ESS) A - (1-ESS)(1 - 1/w_b), ESS the effective sample size, a share of the batch.

    The further the batch is off the policy, the smaller the weights and the stronger the pull back
    to the sampler; with fresh samples ESS = 1, and m = min(w, 1) A.

    >>> batch = Context(behaviour_log_ratio=0.0, effective_size=0.5)
    >>> [float(P3OESS().multiplier(x, 1.0, batch)) for x in (0.0, 0.6931471805599453)]
    [0.5, 0.25]
    """

    name = "p3o-ess"
    number = "85"
    family = "old samples"
    reference = "P3O, Fakoor et al. 2019, arXiv:1905.01756; FeynRL"
    requires = ("behaviour_log_ratio", "effective_size")
    knob = ()

    def multiplier(self, s: Sample) -> Array:
        w_b = s.at(s.log_w + s.behaviour_log_ratio).w
        pull = minimum(w_b, s.effective_size) * s.advantage
        return pull - (1 - s.effective_size) * (1 - 1 / w_b)

    def objective(self, s: Sample) -> Array:
        moved = s.at(s.log_w + s.behaviour_log_ratio)
        pull = stop_gradient(minimum(moved.w, s.effective_size)) * s.advantage * moved.log_w
        return pull - (1 - s.effective_size) * (moved.log_w + 1 / moved.w - 1)


@dataclass(frozen=True)
class VACO(Gate):
    """c = pi_old / pi_sampler, and 0 where the batch is off by more than delta and A leads further.

    Off by: the mean of |c - 1| over the batch, of a token over its sequence. Further: log c and A
    have one sign, c here the policy at the start of the iteration over the sampler. The default
    of delta is ours; as coded for language models it was 2.

    >>> off = Context(behaviour_log_ratio=0.0, proximal_log_ratio=-0.5, deviation=0.3)
    >>> [float(VACO().weight(0.0, a, off)) for a in (1.0, -1.0)]
    [0.0, 1.0]
    """

    name = "vaco"
    number = "83"
    reference = "VACO, arXiv:2603.01365; open-instruct #1681"
    requires = ("behaviour_log_ratio", "proximal_log_ratio", "deviation")

    delta: Parameter = parameter(0.2, above=0)

    def weight(self, s: Sample) -> Array:
        log_c = s.behaviour_log_ratio - s.proximal_log_ratio
        further = (s.deviation > self.delta) & (log_c * s.advantage > 0)
        return where(further, 0.0, ratio(s.behaviour_log_ratio), like=s.log_w)


@dataclass(frozen=True)
class M2PO(Gate):
    """c = 1, 0 for the samples with the largest |log c| until the others' mean (log c)^2 is <= limit.

    >>> [float(M2PO().weight(0.0, 1.0, Context(second_moment=x))) for x in (0.03, 0.05)]
    [1.0, 0.0]
    """

    name = "m2po"
    number = "66"
    reference = "M2PO, arXiv:2510.01161; AReaL"
    requires = ("second_moment",)

    limit: Parameter = parameter(0.04, at_least=0)

    def weight(self, s: Sample) -> Array:
        return where(s.second_moment > self.limit, 0.0, 1.0, like=s.log_w)


@dataclass(frozen=True)
class Weigh(Gate):
    """c = by: a number, or a function of the context, such as weights by age.

    >>> [float(Weigh().weight(0.0, 1.0, Context(age=a))) for a in (0.0, 3.0)]
    [1.0, 0.25]
    >>> from klip.shapes import ByAge
    >>> str(Weigh(by=ByAge(fresh=1.0, half_life=2.0)))
    'weigh(by=by-age(fresh=1.0, half_life=2.0, floor=0.0))'
    """

    reference = "age-conditioned, KLip-PPO sec. 5"

    by: Parameter = parameter(PerAge(fresh=1.0), at_least=0)

    def weight(self, s: Sample) -> Array:
        return self.by + 0.0 * s.log_w
