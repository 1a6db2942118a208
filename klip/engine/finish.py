"""Finish jobs: look at what is there, say how long the rest takes, and train it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from klip.engine.advance import Keeping, Progress
from klip.engine.crew import cores_for, run_here
from klip.engine.having import Have, taken_words
from klip.engine.interruption import Interruption
from klip.engine.job import Job, kind_of, unseeded, with_needs
from klip.engine.memory import check_memory, demand
from klip.engine.schedule import Schedule, schedule
from klip.errors import KlipError
from klip.runs import Damaged, read_run
from klip.runs.files import shown

ENDED = ("done", "diverged")
HERE = "here"
LONG = 60.0  # seconds; for less it is not worth a look how fast this machine is
Listener = Callable[[Progress], None]
Runner = Callable[[Sequence[Job], Keeping, Callable[[], bool]], Iterator[Progress]]
"""Trains jobs, says how each goes on, and ends early when asked to stop."""


@dataclass(frozen=True)
class Result:
    """How one run stands, and where it lies."""

    config: Job
    path: Path
    """its folder, or the pack that has it"""
    status: str
    """done, diverged or failed; stopped, busy, damaged or changed if it could not be trained now"""
    reason: str
    """why it is not done"""
    final_return: float | None
    """mean over the last tenth of the steps, in the paper's definition"""


class Unfinished(KlipError):
    """Some runs failed, or could not be trained; `results` say how each run stands."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.results = list(results)
        left = [r for r in results if r.status not in ENDED]
        first = left[0]
        name = f"{first.config.task} {first.config.names[0]} seed {first.config.seed}"
        more = f" (and {len(left) - 1} more: `.results` of this error has all)" if left[1:] else ""
        super().__init__(
            f"{len(left)} of {len(results)} runs did not end: {name} is {first.status}: "
            f"{shown(first.reason)}{more}"
        )


@dataclass(frozen=True)
class Survey:
    """Which of some jobs have ended, and which are missing."""

    jobs: tuple[Job, ...]
    """those that were asked for"""
    keeping: Keeping
    ended: Mapping[str, Result]
    """by id: those that have ended, with all their files as they were written"""
    missing: tuple[Job, ...]
    """those that have not ended, each after the missing jobs that it needs"""

    @property
    def taken(self) -> list[str]:
        """The ids of jobs whose runs are taken from packs."""
        places = self.keeping.have.places
        return [id for id, result in self.ended.items() if result.path == places.get(id)]


def survey(jobs: Sequence[Job], keeping: Keeping) -> Survey:
    """Look at the folders of jobs, and of the jobs that the missing ones need.

    A run that has not ended in its folder may have ended in a pack. What others begin with must lie
    in a folder: a pack has no checkpoints.
    """
    if not keeping.every >= 0:
        raise KlipError(f"checkpoint_every={keeping.every:g} must be 0 seconds or more")
    ended = _ended(jobs, keeping, keeping.have)
    asked = {job.id for job in jobs}
    missing = with_needs([job for job in jobs if job.id not in ended])
    ended |= _ended([job for job in missing if job.id not in asked], keeping, Have())
    left = tuple(job for job in missing if job.id not in ended)
    return Survey(tuple(jobs), keeping, ended, left)


def here(workers: int | None = None, limit: float | None = None) -> Runner:
    """A runner on this machine, on all cores or some, longest groups first.

    A process of which nothing is heard for `limit` seconds is replaced.
    """
    cores = cores_for(workers)
    if limit is not None and not limit > 0:
        raise KlipError(f"iteration_limit={limit:g} must be more than 0 seconds")

    def run(jobs: Sequence[Job], keeping: Keeping, stop: Callable[[], bool]) -> Iterator[Progress]:
        groups = schedule(jobs, cores).groups
        check_memory(groups, cores)
        return run_here(groups, keeping, stop, cores, limit)

    return run


def finish(
    surveyed: Survey,
    runner: Runner,
    progress: Listener = lambda news: None,
    say: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Train what is missing; return how each job that was asked for stands, in their order.

    Ctrl-C and SIGTERM are raised once all runs are saved. `say` hears when they come.
    """
    check_missing(surveyed)
    for job in surveyed.jobs:
        if (result := surveyed.ended.get(job.id)) is not None:
            row = {"iteration": job.iterations, "step": job.iterations * job.batch}
            progress(Progress(job.id, result.status, row, result.reason, saved=job.iterations))
    latest: dict[str, Progress] = {}
    with Interruption(say) as stop:
        for news in runner(surveyed.missing, surveyed.keeping, stop):
            latest[news.run] = news
            progress(news)
    return [
        surveyed.ended.get(job.id) or _result(job, surveyed.keeping, latest[job.id])
        for job in surveyed.jobs
    ]


def ended(results: list[Result]) -> list[Result]:
    """The results, if every run is done or diverged; else raises `Unfinished`, which has them."""
    if any(result.status not in ENDED for result in results):
        raise Unfinished(results)
    return results


def check_missing(surveyed: Survey) -> None:
    """Raise, before anything starts, for missing jobs that mean nothing or cannot run here."""
    _check_installed({job.kind for job in surveyed.missing})
    alike = {(job.kind, unseeded(job.stored)): job for job in surveyed.missing}
    for job in alike.values():
        kind_of(job.kind).check(job)
    for name in dict.fromkeys(job.kind for job in surveyed.missing):
        kind_of(name).ready([job for job in surveyed.missing if job.kind == name])


def estimate(surveyed: Survey, cores: int, where: str) -> str:
    """What is missing of some runs, and how long it will take, in a sentence or two."""
    asked = {job.id for job in surveyed.jobs}
    missing = [job for job in surveyed.missing if job.id in asked]
    taken = taken_words(surveyed.keeping.have, surveyed.taken, surveyed.missing)
    taken = f"; {taken}" if taken else ""
    if not missing:
        return f"all {len(surveyed.jobs)} runs have ended{taken}"
    more = len(surveyed.missing) - len(missing)
    needed = f" and {more} that they need" if more else ""
    steps = sum(job.iterations * job.batch for job in missing)
    planned = foreseen(surveyed.missing, cores, where)
    machines = f"{cores} core{'s' if cores > 1 else ''} {where}"
    text = (
        f"{len(missing)} of {len(surveyed.jobs)} runs are missing{needed}, "
        f"{steps / 1e6:.1f} million steps: about {duration(planned.seconds)} on {machines}, "
        f"{planned.busy:.0%} of it busy"
    )
    if planned.guessed:
        text += f" (a guess for {', '.join(planned.guessed)}, which nobody has measured)"
    old = demand(planned.groups, cores).words
    return f"{text}; {old}{taken}" if old else f"{text}{taken}"


def foreseen(jobs: Sequence[Job], cores: int, where: str) -> Schedule:
    """The schedule of some jobs; if they run here and take long, at the pace of this machine."""
    planned = schedule(jobs, cores)
    if where != HERE or planned.seconds < LONG:
        return planned
    pace = max(kind_of(name).pace() for name in {job.kind for job in jobs})
    return replace(planned, seconds=pace * planned.seconds)


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42), duration(160), duration(9000)
    ('42 s', '3 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def seconds_in(name: str, time: Any) -> float:
    """The seconds of a time that is written with its units, or given as a number of seconds.

    >>> seconds_in("budget", "1h30m"), seconds_in("budget", 90)
    (5400.0, 90.0)
    """
    if isinstance(time, str):
        parts = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s?)?", time.strip())
        try:
            found = [float(part or 0) for part in parts.groups()] if parts and time.strip() else []
        except ValueError:
            found = []
        seconds = sum(size * each for size, each in zip((3600, 60, 1), found, strict=False))
    else:
        seconds = time if isinstance(time, (int, float)) and not isinstance(time, bool) else 0.0
    if not 0 < seconds < math.inf:
        raise KlipError(f"{name}={time!r} must be a time such as 90s, 30m or 1h30m")
    return float(seconds)


def _check_installed(kinds: set[str]) -> None:
    """Raise, before anything starts, where a library that jobs compute with is missing."""
    for name in sorted({name for kind in kinds for name in kind_of(kind).libraries}):
        try:
            version(name)
        except PackageNotFoundError:
            raise KlipError(
                f"these runs need {name}, which is not installed: pip install 'klip-rl[{name}]'"
            ) from None


def _ended(jobs: Sequence[Job], keeping: Keeping, have: Have) -> dict[str, Result]:
    """The results of jobs that have ended and whose files are as written, by id."""
    results: dict[str, Result] = {}
    for job in jobs:
        path = keeping.path(job)
        try:
            record = read_run(path) if path.is_dir() else None
        except Damaged:
            record = None
        if record and record.status in ENDED and not record.notes:
            final = record.final_return
            results[job.id] = Result(job, path, record.status, record.reason, final)
        elif (run := have.runs.get(job.id)) is not None:
            place = have.places[job.id]
            results[job.id] = Result(job, place, run.status, run.reason, run.final)
    return results


def _result(job: Job, keeping: Keeping, news: Progress) -> Result:
    """How a run stands after what was last heard of it."""
    path = keeping.path(job)
    try:
        value = read_run(path).final_return
    except KlipError:  # why it could not be trained is in the news
        value = None
    return Result(job, path, news.status, news.reason, value)
