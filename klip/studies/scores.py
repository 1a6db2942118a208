"""What statistics take and give back: scores of runs, and estimates from them.

Each carries the number of its runs and of those that diverged, and `str` says both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from klip.errors import KlipError
from klip.studies.bootstrap import Floats

ONE_RUN = "an interval cannot be known from one run"


@dataclass(frozen=True, eq=False)
class Scores:
    """One score a run: those of one task, or (from `stack`) of several.

    >>> print(Scores.of([2.0, None, 3.0, 1.0]))
    3 runs, 1 more diverged
    """

    values: Floats
    """`[runs]`, or `[tasks, runs]`; sorted."""
    diverged: int = 0
    """Runs that diverged, whether or not they are among the values."""
    counted: int = 0
    """How many of those are among the values, with a score that was given to them."""
    tasks: tuple[str, ...] = ()
    """The tasks' names, where several are stacked."""

    def __post_init__(self) -> None:
        values = np.sort(np.asarray(self.values, dtype=float), axis=-1) + 0.0  # no -0.0
        if values.ndim not in (1, 2):
            raise KlipError(f"scores have {values.ndim} axes; give [runs] or [tasks, runs]")
        if not np.isfinite(values).all():
            bad = float(values[~np.isfinite(values)][0])
            raise KlipError(f"a score is {bad:g}; a run that diverged has no score: give None")
        if not 0 <= self.counted <= self.diverged:
            raise KlipError(
                f"{self.counted} of {self.diverged} diverged runs are counted; "
                "give 0 <= counted <= diverged"
            )
        if values.size == 0 and self.diverged == 0:
            raise KlipError("there are no scores; give at least one run")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    @classmethod
    def of(cls, runs: Iterable[float | None]) -> Scores:
        """The scores of one task's runs; None is a run that diverged."""
        scores = list(runs)
        known = [score for score in scores if score is not None]
        return cls(np.array(known, dtype=float), diverged=len(scores) - len(known))

    def counting(self, score: float) -> Scores:
        """The same scores with every diverged run counted at `score`, say a random policy's.

        >>> print(Scores.of([2.0, None]).counting(0.0))
        2 runs, 1 of them diverged
        """
        if self.values.ndim != 1:
            raise KlipError("count the diverged runs of each task before stacking the tasks")
        added = np.full(self.diverged - self.counted, float(score))
        values = np.concatenate([self.values, added])
        return replace(self, values=values, counted=self.diverged)

    @property
    def n(self) -> int:
        """Runs with a score, of each task."""
        return int(self.values.shape[-1])

    @property
    def grid(self) -> Floats:
        """The values as `[tasks, runs]`."""
        if self.values.size == 0:
            raise KlipError(
                f"all {self.diverged} runs diverged: there is no score to summarise; "
                "count them with `counting(score)`, or report only that they diverged"
            )
        return np.atleast_2d(self.values)

    def __str__(self) -> str:
        return _runs(self.n, len(self.values) if self.values.ndim == 2 else 1) + _fate(
            self.diverged, self.counted
        )


@dataclass(frozen=True)
class Estimate:
    """A number, an interval that holds the truth with probability `level`, and its grounds."""

    estimate: float
    low: float | None
    """None where it cannot be known: from one run."""
    high: float | None
    n: int
    """Runs of each task that have a score."""
    method: str
    level: float
    tasks: int = 1
    against: int | None = None
    """Runs on the other side of a comparison."""
    diverged: int = 0
    counted: int = 0
    remark: str = ""
    p: float | None = None
    """Of a comparison: how likely one at least as far off is where there is no difference."""
    p_holm: float | None = None
    """The same, corrected for all comparisons of its `family`; claims rest on it."""
    family: int = 1

    def __str__(self) -> str:
        text = _number(self.estimate)
        if self.low is not None and self.high is not None:
            text += f" [{_number(self.low)}, {_number(self.high)}], {self.level:.4g} {self.method}"
        if self.p_holm is not None:
            text += f", p {self.p_holm:.2g} (Holm, {self.family} comparisons)"
        elif self.p is not None:
            text += f", p {self.p:.2g}"
        text += f", {_runs(self.n, self.tasks)}"
        if self.against is not None:
            text += f" against {self.against}"
        text += _fate(self.diverged, self.counted)
        return f"{text} ({self.remark})" if self.remark else text


@dataclass(frozen=True)
class Summary:
    """What a table shows of one task's runs."""

    mean: float
    std: float
    """Over n: the population's, as papers print it."""
    sample_std: float | None
    """Over n - 1: an estimate for seeds not yet run. None from one run."""
    iqm: float
    n: int
    diverged: int
    counted: int

    def __str__(self) -> str:
        return (
            f"mean {_number(self.mean)}, std {_number(self.std)}, IQM {_number(self.iqm)}, "
            + _runs(self.n, 1)
            + _fate(self.diverged, self.counted)
        )


@dataclass(frozen=True)
class ScoreProfile:
    """Which fraction of runs scores above tau, for each tau."""

    taus: Floats
    """`[K]`"""
    fraction: Floats
    """`[K]`"""
    low: Floats | None
    """`[K]`; None from one run. The band holds at each tau, not along the whole line."""
    high: Floats | None
    n: int
    method: str
    level: float
    tasks: int = 1
    diverged: int = 0
    counted: int = 0

    def __str__(self) -> str:
        text = f"profile at {self.taus.size} thresholds, {_runs(self.n, self.tasks)}"
        text += _fate(self.diverged, self.counted)
        return text if self.low is not None else f"{text} ({ONE_RUN})"


@dataclass(frozen=True)
class Paired:
    """First minus second at the same seeds, and the seeds that could not be paired."""

    difference: Estimate
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    diverged: tuple[int, ...]
    """Seeds at which either run diverged."""
    identical: bool
    """Whether every pair has a difference of exactly 0."""

    def __str__(self) -> str:
        text = str(self.difference).replace(" run", " pair", 1)
        for what, seeds in (
            ("only in the first", self.only_first),
            ("only in the second", self.only_second),
            ("diverged", self.diverged),
        ):
            if seeds:
                text += f"; {what}: seed {', '.join(map(str, seeds))}"
        return text


def stack(tasks: Mapping[str, Scores]) -> Scores:
    """Scores `[tasks, runs]` from those of each task, in the order of the tasks' names.

    >>> print(stack({"Hopper": Scores.of([1.0, 2.0]), "Ant": Scores.of([3.0, 4.0])}))
    2 runs on each of 2 tasks
    """
    if not tasks:
        raise KlipError("there are no tasks; give at least one")
    names = tuple(sorted(tasks))
    first = tasks[names[0]]
    for name in names:
        scores = tasks[name]
        if scores.values.ndim != 1:
            raise KlipError(f"{name} is stacked already; give the scores of one task")
        if scores.n != first.n:
            raise KlipError(
                f"{name} has {scores}, but {names[0]} has {first}: a task with more runs would "
                "weigh more; take the seeds that all tasks have, or count diverged runs with "
                "`counting(score)`"
            )
    return Scores(
        np.stack([tasks[name].values for name in names]),
        sum(scores.diverged for scores in tasks.values()),
        sum(scores.counted for scores in tasks.values()),
        names,
    )


def normalise(scores: Scores, low: ArrayLike, high: ArrayLike) -> Scores:
    """(x - low) / (high - low); `low` and `high` are numbers or `[tasks]`, say random and best.

    >>> normalise(Scores.of([10.0, 30.0]), low=10.0, high=50.0).values
    array([0. , 0.5])
    """
    zero, one = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    wanted = (len(scores.values),) if scores.values.ndim == 2 else ()
    for name, bound in (("low", zero), ("high", one)):
        if bound.shape not in ((), wanted):
            raise KlipError(f"{name} has shape {list(bound.shape)}; give a number or {[*wanted]}")
    gap = one - zero
    if not (np.isfinite(gap) & (gap > 0)).all():
        raise KlipError(f"high - low is {gap.min():g}; the score of 1 must lie above that of 0")
    return replace(scores, values=(scores.values - zero[..., None]) / gap[..., None])


def _number(x: float) -> str:
    return f"{x:.0f}" if abs(x) >= 1e4 else f"{x:.4g}"


def _runs(n: int, tasks: int) -> str:
    text = f"{n} run{'' if n == 1 else 's'}"
    return text if tasks == 1 else f"{text} on each of {tasks} tasks"


def _fate(diverged: int, counted: int) -> str:
    text = f", {counted} of them diverged" if counted else ""
    return text + (f", {diverged - counted} more diverged" if diverged > counted else "")
