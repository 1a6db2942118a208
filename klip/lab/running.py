"""A plan from nothing to its end: warm-ups first, then runs, one process a core.

Whatever is killed, and whenever, the same command goes on: warm-ups and ended runs are on disk, and
a run that was begun goes on from its checkpoint.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from klip.errors import KlipError
from klip.experiments.cluster import Tail
from klip.lab.config import Config, Warmup
from klip.ppo.workers import ENVIRONMENT
from klip.runs import Damaged, RunFolder, folder_of, read_run

CHECKPOINT_EVERY = 10.0  # seconds
EVERY = 0.5  # seconds between looks at what the processes have written
DEATHS = 3  # how often in a row processes may die before anything new has ended


class News(NamedTuple):
    """What is new about a warm-up or a run."""

    job: Warmup | Config
    status: str
    """running, done, diverged, or stopped with a reason"""
    row: Mapping[str, Any] = {}
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Keeping:
    """How runs are kept on disk."""

    out: Path
    every: float = CHECKPOINT_EVERY
    """seconds between checkpoints"""
    accept_changes: bool = False
    start_over: bool = False

    def path(self, c: Config) -> Path:
        """A run's folder."""
        return folder_of(self.out, str(c.stored["task"]), c.arm, c.seed, c.id)


def is_done(job: Warmup | Config, keeping: Keeping) -> bool:
    """Whether a warm-up or a run has ended, with all its files as they were written."""
    from klip.lab.warmup import read_warmup, warmup_path

    try:
        if isinstance(job, Warmup):
            path = warmup_path(keeping.out, job)
            return path.exists() and bool(read_warmup(path, job))
        path = keeping.path(job)
        record = read_run(path) if path.is_dir() else None
    except Damaged:
        return False
    return record is not None and record.status in ("done", "diverged") and not record.notes


def work(
    jobs: Sequence[Warmup | Config], keeping: Keeping, cores: int, stop: Callable[[], bool]
) -> Iterator[News]:
    """Do jobs on so many cores; say how each goes on."""
    left, deaths = list(jobs), 0
    while left and deaths <= DEATHS and not stop():
        before = len(left)
        try:
            for news in _pool(left, keeping, cores, stop):
                if news.status != "running":
                    left.remove(news.job)
                yield news
        except BrokenProcessPool:
            deaths = deaths + 1 if len(left) == before else 1
            again = "; it goes on in a new one" if deaths <= DEATHS else f" {deaths} times in a row"
            for job in left if deaths > DEATHS else left[:1]:
                why = f"a process was killed (out of memory?){again}"
                status = "stopped" if deaths > DEATHS else "running"
                yield News(job, status, reason=why, notes=(why,))
    for job in left if stop() else []:
        yield News(job, "stopped", reason="it was asked to stop")


def _pool(
    jobs: Sequence[Warmup | Config], keeping: Keeping, cores: int, stop: Callable[[], bool]
) -> Iterator[News]:
    context = multiprocessing.get_context("spawn")
    halt = context.Event()
    saved = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)  # read when NumPy and PyTorch are imported
    pool = ProcessPoolExecutor(cores, context, _begin, (halt, os.getpid()))
    try:
        open_: dict[Future[News], Warmup | Config] = {
            pool.submit(_do, job, keeping): job for job in jobs
        }
        tails = {c: Tail(keeping.path(c) / "metrics.jsonl") for c in jobs if isinstance(c, Config)}
        while open_:
            ended, _ = wait(open_, timeout=EVERY, return_when=FIRST_COMPLETED)
            if stop():
                halt.set()
                for future in open_:
                    future.cancel()
            for c in [job for job in open_.values() if isinstance(job, Config)]:
                if row := tails[c].latest():
                    yield News(c, "running", row)
            for future in ended:
                job = open_.pop(future)
                if future.cancelled():
                    yield News(job, "stopped", reason="it was asked to stop")
                else:
                    yield future.result()
    finally:
        halt.set()
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in saved.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


# -- in a process of the pool -----------------------------------------------------------------

_halt: Event | None = None


def _begin(halt: Event, parent: int) -> None:
    """Ctrl-C is for the parent, which then asks; and without a parent there is nothing to do."""
    global _halt
    _halt = halt
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)  # whatever is half done is done again from the last checkpoint


def _do(job: Warmup | Config, keeping: Keeping) -> News:
    try:
        return _warm(job, keeping) if isinstance(job, Warmup) else train(job, keeping, _asked)
    except KlipError as error:
        return News(job, "stopped", reason=str(error))


def _asked() -> bool:
    return _halt is not None and _halt.is_set()


def _warm(w: Warmup, keeping: Keeping) -> News:
    import torch

    from klip.lab.warmup import save_warmup, warm_up, warmup_path

    torch.set_num_threads(1)
    model = warm_up(w, _asked)
    if model is None:
        return News(w, "stopped", reason="it was asked to stop")
    save_warmup(warmup_path(keeping.out, w), w, model)
    return News(w, "done")


def train(c: Config, keeping: Keeping, stop: Callable[[], bool] = lambda: False) -> News:
    """Train a run from where it stands to its end, or until `stop` says so."""
    import torch

    from klip.lab.training import Run
    from klip.lab.warmup import read_warmup, warmup_path

    torch.set_num_threads(1)
    folder = RunFolder(
        keeping.path(c), c.stored,
        accept_changes=keeping.accept_changes, start_over=keeping.start_over,
    )  # fmt: skip
    try:
        point, notes = folder.checkpoint, tuple(folder.notes)
        if point is not None and folder.ended:
            return News(c, point.status, reason=point.reason, notes=notes)
        run = Run(c, read_warmup(warmup_path(keeping.out, c.warmup), c.warmup))
        if point is not None:
            run.restore(point.iteration, dict(point.arrays))
        saved_at = time.monotonic()
        row: Mapping[str, Any] = {}
        while run.iteration < c.iterations:
            if stop():
                folder.save(run.iteration, run.arrays())
                return News(c, "stopped", row, "it was asked to stop", notes)
            before = run.iteration
            try:
                row = run.iterate()
            except KlipError as error:
                folder.save(before, run.arrays(), "diverged", str(error))
                return News(c, "diverged", row, str(error), notes)
            folder.append(row)
            if time.monotonic() - saved_at >= keeping.every:
                folder.save(run.iteration, run.arrays())
                saved_at = time.monotonic()
        folder.save(run.iteration, run.arrays(), "done")
        return News(c, "done", row, notes=notes)
    finally:
        folder.close()
