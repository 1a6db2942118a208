"""What two shapes' runs say of their difference, look by look: better, worse, equivalent, or open.

    d_i = mean over tasks of (x_i - y_i) / |one - zero|      x: the shape, y: its reference
    zero: the mean return with which runs begin on the task; one: the reference's mean score

is the difference of the i-th seeds. With a single task it is x_i - y_i, in units of the return. The
margin is a share of what the reference has learned, one - zero: where an interval is narrow enough
to lie within it, the margin is known to a few per cent of itself.

A run that diverged counts at its task's lowest score, and no higher than runs begin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from klip.errors import KlipError
from klip.studies.bootstrap import Floats
from klip.studies.sequential import Answer, interval, seeds_until_clear, verdict
from klip.studies.study import Run

Metric = Literal["final", "area"]
METRICS: Final[tuple[Metric, ...]] = ("final", "area")
"""The mean return over the last tenth of the steps, and over all of training."""


class Ending(NamedTuple):
    """What a comparison needs to know of a run that has ended."""

    final: float | None
    """None where it diverged."""
    area: float | None
    first: float
    """The return with which it began."""
    curve: str
    """A digest of its learning curve."""


Side = Mapping[str, Sequence[Ending]]
"""A shape's runs by task, each by seed."""


@dataclass(frozen=True)
class Reading:
    """What the first seeds say."""

    seeds: int
    difference: float
    low: float | None
    """None where nothing bounds it: from too few seeds, or where differences do not scatter."""
    high: float | None
    margin: float
    answer: Answer
    deviation: float
    """Of the differences."""


@dataclass(frozen=True)
class Readings:
    """What the first seeds say, by either metric, of all tasks together and of each."""

    pooled: Mapping[Metric, Reading]
    tasks: Mapping[str, Mapping[Metric, Reading]]


@dataclass(frozen=True)
class Pair:
    """A shape against the reference: all looks so far."""

    shape: str
    reference: str
    metric: Metric
    """By which the question is answered."""
    alpha: float
    seen: tuple[Readings, ...] = ()

    @property
    def looks(self) -> tuple[Reading, ...]:
        """Of all tasks together, by the metric of the question."""
        return tuple(looks.pooled[self.metric] for looks in self.seen)

    @property
    def answer(self) -> Answer:
        """What the last look says; a pair that is answered is not looked at again."""
        return self.looks[-1].answer if self.seen else "open"

    @property
    def more(self) -> int | None:
        """Seeds that an open pair still lacks, if the difference stays as it is; None: unknown."""
        if not self.seen or self.answer != "open" or not self.looks[-1].deviation:
            return None
        look = self.looks[-1]
        enough = seeds_until_clear(look.difference, look.deviation, look.margin, self.alpha)
        return None if enough is None else max(enough - look.seeds, 1)

    @property
    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        last = self.seen[-1] if self.seen else Readings({}, {})
        about: dict[str, Any] = {"shape": self.shape, "reference": self.reference}
        about |= _fields(self.looks[-1]) if self.seen else {"answer": "open", "seeds": 0}
        about["more_seeds"] = self.more
        about |= {metric: _fields(look) for metric, look in last.pooled.items()}
        about["tasks"] = {
            task: _fields(looks[self.metric])
            | {metric: _fields(look) for metric, look in looks.items()}
            for task, looks in last.tasks.items()
        }
        about["looks"] = [_fields(look) for look in self.looks]
        return about


def outcome(run: Run) -> Ending:
    """What a comparison needs of a run that is done or diverged."""
    returns = run.metrics.get("return_mean", np.empty(0))
    known = returns[~np.isnan(returns)]
    if run.status == "done" and run.final is None:
        raise KlipError(
            f"{run.path} has no final return, since no episode ended late in it: "
            "give more steps, or a task with shorter episodes"
        )
    first = float(known[0]) if len(known) else float("nan")
    curve = hashlib.sha256(returns.tobytes()).hexdigest()
    return Ending(run.final, run.over_training, first, curve)


def look(reference: Side, shape: Side, share: float, alpha: float) -> Readings:
    """What equally many seeds of a shape and of its reference say.

    Args:
        reference: runs of the reference, by task
        shape: runs of the shape, by the same tasks
        share: the margin, as a share of what the reference has learned
        alpha: of the interval, which holds at all looks at once

    """
    own = {
        task: {m: _task_look(reference[task], shape[task], m, share, alpha) for m in METRICS}
        for task in reference
    }
    if len(own) == 1:
        return Readings(next(iter(own.values())), own)
    pooled: dict[Metric, Reading] = {}
    for metric in METRICS:
        parts = []
        for task in reference:
            differences, scale = _differences(reference[task], shape[task], metric)
            if not scale > 0:
                raise KlipError(
                    f"the reference has learned nothing on {task}, so scores there have no scale: "
                    "give more steps, or compare without that task"
                )
            parts.append(differences / scale)
        same = all(_identical(reference[task], shape[task]) for task in reference)
        pooled[metric] = _look(np.mean(parts, axis=0), share, alpha, same)
    return Readings(pooled, own)


def _task_look(
    reference: Sequence[Ending],
    shape: Sequence[Ending],
    metric: Metric,
    share: float,
    alpha: float,
) -> Reading:
    differences, scale = _differences(reference, shape, metric)
    return _look(differences, share * scale, alpha, _identical(reference, shape))


def _differences(
    reference: Sequence[Ending], shape: Sequence[Ending], metric: Metric
) -> tuple[Floats, float]:
    """Differences `[n]` in units of the return, and what the reference has learned."""
    firsts = [run.first for run in (*reference, *shape) if not np.isnan(run.first)]
    zero = float(np.mean(firsts)) if firsts else 0.0
    known = [x for run in (*reference, *shape) if (x := getattr(run, metric)) is not None]
    lowest = min([zero, *known])
    of = [
        np.array([lowest if (x := getattr(run, metric)) is None else x for run in side])
        for side in (shape, reference)
    ]
    return of[0] - of[1], abs(float(of[1].mean()) - zero)


def _identical(reference: Sequence[Ending], shape: Sequence[Ending]) -> bool:
    """Whether the learning curves are the same at every seed, not the scores alone."""
    return all(x.curve == y.curve for x, y in zip(reference, shape, strict=True))


def _look(differences: Floats, margin: float, alpha: float, same: bool) -> Reading:
    n, middle = len(differences), float(differences.mean())
    if same:  # one run twice: there is nothing to estimate
        return Reading(n, 0.0, 0.0, 0.0, margin, "equivalent", 0.0)
    low, high = map(float, interval(differences, alpha))
    deviation = float(differences.std(ddof=1)) if np.ptp(differences) else 0.0
    answer = verdict(low, high, margin)
    if not np.isfinite(low):
        return Reading(n, middle, None, None, margin, answer, deviation)
    return Reading(n, middle, low, high, margin, answer, deviation)


def _fields(look: Reading) -> dict[str, Any]:
    fields = asdict(look)
    return {"answer": fields.pop("answer"), **fields}
