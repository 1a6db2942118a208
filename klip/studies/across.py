"""What shapes do over several tasks at once: scores on one scale, pooled, with their intervals.

    (x - zero) / (one - zero)    zero: the task's mean return at first
                                 one:  PPO-Clip's mean final return on it

The pool is a table without holes: tasks that have all its shapes, with equal settings and equally
many seeds. Its choice does not depend on any score, and what is left out is named. A run that
diverged counts at its task's lowest score, 0 or less: without it, a shape that fails often would
look good.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from klip.shapes.names import brief, family
from klip.studies.bootstrap import Floats
from klip.studies.comparing import corrected
from klip.studies.published import PAPER, settings_differ
from klip.studies.scores import Estimate, ScoreProfile, Scores, normalise, stack
from klip.studies.statistics import iqm, mean, performance_profile, probability_of_improvement
from klip.studies.study import Study, Variant, plain

Key = tuple[str, str]
"""A shape as it is spelled, and a digest of the file that defines it."""
CLIP: Final[Key] = (PAPER["ppo_clip"], "")
POINTS: Final = 160
"""A profile has about this many thresholds."""


@dataclass(frozen=True)
class PooledTask:
    """A task's part in the pool."""

    task: str
    zero: float
    """Mean return of all its runs, each in its first iteration in which an episode ended."""
    one: float
    """Mean final return of PPO-Clip."""
    seeds: tuple[int, ...]
    spare: int
    """Ended runs of the pooled shapes at other seeds."""
    unended: int
    """Runs of the pooled shapes that have neither a final return nor diverged."""
    differ: str
    """Settings that are not the paper's."""


@dataclass(frozen=True, eq=False)
class PooledShape:
    """A shape over all pooled tasks, in normalised scores."""

    shape: str
    label: str
    variant: str
    """The label of its variant on the first pooled task, which may name settings, too."""
    scores: Scores
    iqm: Estimate
    mean: Estimate
    better: Estimate | None
    """Probability of improvement over PPO-Clip, corrected for all shapes; None for PPO-Clip."""
    same: bool
    """Whether it has PPO-Clip's scores on every task."""
    profile: ScoreProfile


@dataclass(frozen=True, eq=False)
class Across:
    """All that a report says over tasks."""

    tasks: tuple[PooledTask, ...]
    shapes: tuple[PooledShape, ...]
    """PPO-Clip first."""
    tasks_left: tuple[tuple[str, str], ...]
    """Tasks that are not pooled, and why."""
    shapes_left: tuple[str, ...]
    """Labels of shapes and settings that are not pooled."""

    @property
    def seeds(self) -> int:
        """The number of seeds of each shape on each task."""
        return self.shapes[0].scores.n

    @property
    def diverged(self) -> int:
        """Pooled runs that diverged."""
        return sum(row.scores.diverged for row in self.shapes)


@dataclass(frozen=True)
class _Side:
    """The variants of a task that may be compared, by shape."""

    task: str
    members: Mapping[Key, Variant]
    zero: float
    one: float

    def seeds(self, keys: Sequence[Key]) -> list[int]:
        """The seeds at which all of these shapes have ended."""
        if not all(key in self.members for key in keys):
            return []
        return sorted(set.intersection(*(set(self.members[key].scores) for key in keys)))


def across(study: Study) -> Across | None:
    """The pool; None unless two tasks share PPO-Clip and another shape."""
    all_sides = [_side(study, task) for task in study.tasks]
    sides = [side for side in all_sides if isinstance(side, _Side)]
    picked = _largest(sides)
    if picked is None:
        return None
    keys, chosen = picked
    count = min(len(side.seeds(keys)) for side in chosen)
    tasks = tuple(_task(side, keys, count) for side in chosen)
    scores = _scores(keys, chosen, tasks)
    pooled = {side.task for side in chosen}
    left = []
    for task, side in zip(study.tasks, all_sides, strict=True):
        if not isinstance(side, _Side):
            left.append((task, side))
        elif task not in pooled:
            left.append((task, _why(side, keys)))
    inside = {id(side.members[key]) for side in chosen for key in keys}
    labels = dict.fromkeys(
        v.label
        for v in study.variants
        if id(v) not in inside and (v.task in pooled or _key(v) not in keys)
    )
    rows = _rows(study, keys, chosen, scores)
    return Across(tasks, rows, tuple(left), tuple(labels))


def thresholds(scores: Sequence[Scores]) -> Floats:
    """Round numbers that hold 0, 1 and all scores, and one more at either end.

    >>> thresholds([Scores.of([0.3, 0.9])])[[0, 1, -1]].round(9).tolist()
    [-0.01, 0.0, 1.01]
    """
    low = min(0.0, *(float(s.values.min()) for s in scores))
    high = max(1.0, *(float(s.values.max()) for s in scores))
    rough = (high - low) / POINTS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough)
    first, last = math.floor(low / step) - 1, math.ceil(high / step) + 1
    return np.arange(first, last + 1, dtype=float) * step


def records(pool: Across) -> list[dict[str, Any]]:
    """One flat record per number: a task's 0 and 1, a shape's estimates, its profile by tau."""
    numbers = []
    for part in pool.tasks:
        for name, value in (("zero", part.zero), ("one", part.one)):
            about: dict[str, Any] = {"task": part.task, "seeds": len(part.seeds)}
            numbers.append(_record(name, value, about))
    for row in pool.shapes:
        about = {
            "shape": row.shape, "label": row.label, "tasks": len(pool.tasks),
            "seeds": row.scores.n, "diverged": row.scores.diverged,
        }  # fmt: skip
        for name, e in (("iqm", row.iqm), ("mean", row.mean), ("improvement", row.better)):
            if e is not None:
                more = {"low": e.low, "high": e.high, "method": e.method}
                more |= {"p": e.p, "p_holm": e.p_holm}
                numbers.append(_record(name, e.estimate, about | more))
        p = row.profile
        for i, tau in enumerate(p.taus):
            low, high = (None if end is None else float(end[i]) for end in (p.low, p.high))
            at = {"tau": float(f"{tau:.9g}"), "low": low, "high": high, "method": p.method}
            numbers.append(_record("profile", float(p.fraction[i]), about | at))
    return numbers


def _record(name: str, estimate: float, about: Mapping[str, Any]) -> dict[str, Any]:
    columns = ("task", "shape", "label", "tau", "estimate", "low", "high", "method", "p", "p_holm",
               "tasks", "seeds", "diverged")  # fmt: skip
    return {"statistic": name, **dict.fromkeys(columns), "estimate": estimate, **about}


# -- what is pooled -------------------------------------------------------------------------------


def _side(study: Study, task: str) -> _Side | str:
    """What may be pooled of a task, or why nothing may."""
    groups: dict[str, dict[Key, Variant]] = {}
    for v in study.of(task):
        if v.scores:
            groups.setdefault(repr(sorted(v.settings.items())), {})[_key(v)] = v
    with_clip = [members for members in groups.values() if CLIP in members]
    if not with_clip:
        return "PPO-Clip has not ended there"
    # The paper's settings before others, unless nothing else was run with them.
    members = min(
        with_clip,
        key=lambda m: (len(m) < 2, bool(settings_differ(task, m[CLIP].settings)), -len(m)),
    )
    if len(members) < 2:
        return "no other shape has ended there with PPO-Clip’s settings"
    finals = [score for score in members[CLIP].scores.values() if score is not None]
    if not finals:
        return "PPO-Clip has no final return there"
    zero, one = study.at_first(task), float(np.mean(finals))
    if zero is None or not one > zero:
        return "PPO-Clip ends no higher there than runs begin"
    return _Side(task, members, zero, one)


def _key(variant: Variant) -> Key:
    return variant.shape, variant.runs[0].code


def _largest(sides: Sequence[_Side]) -> tuple[list[Key], list[_Side]] | None:
    """Shapes and tasks with the largest (tasks - 1) (shapes - 1) seeds, and at least 2 of both.

    A shape that was run with several numbers counts once: a sweep on some of the tasks does not
    cost all others. Among tables of one size, the one that is largest with all numbers counted.
    The search is among the shapes with most runs, and for them among the tasks with most seeds.
    """
    runs: dict[Key, int] = {}
    for side in sides:
        for key, variant in side.members.items():
            runs[key] = runs.get(key, 0) + len(variant.scores)
    order = sorted(runs, key=lambda key: (key != CLIP, -runs[key]))
    best, largest = (0, 0, 0), None
    for shapes in range(2, len(order) + 1):
        keys = order[:shapes]
        families = len({(family(shape), code) for shape, code in keys})
        ranked = sorted(sides, key=lambda side: -len(side.seeds(keys)))
        for tasks in range(2, len(ranked) + 1):
            cells = (tasks - 1) * len(ranked[tasks - 1].seeds(keys))
            size = cells * (families - 1), cells * (shapes - 1), tasks
            if cells and size > best:
                best, largest = size, (keys, ranked[:tasks])
    if largest is None:
        return None
    keys, chosen = largest
    return keys, sorted(chosen, key=lambda side: side.task)


def _why(side: _Side, keys: Sequence[Key]) -> str:
    missing = [brief(key[0]) for key in keys if key not in side.members]
    if missing:
        return f"without {', '.join(missing)}"
    shared = len(side.seeds(keys))
    return f"only {shared} seed{'' if shared == 1 else 's'} at which all shapes have ended"


def _task(side: _Side, keys: Sequence[Key], count: int) -> PooledTask:
    members = [side.members[key] for key in keys]
    ended = sum(len(v.scores) for v in members)
    differ = settings_differ(side.task, members[0].settings)
    return PooledTask(
        side.task, side.zero, side.one, tuple(side.seeds(keys)[:count]),
        ended - count * len(keys), sum(len(v.runs) for v in members) - ended,
        ", ".join(f"{name} {plain(ours)}" for name, (ours, _) in differ.items()),
    )  # fmt: skip


# -- what is said of it ---------------------------------------------------------------------------


def _scores(
    keys: Sequence[Key], sides: Sequence[_Side], tasks: Sequence[PooledTask]
) -> dict[Key, Scores]:
    """Normalised scores by shape, tasks stacked, diverged runs at the lowest score."""
    by_key: dict[Key, dict[str, Scores]] = {key: {} for key in keys}
    for side, part in zip(sides, tasks, strict=True):
        of = {k: [side.members[k].scores[seed] for seed in part.seeds] for k in keys}
        known = [score for runs in of.values() for score in runs if score is not None]
        lowest = min([part.zero, *known])
        for key, runs in of.items():
            counted = Scores.of(runs).counting(lowest)
            by_key[key][part.task] = normalise(counted, part.zero, part.one)
    return {key: stack(by_task) for key, by_task in by_key.items()}


def _rows(
    study: Study, keys: Sequence[Key], sides: Sequence[_Side], scores: Mapping[Key, Scores]
) -> tuple[PooledShape, ...]:
    taus = thresholds(list(scores.values()))
    clip = scores[CLIP]
    rows = []
    for key in keys:
        shape, own = key[0], scores[key]
        label = brief(shape)
        if sum(other == shape for other, _ in keys) > 1:
            label = f"{label}, code {key[1]}"
        better = None if key == CLIP else probability_of_improvement(own, clip)
        same = np.array_equal(own.values, clip.values)
        if better is not None and same:  # its runs are PPO-Clip's: there is nothing to test
            better = replace(better, p=None)
        variant = label if label in study.labels else sides[0].members[key].label
        profile = performance_profile(own, taus)
        rows.append(
            PooledShape(shape, label, variant, own, iqm(own), mean(own), better, same, profile)
        )
    others = [row for row in rows if row.better is not None]
    tests = corrected([row.better for row in others if row.better is not None])
    rows = [row for row in rows if row.better is None]
    rows += [replace(row, better=test) for row, test in zip(others, tests, strict=True)]
    order = study.labels.index
    return tuple(sorted(rows, key=lambda row: (row.better is not None, order(row.variant))))
