"""Which step sizes a shape survives: final returns against the learning rate, and where they break.

A ladder is one shape on one task over several learning rates, all else being equal. Its gain is the
final return less the task's mean return at first. It breaks at the first step size above its best
one at which less than half of the best gain is left; one that gains nothing survives none. A run
that diverged counts at its task's lowest return: without it, a shape that fails often would look
good.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from klip.runs.checkpoint import HOW
from klip.shapes.names import brief
from klip.studies.bootstrap import Floats, draws, expanded, expanded_p
from klip.studies.scores import Estimate, Scores
from klip.studies.statistics import RESAMPLES, mean
from klip.studies.study import Study, Variant, plain

KNOB: Final = "lr"
LEFT: Final = 0.5
"""The share of the best gain that has to be left."""
LEVEL: Final = 0.95
METHOD: Final = "expanded-percentile bootstrap"
ASIDE: Final = frozenset({"shape", "seed", "code", KNOB, *HOW})
"""Fields of a config in which the ladders of a cell, or the runs of a ladder, may differ."""


@dataclass(frozen=True, eq=False)
class Ladder:
    """One shape over several step sizes, on one task and with one set of other settings."""

    shape: str
    label: str
    variants: Mapping[float, Variant]
    """by step size, ascending; those of which a run has ended"""
    returns: Mapping[float, Estimate]
    """mean final return by step size, runs that diverged at the lowest of the task"""
    survived: int
    """how many step sizes come before the break: all of them where it does not break"""
    replicates: Floats
    """the same in resamples of the seeds, `[resamples]`"""

    @property
    def breaks(self) -> float | None:
        """The step size at which it breaks; None where it survives them all."""
        rates = [*self.variants]
        return rates[self.survived] if self.survived < len(rates) else None

    @property
    def says(self) -> str:
        """Where it breaks, in a few words."""
        if self.survived == 0:
            return "gains nothing"
        last = next(reversed(self.variants))
        return f"not up to {last:g}" if self.breaks is None else f"at {self.breaks:g}"


@dataclass(frozen=True, eq=False)
class Cell:
    """A task with one set of other settings, and the ladders of all shapes there."""

    task: str
    about: str
    """the settings in which the cells of the task differ, such as `epochs 40`"""
    zero: float
    """the task's mean return at first"""
    rates: tuple[float, ...]
    """the step sizes of its ladders, ascending"""
    ladders: tuple[Ladder, ...]

    @property
    def name(self) -> str:
        """The task and what sets the cell apart."""
        return f"{self.task}, {self.about}" if self.about else self.task


@dataclass(frozen=True, eq=False)
class Endurance:
    """How many step sizes a shape survives, as a mean over all cells."""

    shape: str
    label: str
    variant: Variant
    """its first: what its runs kept of it is there"""
    survived: Estimate
    replicates: Floats
    """the same in resamples of the seeds, `[resamples]`"""


@dataclass(frozen=True, eq=False)
class StepSizes:
    """All that a report says of step sizes."""

    cells: tuple[Cell, ...]
    shapes: tuple[Endurance, ...]
    """those that have every step size of every cell, the longest to survive first"""
    left: tuple[str, ...]
    """labels of the others"""

    def of(self, label: str) -> list[Ladder | None]:
        """The ladder of a shape in each cell, if it has one there."""
        every = [{each.label: each for each in cell.ladders} for cell in self.cells]
        return [ladders.get(label) for ladders in every]


def step_sizes(study: Study) -> StepSizes | None:
    """The ladders of a study; None where no shape has two step sizes, all else being equal."""
    groups: dict[tuple[str, str], dict[tuple[str, str], dict[float, Variant]]]
    groups = defaultdict(lambda: defaultdict(dict))
    settings: dict[tuple[str, str], dict[str, Any]] = {}
    for variant in study.variants:
        config = variant.runs[0].config
        if KNOB not in config or not variant.scores:
            continue
        others = {k: v for k, v in sorted(config.items()) if k not in ASIDE}
        key = variant.task, repr(others)
        settings[key] = others
        groups[key][variant.shape, variant.runs[0].code][float(config[KNOB])] = variant
    cells = []
    streams = itertools.count()  # each mean is resampled by itself: shapes share no draw
    for key, shapes in groups.items():
        swept = {shape: of for shape, of in shapes.items() if len(of) > 1}
        zero = study.at_first(key[0])
        if swept and zero is not None:
            beside = [settings[other] for other in groups if other[0] == key[0]]
            about = _differing(settings[key], beside)
            cells.append(_cell(study, key[0], about, zero, swept, streams))
    return StepSizes(tuple(cells), *_enduring(cells)) if cells else None


def survived(gains: Floats) -> Any:
    """How many step sizes come before the break, from mean gains `[..., step sizes]`.

    >>> survived(np.array([[5.0, 9.0, 5.0, 1.0], [1.0, 8.0, 9.0, 6.0], [-1.0, -2.0, -1.0, -3.0]]))
    array([3, 4, 0])
    """
    top = gains.max(axis=-1, keepdims=True)
    above = np.arange(gains.shape[-1]) > gains.argmax(axis=-1)[..., None]
    broken = above & (gains < LEFT * top)
    first = np.where(broken.any(axis=-1), broken.argmax(axis=-1), gains.shape[-1])
    return np.where(top[..., 0] > 0, first, 0)


def records(found: StepSizes) -> list[dict[str, Any]]:
    """One flat record per cell, shape and step size, with the break of its ladder."""
    return [
        {"task": cell.task, "settings": cell.about, "shape": ladder.shape, "label": ladder.label,
         "lr": rate, "return": e.estimate, "low": e.low, "high": e.high, "seeds": e.n,
         "diverged": e.diverged, "survived": ladder.survived, "breaks_at": ladder.breaks}
        for cell in found.cells
        for ladder in cell.ladders
        for rate, e in ladder.returns.items()
    ]  # fmt: skip


def _differing(own: Mapping[str, Any], every: Sequence[Mapping[str, Any]]) -> str:
    """The settings in which some of several differ, as this one has them."""
    names = dict.fromkeys(name for each in every for name in each)
    unlike = [name for name in names if len({repr(each.get(name)) for each in every}) > 1]
    return ", ".join(f"{name} {plain(own.get(name))}" for name in unlike)


def _cell(
    study: Study,
    task: str,
    about: str,
    zero: float,
    swept: Mapping[tuple[str, str], Mapping[float, Variant]],
    streams: Iterator[int],
) -> Cell:
    finals = [run.final for run in study.runs if run.task == task and run.final is not None]
    lowest = min([zero, *finals])
    shared = Counter(shape for shape, _ in swept)
    ladders = []
    for (shape, code), of in swept.items():
        label = brief(shape) if shared[shape] == 1 else f"{brief(shape)}, code {code}"
        counted = {
            rate: Scores.of(of[rate].scores.values()).counting(lowest) for rate in sorted(of)
        }
        ladders.append(_ladder(shape, label, of, counted, zero, streams))
    rates = sorted({rate for of in swept.values() for rate in of})
    return Cell(task, about, zero, tuple(rates), tuple(ladders))


def _ladder(
    shape: str,
    label: str,
    of: Mapping[float, Variant],
    counted: Mapping[float, Scores],
    zero: float,
    streams: Iterator[int],
) -> Ladder:
    returns = {rate: mean(scores) for rate, scores in counted.items()}
    gains = np.array([e.estimate for e in returns.values()]) - zero
    again = np.stack([_resampled(s, next(streams)) for s in counted.values()], axis=-1) - zero
    variants = {rate: of[rate] for rate in counted}
    replicates = survived(again).astype(float)
    return Ladder(shape, label, variants, returns, int(survived(gains)), replicates)


def _resampled(scores: Scores, stream: int) -> Floats:
    """Means of the scores in resamples of the seeds, `[resamples]`."""
    index = draws((scores.n,), RESAMPLES, 0, stream)
    return np.asarray(scores.values[index].mean(axis=-1))


def _enduring(cells: Sequence[Cell]) -> tuple[tuple[Endurance, ...], tuple[str, ...]]:
    """The shapes that have every step size of every cell, and the labels of the others."""
    ladders: dict[str, list[Ladder]] = defaultdict(list)
    whole: Counter[str] = Counter()
    for cell in cells:
        for ladder in cell.ladders:
            ladders[ladder.label].append(ladder)
            whole[ladder.label] += tuple(ladder.variants) == cell.rates
    shapes = [
        Endurance(of[0].shape, label, next(iter(of[0].variants.values())), *_endured(of))
        for label, of in ladders.items()
        if whole[label] == len(cells)
    ]
    ordered = sorted(shapes, key=lambda each: -each.survived.estimate)
    return tuple(ordered), tuple(label for label in ladders if whole[label] < len(cells))


def _endured(of: Sequence[Ladder]) -> tuple[Estimate, Floats]:
    again = np.mean([ladder.replicates for ladder in of], axis=0)
    estimate = float(np.mean([ladder.survived for ladder in of]))
    every = [e for ladder in of for e in ladder.returns.values()]
    diverged = sum(e.diverged for e in every)
    seeds = min(e.n for e in every)
    whole = _estimate(estimate, again, len(of), seeds)
    return replace(whole, diverged=diverged, counted=diverged), again


def _estimate(value: float, again: Floats, cells: int, seeds: int) -> Estimate:
    """A mean over cells with its interval over seeds, which is unknown from one seed."""
    low = high = None
    if seeds > 1:
        low, high = (float(end) for end in expanded(again, LEVEL, cells, seeds))
    return Estimate(value, low, high, seeds, METHOD, LEVEL, cells)


def apart(shapes: Sequence[Endurance], have: Sequence[str], lack: Sequence[str]) -> Estimate:
    """How many step sizes more the shapes of some labels survive than those of others.

    The interval and the p-value are over seeds: they speak of these shapes and cells.
    """
    of = {each.label: each for each in shapes}
    sides = [[of[label] for label in labels] for labels in (have, lack)]
    first, second = (np.mean([each.survived.estimate for each in side]) for side in sides)
    again = np.subtract(*(np.mean([each.replicates for each in side], axis=0) for side in sides))
    seeds = min(each.survived.n for side in sides for each in side)
    cells = sides[0][0].survived.tasks
    e = _estimate(float(first - second), again, cells, seeds)
    p = None if e.low is None else float(expanded_p(again, 0.0, cells, seeds))
    return replace(e, p=p)
