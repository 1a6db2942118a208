"""Parameters that are functions of the context: any number of any shape may be one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klip.errors import KlipError
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
class PerAge(Threshold):
    """floor + (fresh - floor) / (1 + age): half at an age of 1, a third at 2, and so on.

    >>> [float(PerAge(fresh=0.2).value(Context(age=a))) for a in (0.0, 1.0, 3.0)]
    [0.2, 0.1, 0.05]
    """

    requires = ("age",)

    fresh: Parameter = parameter(0.2)
    floor: Parameter = parameter(0.0)

    def value(self, context: Context) -> Array:
        return self.floor + (self.fresh - self.floor) / (1 + context.age)


TABLE_AGES = (0, 1, 2, 4, 8, 16)
"""The ages at which `AtAge` has a value of its own."""


@dataclass(frozen=True)
class AtAge(Threshold):
    """A table: a value at the ages 0, 1, 2, 4, 8 and 16, linear between them, constant after.

    `matched_at_ages` fills it in so that an equal share of the samples of every age is killed.

    >>> table = AtAge(at_2=0.3, at_4=0.5)
    >>> [round(float(table.value(Context(age=a))), 6) for a in (0.0, 2.0, 3.0, 4.0, 40.0)]
    [0.2, 0.3, 0.4, 0.5, 0.2]
    """

    requires = ("age",)

    at_0: Parameter = parameter(0.2)
    at_1: Parameter = parameter(0.2)
    at_2: Parameter = parameter(0.2)
    at_4: Parameter = parameter(0.2)
    at_8: Parameter = parameter(0.2)
    at_16: Parameter = parameter(0.2)

    def value(self, context: Context) -> Array:
        values = [getattr(self, f"at_{age}") for age in TABLE_AGES]
        result = values[0] + 0.0 * context.age
        for i, (before, after) in enumerate(itertools.pairwise(TABLE_AGES)):
            part = clip((context.age - before) / (after - before), 0.0, 1.0)
            result = result + (values[i + 1] - values[i]) * part
        return result


def matched_at_ages(
    log_ratio: NDArray[Any], advantage: NDArray[Any], age: NDArray[Any], kill: float
) -> AtAge:
    """The radii at which a clip kills a share `kill` of the samples of every age.

    The radius at an age is the quantile 1 - `kill` of how far the samples of that age have moved
    to where their advantage pushes, (w - 1) sign(A). It is measured: samples of a run say what
    would have killed an equal share of them, and a run with these radii moves a little
    differently. The table's entry for an age is that of the samples from this age up to the next
    in the table; one without samples repeats the entry before it, or the first there is.

    Args:
        log_ratio: `[N]`, the one that the clip will see
        advantage: `[N]`
        age: `[N]`
        kill: the share, between 0 and 1

    >>> moved, ages = np.log([1.1, 1.2, 1.3, 1.4, 1.2, 1.4, 1.6, 1.8]), np.repeat([0, 3], 4)
    >>> table = matched_at_ages(moved, np.ones(8), ages, kill=0.5)
    >>> round(table.at_0, 3), round(table.at_2, 3)
    (0.25, 0.5)

    """
    if not 0 < kill < 1:
        raise KlipError(f"kill={kill} must be a share of the samples, between 0 and 1")
    moved = np.expm1(np.asarray(log_ratio, float)) * np.sign(advantage)
    moved, age = (x.ravel() for x in np.broadcast_arrays(moved, np.asarray(age)))
    if not age.size:
        raise KlipError("there are no samples to match the radii to")
    slot = np.searchsorted(TABLE_AGES, age, side="right") - 1
    found = {i: float(np.quantile(moved[slot == i], 1 - kill)) for i in np.unique(slot)}
    first = min(found)
    radii = [
        found[max((i for i in found if i <= j), default=first)] for j in range(len(TABLE_AGES))
    ]
    named = zip(TABLE_AGES, radii, strict=True)
    return AtAge(**{f"at_{age}": max(radius, NARROWEST) for age, radius in named})


NARROWEST = 1e-3
"""The least radius of a matched band, where fewer samples than asked for move outwards at all."""


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
