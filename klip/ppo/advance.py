"""A cohort from its folders to their ends: open, restore, iterate, checkpoint, close.

What one process does with the runs it was given, wherever that process lives.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from klip.errors import KlipError
from klip.ppo.config import Config
from klip.runs import Busy, ChangedMachine, Damaged, DiskTrouble, RunFolder, folder_of

CHECKPOINT_EVERY = 60.0  # seconds


class Progress(NamedTuple):
    """What is new about one run."""

    run: int
    status: str
    """running; done, diverged or failed when it ended; stopped, busy, damaged or changed if it
    could not"""
    row: Mapping[str, Any] = {}
    """its latest metrics, in brief"""
    reason: str = ""
    """why it did not get done"""
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

    @staticmethod
    def read(text: str) -> Keeping:
        """From JSON, as one process hands it to another."""
        fields = json.loads(text)
        return Keeping(**{**fields, "out": Path(fields["out"])})

    def path(self, c: Config) -> Path:
        """A run's folder."""
        return folder_of(self.out, c.task, c.shape, c.seed, c.id)


Tell = Callable[[Progress], None]
Jobs = Sequence[tuple[int, Config]]
"""Runs that may share a cohort, each with the number by which it is spoken of."""


def advance(jobs: Jobs, keeping: Keeping, tell: Tell, stop: Callable[[], bool]) -> None:
    """Train runs until each has ended, or until `stop` says so; then they are saved as they are."""
    opened: list[tuple[int, RunFolder, Config]] = []
    try:
        for number, c in jobs:
            folder = _open(number, c, keeping, tell)
            if folder is not None:
                opened.append((number, folder, c))
        if opened:
            _train(opened, keeping.every, tell, stop)
    finally:
        for _, folder, _ in opened:
            folder.close()


def _open(number: int, c: Config, keeping: Keeping, tell: Tell) -> RunFolder | None:
    """A run's folder, unless there is a reason to leave the run alone; then that is told."""
    try:
        folder = RunFolder(
            keeping.path(c), dataclasses.asdict(c),
            accept_changes=keeping.accept_changes, start_over=keeping.start_over,
        )  # fmt: skip
    except Busy as error:
        tell(Progress(number, "busy", reason=str(error)))
    except ChangedMachine as error:
        tell(Progress(number, "changed", reason=str(error)))
    except Damaged as error:
        tell(Progress(number, "damaged", reason=str(error)))
    except DiskTrouble as error:
        tell(Progress(number, "stopped", reason=str(error)))
    else:
        point = folder.checkpoint
        saved = point.iteration if point else 0
        told = {"iteration": saved, "step": saved * c.batch}
        if folder.ended:
            assert point is not None
            folder.close()
            tell(Progress(number, point.status, told, point.reason, folder.notes, saved))
            return None
        tell(Progress(number, "running", told, notes=folder.notes, saved=saved))
        return folder
    return None


class _Kept(NamedTuple):
    """A run of the cohort, by its number, with its folder."""

    number: int
    folder: RunFolder

    @property
    def saved(self) -> int:
        """Iterations that are safe on disk."""
        return self.folder.checkpoint.iteration if self.folder.checkpoint else 0


def _train(
    opened: Sequence[tuple[int, RunFolder, Config]],
    every: float,
    tell: Tell,
    stop: Callable[[], bool],
) -> None:
    from klip.ppo.cohort import Cohort, Stopped  # late: JAX counts its threads on import

    cohort = Cohort([c for _, _, c in opened])
    kept = [_Kept(number, folder) for number, folder, _ in opened]
    try:
        _restore(cohort, kept, tell)
        saved_at = began = time.monotonic()
        while cohort.runs:
            try:
                rows = cohort.iterate(stop)
            except Stopped:
                _leave(cohort, kept, tell)
                return
            elapsed, began = time.monotonic() - began, time.monotonic()
            due = began - saved_at >= every
            for i, (run, mine, row) in enumerate(zip(cohort.runs, kept, rows, strict=True)):
                if row is not None:
                    mine.folder.append(row)
                ended = run.status != "running"
                if ended or due:
                    # a run that could not finish its iteration stays as it was before
                    state = cohort.before[i][1] if row is None else cohort.state(i)
                    mine.folder.save(run.iteration, state, run.status, run.reason)
                brief = {**_brief(row or {}), "speed": run.config.batch / elapsed}
                tell(Progress(mine.number, run.status, brief, run.reason, saved=mine.saved))
            if due:
                saved_at = time.monotonic()
            kept = _go_on(cohort, kept)
    except KlipError as error:
        for mine in kept:
            tell(Progress(mine.number, "stopped", reason=str(error)))
    finally:
        cohort.lanes.close()


def _restore(cohort: Any, kept: list[_Kept], tell: Tell) -> None:
    """Put every run where its checkpoint says; one that cannot go on exactly is left out."""
    for i, (run, mine) in enumerate(zip(cohort.runs, kept, strict=True)):
        point = mine.folder.checkpoint
        if point is None:
            continue
        try:
            cohort.restore(i, point.iteration, dict(point.arrays))
        except KlipError as error:
            run.end("failed", f"cannot go on from iteration {point.iteration}: {error}")
            tell(Progress(mine.number, "failed", reason=run.reason, saved=point.iteration))
    kept[:] = _go_on(cohort, kept)


def _go_on(cohort: Any, kept: list[_Kept]) -> list[_Kept]:
    """Drop the runs that ended, so that nobody steps their environments for nothing."""
    left = [i for i, run in enumerate(cohort.runs) if run.status == "running"]
    if len(left) == len(kept):
        return kept
    if left:
        cohort.keep(left)
    else:
        cohort.runs = []
    return [kept[i] for i in left]


def _leave(cohort: Any, kept: list[_Kept], tell: Tell) -> None:
    """Save every run as it was before the iteration that was interrupted."""
    for mine, (iteration, state) in zip(kept, cohort.before, strict=True):
        if mine.saved < iteration:
            mine.folder.save(iteration, state)
        tell(Progress(mine.number, "stopped", reason="it was asked to stop", saved=mine.saved))


def _brief(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: row[k] for k in ("iteration", "step", "return_mean", "kill", "kl") if k in row}
