"""`klip.compare`: add seeds until it is clear which shape is better, or that it does not matter.

    question ── look: the missing runs, through the engine ── answer ──┐
        └───────────── a quarter more seeds, while a pair is open ─────┘

An answer is a function of the runs at each look, so a comparison that was killed comes to the same
one, and no run is trained twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from klip.engine.advance import CHECKPOINT_EVERY, Keeping
from klip.engine.fields import whole_number
from klip.engine.finish import (
    ENDED,
    Listener,
    Result,
    Runner,
    Survey,
    Unfinished,
    check_missing,
    duration,
    finish,
    foreseen,
    seconds_in,
    survey,
)
from klip.engine.run import Site, site
from klip.errors import KlipError
from klip.ppo.config import Config
from klip.ppo.train import plan
from klip.shapes import Region
from klip.studies.answering import Ending, Metric, Pair, Side, look, outcome
from klip.studies.reading import read_one
from klip.studies.sequential import FIRST, LEVEL, looks

Train = Callable[[Survey, Runner], list[Result]]
"""Trains what is missing of a look."""
Stop = Literal["clear", "max_seeds", "budget"]


@dataclass(frozen=True)
class Inquiry:
    """Which shape is better than the first, on which tasks, and what counts as a difference."""

    shapes: tuple[str, ...]
    """The first is the reference."""
    tasks: tuple[str, ...]
    metric: Metric
    margin: float
    max_seeds: int
    fields: Mapping[str, Any]
    """Of the config."""

    def jobs(self, shapes: Sequence[str], seeds: int) -> list[Config]:
        """The runs of some shapes at a look with so many seeds."""
        return [c for task in self.tasks for c in plan(task, shapes, seeds, **self.fields)]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Each other shape against the first, nothing seen yet.

        All intervals of all pairs hold together with probability `LEVEL`.
        """
        reference, *others = self.shapes
        alpha = (1 - LEVEL) / len(others)
        return tuple(Pair(shape, reference, self.metric, alpha) for shape in others)


@dataclass(frozen=True)
class Answers:
    """What a comparison came to."""

    question: Inquiry
    pairs: tuple[Pair, ...]
    stopped: Stop
    """Every pair is clear, or seeds or time were used up."""

    @property
    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        q = self.question
        return {
            "reference": q.shapes[0],
            "tasks": list(q.tasks),
            "metric": q.metric,
            "margin": q.margin,
            "unit": unit(q),
            "level": LEVEL,
            "stopped": self.stopped,
            "pairs": [pair.fields for pair in self.pairs],
        }


def unit(question: Inquiry) -> str:
    """What differences over all tasks are measured in."""
    return "return" if len(question.tasks) == 1 else "normalised score"


def compare(
    shapes: Sequence[str | Region],
    task: str | Sequence[str] = (),
    margin: float = 0.05,
    budget: str | float | None = None,
    max_seeds: int = 60,
    metric: Metric = "final",
    *,
    out: str | Path = "runs",
    workers: int | None = None,
    ray: str | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    progress: Listener = lambda news: None,
    **fields: Any,
) -> Answers:
    """Add seeds until each shape is better or worse than the first, or equivalent to it.

    Intervals hold at every look at once (`klip.studies.sequential`), so stopping at an answer does
    not make it less sure: with normal scores all answers are right with a probability of 95 %.
    Raises `Unfinished` where a run failed.

    >>> answers = compare(["clip", "spo"], "Hopper-v4", budget="30m")  # doctest: +SKIP
    >>> answers.pairs[0].answer  # doctest: +SKIP

    Args:
        shapes: two or more trust regions or controllers, or their spellings; the first is the
            reference
        task: one or several; scores of several are normalised, and the answer is about their mean
        margin: a difference within this share of what the reference has learned is none
        budget: time for training, such as "30m", or seconds; no limit unless given
        max_seeds: the most seeds for each shape and task
        metric: "final" return, or "area" under the learning curve; both are reported
        out: folder for the runs; those that are there are used
        workers: number of processes here; one per core unless given
        ray: address of a Ray cluster to train on; "auto" is the one this machine belongs to
        checkpoint_every: seconds between checkpoints
        accept_changes: go on with runs begun under other versions or on another processor
        start_over: begin again the runs whose checkpoints are all damaged
        progress: called with the news of every iteration of every run
        fields: those of `Config`, `steps` among them, and a `preset` below them

    Returns:
        each pair with its answer, difference, interval and seeds, over all tasks and for each

    """
    question = ask(shapes, task, margin, max_seeds, metric, **fields)
    keeping = Keeping(Path(out), checkpoint_every, accept_changes, start_over)
    time_left = None if budget is None else seconds_in("budget", budget)

    def train(surveyed: Survey, runner: Runner) -> list[Result]:
        return finish(surveyed, runner, progress)

    return answer(question, keeping, site(workers, ray), time_left, train)


def ask(
    shapes: Sequence[str | Region],
    task: str | Sequence[str],
    margin: float = 0.05,
    max_seeds: int = 60,
    metric: Metric = "final",
    **fields: Any,
) -> Inquiry:
    """A question that means something; an error in a line where it does not."""
    tasks = (task,) if isinstance(task, str) else tuple(task)
    if isinstance(shapes, (str, Region)) or len(shapes) < 2:
        raise KlipError("there is nothing to compare: give two shapes or more")
    if not tasks:
        raise KlipError("a comparison needs a task: give one, such as --task Hopper-v4")
    if len(set(tasks)) < len(tasks):
        raise KlipError(f"a task is named twice in {', '.join(tasks)}: give each once")
    if metric not in get_args(Metric):
        raise KlipError(f"metric={metric!r} must be one of {', '.join(get_args(Metric))}")
    if isinstance(margin, bool) or not isinstance(margin, (int, float)) or not 0 < margin < 1:
        raise KlipError(f"margin={margin!r} must lie between 0 and 1, such as 0.05 for 5 %")
    most = looks(whole_number("max_seeds", max_seeds))[-1]
    first = {each: plan(each, shapes, 1, **fields) for each in tasks}  # checks each
    return Inquiry(tuple(c.shape for c in first[tasks[0]]), tasks, metric, margin, most, fields)


def answer(
    question: Inquiry,
    keeping: Keeping,
    where: Site,
    budget: float | None,
    train: Train,
    seen: Callable[[Sequence[Pair]], None] = lambda pairs: None,
) -> Answers:
    """Look, and train what the next look needs, until all is clear or the budget ends.

    Args:
        question: what is asked
        keeping: where and how runs are kept
        where: who trains
        budget: seconds
        train: trains the missing runs of a look
        seen: hears of the pairs after every look

    """
    pairs, known = question.pairs, dict[str, Ending]()
    pace = _Pace(budget)
    for seeds in looks(question.max_seeds):
        going = [pair.shape for pair in pairs if pair.answer == "open"]
        jobs = question.jobs([question.shapes[0], *going], seeds)
        surveyed = survey(jobs, keeping)
        if surveyed.missing:
            check_missing(surveyed)
            expected = foreseen(surveyed.missing, where.cores, where.words).seconds
            if seeds == FIRST:
                pace.first(expected, len(surveyed.missing))
            if not pace.allows(expected):
                return Answers(question, pairs, "budget")
            results = train(surveyed, pace.limited(where.runner))
            if any(result.status not in ENDED for result in results):
                if pace.over and all(r.status in (*ENDED, "stopped") for r in results):
                    return Answers(question, pairs, "budget")
                raise Unfinished(results)
            pace.took(expected)
        for job in jobs:
            if job.id not in known:
                known[job.id] = outcome(read_one(keeping.path(job)))
        pairs = tuple(
            _looked(question, pair, jobs, known) if pair.answer == "open" else pair
            for pair in pairs
        )
        seen(pairs)
        if all(pair.answer != "open" for pair in pairs):
            return Answers(question, pairs, "clear")
    return Answers(question, pairs, "max_seeds")


def _looked(
    question: Inquiry, pair: Pair, jobs: Sequence[Config], known: Mapping[str, Ending]
) -> Pair:
    """The pair after one more look."""

    def side(shape: str) -> Side:
        return {
            task: [known[job.id] for job in jobs if (job.task, job.shape) == (task, shape)]
            for task in question.tasks
        }

    more = look(side(pair.reference), side(pair.shape), question.margin, pair.alpha)
    return replace(pair, seen=(*pair.seen, more))


class _Pace:
    """A budget of seconds, and how much longer than expected looks have taken so far."""

    def __init__(self, budget: float | None) -> None:
        self.budget = budget
        self.began = self.last = time.monotonic()
        self.expected = 0.0

    @property
    def over(self) -> bool:
        """Whether the budget is used up."""
        return self.budget is not None and time.monotonic() - self.began >= self.budget

    def first(self, expected: float, runs: int) -> None:
        """Raise where not even the first look fits."""
        if self.budget is not None and expected > self.budget:
            raise KlipError(
                f"budget={self.budget:g} s is too small for the first look: its {runs} missing "
                f"runs take about {duration(expected)}; give more time, or fewer steps"
            )

    def allows(self, expected: float) -> bool:
        """Whether a look fits that should take so long, at the pace of those before."""
        if self.budget is None:
            return True
        spent = time.monotonic() - self.began
        slower = max(spent / self.expected, 1.0) if self.expected else 1.0
        return spent + slower * expected <= self.budget

    def took(self, expected: float) -> None:
        """Note that a look is done which should have taken so long."""
        self.expected += expected

    def limited(self, runner: Runner) -> Runner:
        """The runner, which saves its runs and stops when the budget is used up."""
        return lambda jobs, keeping, stop: runner(jobs, keeping, lambda: stop() or self.over)
