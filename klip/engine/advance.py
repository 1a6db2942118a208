"""A group of jobs from their folders to their ends: open, restore, iterate, checkpoint, close.

This is what one process does with its jobs, wherever it lives.
"""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from klip.engine.having import Have
from klip.engine.job import Group, Job, Kind, State, Stopped, kind_of, label_of
from klip.engine.programs import kept_programs
from klip.errors import KlipError
from klip.runs import Busy, ChangedMachine, Damaged, Record, RunFolder, folder_of, read_run
from klip.runs.portraits import keep_portrait

CHECKPOINT_EVERY = 60.0  # seconds


class Progress(NamedTuple):
    """What is new about one run."""

    run: str
    """its id"""
    status: str
    """running; done, diverged or failed when it ended; stopped, busy, damaged or changed if it
    could not go on"""
    row: Mapping[str, Any] = {}
    """its latest metrics, in brief"""
    reason: str = ""
    """why it is not done"""
    notes: Sequence[str] = ()
    """what one should know: files that were mended, and the like"""
    saved: int = 0
    """iterations that are safe on disk"""


@dataclass(frozen=True)
class Keeping:
    """How runs are kept on disk."""

    out: Path
    every: float = CHECKPOINT_EVERY
    """seconds between checkpoints"""
    accept_changes: bool = False
    """go on with runs that were begun under other versions or on another processor"""
    start_over: bool = False
    """begin runs again whose checkpoints are all damaged"""
    have: Have = field(default_factory=Have)
    """what packs have, which is not trained again"""

    @property
    def text(self) -> str:
        """As JSON, for another process, which is given only jobs to train."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "have"}
        return json.dumps({**own, "out": str(self.out)})

    @staticmethod
    def read(text: str) -> Keeping:
        """From JSON, as one process hands it to another."""
        own = json.loads(text)
        return Keeping(**{**own, "out": Path(own["out"])})

    def path(self, job: Job) -> Path:
        """A run's folder."""
        return folder_of(self.out, job.task, job.names[0], job.seed, job.id)


Tell = Callable[[Progress], None]


class _Kept(NamedTuple):
    """A job with its folder, which this process has locked."""

    job: Job
    folder: RunFolder

    @property
    def saved(self) -> int:
        """Iterations that are safe on disk."""
        return self.folder.checkpoint.iteration if self.folder.checkpoint else 0

    def news(self, status: str, row: Mapping[str, Any], reason: str = "") -> Progress:
        return Progress(self.job.id, status, row, reason, saved=self.saved)


def advance(
    jobs: Sequence[Job], keeping: Keeping, tell: Tell, stop: Callable[[], bool] = lambda: False
) -> None:
    """Train jobs of one lockstep until each has ended, or until `stop` says so.

    When asked to stop, it saves every run as it is. `tell` hears what is new about each.
    """
    kept: list[_Kept] = []
    try:
        for job in jobs:
            folder = _open(job, keeping, tell)
            if folder is not None:
                kept.append(_Kept(job, folder))
        if kept:
            _train(kind_of(jobs[0].kind), kept, keeping, tell, stop)
    finally:
        for mine in kept:
            mine.folder.close()


def _open(job: Job, keeping: Keeping, tell: Tell) -> RunFolder | None:
    """A run's folder, locked; None where the run is left alone, and `tell` hears why."""
    try:
        folder = RunFolder(
            keeping.path(job),
            job.stored,
            libraries=kind_of(job.kind).libraries,
            accept_changes=keeping.accept_changes,
            start_over=keeping.start_over,
        )
    except KlipError as error:
        statuses = {Busy: "busy", ChangedMachine: "changed", Damaged: "damaged"}
        tell(Progress(job.id, statuses.get(type(error), "stopped"), reason=str(error)))
        return None
    point = folder.checkpoint
    saved = point.iteration if point else 0
    row = {"iteration": saved, "step": saved * job.batch}
    if point is not None and folder.ended:
        folder.close()
        tell(Progress(job.id, point.status, row, point.reason, folder.notes, saved))
        return None
    tell(Progress(job.id, "running", row, notes=folder.notes, saved=saved))
    return folder


def _train(
    kind: Kind, kept: Sequence[_Kept], keeping: Keeping, tell: Tell, stop: Callable[[], bool]
) -> None:
    group, programs = None, contextlib.ExitStack()
    try:
        exchange = programs.enter_context(kept_programs(kind.libraries))
        needed = [[_done(n, keeping) for n in kind.needs(mine.job)] for mine in kept]
        group = kind.open([mine.job for mine in kept], needed)
        if kind.portrait is not None:
            for mine in kept:
                keep_portrait(mine.folder.path, mine.job.stored, partial(kind.portrait, mine.job))
        kept = _restore(group, kept, tell)
        saved_at = began = time.monotonic()
        while kept:
            before = [(run.iteration, group.state(i)) for i, run in enumerate(group.runs)]
            try:
                rows = group.iterate(stop)
            except Stopped:
                _leave(kept, before, "stopped", "it was asked to stop", tell)
                return
            except KlipError:
                raise
            except Exception as error:
                _leave(kept, before, "failed", mistake(error), tell)
                _keep_traceback(kept, error)
                return
            elapsed, began = time.monotonic() - began, time.monotonic()
            due = began - saved_at >= keeping.every
            for i, (run, mine, row) in enumerate(zip(group.runs, kept, rows, strict=True)):
                if row is not None:
                    mine.folder.append(row)
                if run.status != "running" or due:
                    # a run that could not finish its iteration stays as it was before
                    state = before[i][1] if row is None else group.state(i)
                    mine.folder.save(run.iteration, state, run.status, run.reason)
                    mine.folder.keep_traceback(run.traceback)
                brief = {k: row[k] for k in kind.brief if k in row} if row else {}
                speed = {"speed": mine.job.batch / max(elapsed, 1e-9)}
                tell(mine.news(run.status, brief | speed, run.reason))
            if due:
                exchange()
                saved_at = time.monotonic()
            kept = _going_on(group, kept)
    except KlipError as error:
        for mine in kept:
            tell(mine.news("stopped", {}, str(error)))
        if error.__cause__ is not None:  # somebody's code raised it
            _keep_traceback(kept, error)
    except Exception as error:  # a shape is anybody's code, and ours may be wrong
        for mine in kept:
            if group is None and len(kept) > 1:  # whose mistake it is shows when each goes alone
                _train(kind, [mine], keeping, tell, stop)
            else:
                tell(mine.news("failed", {}, mistake(error)))
    finally:
        if group is not None:
            group.close()
        programs.close()


def _done(job: Job, keeping: Keeping) -> Record:
    """The run of a job that others need."""
    path = keeping.path(job)
    record = read_run(path) if path.is_dir() else None
    if record is None or record.status != "done":
        status = f"{record.status} {record.reason}".strip() if record else "not there"
        raise KlipError(f"it needs the {label_of(job)} of seed {job.seed}, which is {status}")
    return record


def _restore(group: Group, kept: Sequence[_Kept], tell: Tell) -> Sequence[_Kept]:
    """Put every run where its checkpoint says; return those that can go on exactly."""
    able = []
    for i, mine in enumerate(kept):
        point = mine.folder.checkpoint
        try:
            if point is not None:
                if point.iteration >= mine.job.iterations:
                    raise KlipError(f"the run has only {mine.job.iterations} iterations")
                group.restore(i, point.iteration, dict(point.arrays))
            able.append(i)
        except KlipError as error:
            why = f"cannot go on from iteration {mine.saved}: {error}"
            tell(mine.news("failed", {}, why))
            _keep_traceback([mine], error)
    return _only(group, kept, able)


def _going_on(group: Group, kept: Sequence[_Kept]) -> Sequence[_Kept]:
    """The runs that have not ended; the others are dropped."""
    running = [i for i, run in enumerate(group.runs) if run.status == "running"]
    return _only(group, kept, running)


def _only(group: Group, kept: Sequence[_Kept], chosen: Sequence[int]) -> Sequence[_Kept]:
    """Drop all runs but those chosen, which are returned."""
    if chosen and len(chosen) < len(kept):
        group.keep(chosen)
    return [kept[i] for i in chosen]


def _leave(
    kept: Sequence[_Kept],
    before: Sequence[tuple[int, State]],
    status: str,
    reason: str,
    tell: Tell,
) -> None:
    """Save every run as it was before the unfinished iteration."""
    for mine, (iteration, state) in zip(kept, before, strict=True):
        if status == "failed":
            mine.folder.save(iteration, state, status, reason)
        elif mine.saved < iteration:
            mine.folder.save(iteration, state)
        tell(mine.news(status, {}, reason))


def _keep_traceback(kept: Sequence[_Kept], error: BaseException) -> None:
    for mine in kept:
        mine.folder.keep_traceback("".join(traceback.format_exception(error)))


def mistake(error: BaseException) -> str:
    """An error that nobody foresaw, in a line: what it is, and where it was raised."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"a mistake in the code: {text[:500]}{place}"
