"""Parameters that are functions of the context: any number of any shape may be one."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes.backend import Array, clip, maximum, where
from klip.shapes.context import Context
from klip.shapes.value import Parameter, Threshold, parameter


@dataclass(frozen=True)
class ByPosition(Threshold):
    """start + (end - start) * t, with t = position / (length - 1) from 0 to 1.

    >>> float(ByPosition(start=0.3, end=0.1).value(Context(position=5.0, length=11.0)))
    0.2
    """

    requires = ("position", "length")

    start: Parameter = parameter(0.3)
    end: Parameter = parameter(0.1)

    def value(self, context: Context) -> Array:
        t = clip(context.position / maximum(context.length - 1.0, 1.0), 0.0, 1.0)
        return self.start + (self.end - self.start) * t


@dataclass(frozen=True)
class FromEnd(Threshold):
    """`tail` on the last `count` tokens of the sequence, `body` before them.

    >>> end = FromEnd(tail=0.1, body=0.3, count=2)
    >>> [float(end.value(Context(position=p, length=5.0))) for p in (2.0, 3.0)]
    [0.3, 0.1]
    """

    requires = ("position", "length")

    tail: Parameter = parameter(0.1)
    body: Parameter = parameter(0.3)
    count: Parameter = parameter(16.0, at_least=0)

    def value(self, context: Context) -> Array:
        return where(
            context.position >= context.length - self.count,
            self.tail,
            self.body,
            like=context.position,
        )


@dataclass(frozen=True)
class ByAge(Threshold):
    """floor + (fresh - floor) * 2^(-age / half_life): shrinks as a sample grows old.

    >>> float(ByAge(fresh=0.2, half_life=4.0).value(Context(age=8.0)))
    0.05
    """

    requires = ("age",)

    fresh: Parameter = parameter(0.2)
    half_life: Parameter = parameter(4.0, above=0)
    floor: Parameter = parameter(0.0)

    def value(self, context: Context) -> Array:
        return self.floor + (self.fresh - self.floor) * 2.0 ** (-context.age / self.half_life)


@dataclass(frozen=True)
class ByEntropy(Threshold):
    """`above` where the policy's entropy exceeds `cut`, `below` elsewhere (Archer, ASPO).

    >>> float(ByEntropy().value(Context(entropy=2.0)))
    0.4
    """

    requires = ("entropy",)

    below: Parameter = parameter(0.2)
    above: Parameter = parameter(0.4)
    cut: Parameter = parameter(1.0)

    def value(self, context: Context) -> Array:
        return where(context.entropy > self.cut, self.above, self.below, like=context.entropy)


@dataclass(frozen=True)
class ByStep(Threshold):
    """Linear from `start` at step 0 to `end` at step `steps`, constant after.

    >>> float(ByStep(start=0.2, end=0.0, steps=100).value(Context(step=50.0)))
    0.1
    """

    requires = ("step",)

    start: Parameter = parameter(0.2)
    end: Parameter = parameter(0.0)
    steps: Parameter = parameter(1e6, above=0)

    def value(self, context: Context) -> Array:
        return self.start + (self.end - self.start) * clip(context.step / self.steps, 0.0, 1.0)


@dataclass(frozen=True)
class ByProgress(Threshold):
    """Linear from `start` at the beginning of training to `end` at `until` of it, constant after.

    As `ByStep`, for a training of any length: `until=0.5` is half of its steps.

    >>> float(ByProgress(start=0.2, end=0.1, until=0.5).value(Context(progress=0.25)))
    0.15000000000000002
    """

    requires = ("progress",)

    start: Parameter = parameter(0.2)
    end: Parameter = parameter(0.0)
    until: Parameter = parameter(1.0, above=0)

    def value(self, context: Context) -> Array:
        return self.start + (self.end - self.start) * clip(context.progress / self.until, 0.0, 1.0)
