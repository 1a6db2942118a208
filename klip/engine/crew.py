"""Where jobs run on this machine: one process per core, pinned to it.

The parent hands out groups of jobs, listens, and replaces a process that was killed. A pipe ties
each process to it: the parent hears from it how runs go on, and asks it to stop. When the parent
is gone, however it went, the pipe closes, and the process saves its runs and ends.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import multiprocessing.resource_tracker as resource_tracker
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from klip.engine.advance import Keeping, Progress, advance, mistake
from klip.engine.job import Job, kind_of, read_job
from klip.errors import KlipError

# One thread per process: results are then the same bytes, and cores are not fought over.
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "0",
}
DEATHS = 3  # times in a row that a group's process may die without having saved anything new


def run_here(
    groups: Sequence[Sequence[Job]], keeping: Keeping, stop: Callable[[], bool], cores: int
) -> Iterator[Progress]:
    """Train groups of jobs on `cores` cores, in their order, and yield the news of each run."""
    crew = Crew(sorted(os.sched_getaffinity(0))[:cores], keeping)
    try:
        yield from crew.work(deque(Share(group) for group in groups), stop)
    finally:
        crew.end()


def cores_for(workers: int | None) -> int:
    """The number of processes to use: as many as asked for, or one per core."""
    there = len(os.sched_getaffinity(0))
    if workers is not None and not 1 <= workers <= there:
        raise KlipError(f"workers={workers} must lie between 1 and {there}, the cores there are")
    return there if workers is None else workers


class Share:
    """A group of jobs for one process, and what became of its runs so far."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.open = {job.id: job for job in jobs}
        self.needs = {n.id for job in jobs for n in kind_of(job.kind).needs(job)}
        self.deaths = 0
        self.saved: dict[str, int] = {}

    def hear(self, news: Progress) -> None:
        """Take in what a run's process says."""
        if news.status != "running":
            self.open.pop(news.run, None)
        if news.saved > self.saved.get(news.run, 0):
            self.saved[news.run], self.deaths = news.saved, 0

    def given_up(self, why: str) -> Iterator[Progress]:
        """Yield that its open runs have stopped, and why."""
        for run in list(self.open):
            yield Progress(run, "stopped", reason=why, saved=self.saved.get(run, 0))
        self.open.clear()


class Worker:
    """A process that trains one share, and the parent's end of the pipe to it."""

    def __init__(self, share: Share, keeping: Keeping, core: int) -> None:
        self.share, self.core = share, core
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        jobs = json.dumps([job.stored for job in share.open.values()])
        saved = {name: os.environ.get(name) for name in ENVIRONMENT}
        os.environ.update(ENVIRONMENT)  # read when the process imports JAX, NumPy or PyTorch
        try:
            self.process: BaseProcess = context.Process(
                target=_work, args=(jobs, keeping.text, core, theirs), daemon=True
            )
            resource_tracker.ensure_running()  # or it would inherit the blocked signal for good
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:  # Ctrl-C is for the parent, also while the process is still importing
                self.process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        finally:
            for name, value in saved.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        theirs.close()

    def news(self) -> Iterator[Progress]:
        """The news that the process has sent since the last call."""
        try:
            while self.pipe.poll():
                news = Progress(*json.loads(self.pipe.recv_bytes()))
                self.share.hear(news)
                yield news
        except (EOFError, OSError):
            return

    def ask_to_stop(self) -> None:
        """Let it save its runs and end."""
        try:
            self.pipe.send_bytes(b"stop")
        except OSError:
            return


class Crew:
    """As many workers as there are cores, each busy while there is a share that can begin."""

    def __init__(self, cores: Sequence[int], keeping: Keeping) -> None:
        self.free, self.keeping = list(cores), keeping
        self.workers: list[Worker] = []

    def work(self, shares: deque[Share], stop: Callable[[], bool]) -> Iterator[Progress]:
        """Train all shares in their order; when asked to stop, wait until all runs are saved."""
        stopping = False
        while shares or self.workers:
            if stop() and not stopping:
                stopping = True
                for worker in self.workers:
                    worker.ask_to_stop()
                for share in shares:
                    yield from share.given_up("it was asked to stop")
                shares.clear()
            while self.free and (ready := self._next(shares)) is not None:
                shares.remove(ready)
                self.workers.append(Worker(ready, self.keeping, self.free.pop(0)))
            waiting: list[Any] = [worker.pipe for worker in self.workers]
            wait([*waiting, *(worker.process.sentinel for worker in self.workers)], timeout=0.2)
            for worker in list(self.workers):
                yield from worker.news()
                if not worker.process.is_alive():
                    yield from worker.news()
                    yield from self._ended(worker, shares, stopping)

    def _next(self, shares: deque[Share]) -> Share | None:
        """The first share whose needs have all ended; None if there is none."""
        busy = (worker.share for worker in self.workers)
        still = {run for share in (*shares, *busy) for run in share.open}
        return next((share for share in shares if not share.needs & still), None)

    def _ended(self, worker: Worker, shares: deque[Share], stopping: bool) -> Iterator[Progress]:
        """Take note that a process ended; its runs that have not go on in a new one."""
        self.workers.remove(worker)
        self.free.append(worker.core)
        worker.pipe.close()
        share = worker.share
        if not share.open:
            return
        share.deaths += 1
        code = worker.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        why = f"its process {how}{' (out of memory?)' if code == -signal.SIGKILL else ''}"
        if stopping or share.deaths > DEATHS:
            again = "" if stopping else f" {share.deaths} times in a row"
            yield from share.given_up(why + again)
            return
        for run in share.open:
            note = f"{why}; it goes on from its last checkpoint in a new one"
            yield Progress(run, "running", notes=(note,), saved=share.saved.get(run, 0))
        shares.appendleft(share)

    def end(self) -> None:
        """Leave no process behind."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()


def _work(jobs: str, keeping: str, core: int, pipe: Connection) -> None:
    """The life of a worker: pin, then train its share, watching the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then asks us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    os.sched_setaffinity(0, {core})
    threading.Thread(target=_listen, args=(pipe, stop), daemon=True).start()
    share = [read_job(fields) for fields in json.loads(jobs)]

    def tell(news: Progress) -> None:
        try:
            pipe.send_bytes(json.dumps(news).encode())
        except OSError:  # nobody listens any more
            stop.set()

    try:
        advance(share, Keeping.read(keeping), tell, stop.is_set)
    except Exception as error:
        reason = str(error) if isinstance(error, KlipError) else mistake(error)
        for job in share:
            tell(Progress(job.id, "stopped", reason=reason))


def _listen(pipe: Connection, stop: threading.Event) -> None:
    """Wait until the parent says stop, or is gone."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    stop.set()
