"""Where jobs run on this machine: one process per core, pinned to it.

The parent hands out groups of jobs, listens, and replaces a process that was killed. A pipe ties
each process to it: the parent hears from it how runs go on, and asks it to stop. When the parent
is gone, however it went, the pipe closes, and the process saves its runs and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait

from klip.engine.advance import Keeping, Progress
from klip.engine.job import Job, kind_of
from klip.engine.process import Process
from klip.engine.worker import cores as cores_here
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
    groups: Sequence[Sequence[Job]],
    keeping: Keeping,
    stop: Callable[[], bool],
    cores: int,
    limit: float | None = None,
) -> Iterator[Progress]:
    """Train groups of jobs on `cores` cores, in their order, and yield the news of each run.

    A process of which nothing is heard for `limit` seconds is replaced.
    """
    crew = Crew(cores_here()[:cores], keeping, limit)
    try:
        yield from crew.work(deque(Share(group) for group in groups), stop)
    finally:
        crew.end()


def cores_for(workers: int | None) -> int:
    """The number of processes to use: as many as asked for, or one per core."""
    there = len(cores_here())
    if workers is not None and not 1 <= workers <= there:
        raise KlipError(f"workers={workers} must lie between 1 and {there}, the cores there are")
    return there if workers is None else workers


class Share:
    """A group of jobs for one process, and what became of its runs so far."""

    def __init__(self, jobs: Sequence[Job], deaths: int = 0) -> None:
        self.open = {job.id: job for job in jobs}
        self.needs = {n.id for job in jobs for n in kind_of(job.kind).needs(job)}
        self.deaths = deaths
        self.saved: dict[str, int] = {}

    def hear(self, news: Progress) -> None:
        """Take in what a run's process says."""
        if news.status != "running":
            self.open.pop(news.run, None)
        if news.saved > self.saved.get(news.run, 0):
            self.saved[news.run], self.deaths = news.saved, 0

    def halves(self) -> list[Share]:
        """Its open runs in two shares: the one with whoever ends the process will end again."""
        jobs = list(self.open.values())
        if len(jobs) < 2:
            return [self]
        middle = len(jobs) // 2
        parts = [Share(part, self.deaths) for part in (jobs[:middle], jobs[middle:])]
        for part in parts:
            part.saved = {run: self.saved[run] for run in part.open if run in self.saved}
        return parts

    def given_up(self, why: str) -> Iterator[Progress]:
        """Yield that its open runs have stopped, and why."""
        for run in list(self.open):
            yield Progress(run, "stopped", reason=why, saved=self.saved.get(run, 0))
        self.open.clear()


class Worker:
    """A process that trains one share, and what is heard from it."""

    def __init__(self, share: Share, keeping: Keeping, core: int) -> None:
        self.share, self.core, self.silent = share, core, False
        self.heard, self.hung = time.monotonic(), False
        # the environment is read when the process imports JAX, NumPy or PyTorch
        self.process = Process("klip.engine.worker", ENVIRONMENT)
        jobs = [job.stored for job in share.open.values()]
        self._send(json.dumps([jobs, keeping.text, core, os.getpid()]))

    def news(self) -> Iterator[Progress]:
        """The news that the process has sent since the last call."""
        try:
            while self.process.pipe.poll():
                news = Progress(*json.loads(self.process.pipe.recv_bytes()))
                self.share.hear(news)
                self.heard = time.monotonic()
                yield news
        except (EOFError, OSError):
            self.silent = True

    def end_if_silent(self, limit: float) -> None:
        """Kill it if nothing was heard for so many seconds, as when an environment hangs."""
        if time.monotonic() - self.heard > limit and not self.hung:
            self.hung = True
            self.process.end()

    def ask_to_stop(self) -> None:
        """Let it save its runs and end."""
        self._send("stop")

    def _send(self, text: str) -> None:
        with contextlib.suppress(OSError):  # it has ended, which its exit code tells
            self.process.pipe.send_bytes(text.encode())


class Crew:
    """As many workers as there are cores, each busy while there is a share that can begin."""

    def __init__(self, cores: Sequence[int], keeping: Keeping, limit: float | None = None) -> None:
        self.free, self.keeping, self.limit = list(cores), keeping, limit
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
            wait([worker.process.pipe for worker in self.workers if not worker.silent], timeout=0.2)
            for worker in list(self.workers):
                if self.limit is not None:
                    worker.end_if_silent(self.limit)
                ended = worker.process.exit_code is not None
                yield from worker.news()
                if ended:
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
        code = worker.process.exit_code or 0
        worker.process.pipe.close()
        share = worker.share
        if not share.open:
            return
        share.deaths += 1
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        why = f"its process {how}{' (out of memory?)' if code == -signal.SIGKILL else ''}"
        if worker.hung:
            why = f"nothing was heard of its process for {self.limit:g} s, so it was ended"
        if stopping or (share.deaths > DEATHS and len(share.open) == 1):
            again = "" if stopping else f" {share.deaths} times in a row"
            yield from share.given_up(why + again)
            return
        parts = share.halves() if share.deaths > 1 else [share]  # which of the runs was it?
        for run in share.open:
            note = f"{why}; it goes on from its last checkpoint in a new one"
            yield Progress(run, "running", notes=(note,), saved=share.saved.get(run, 0))
        shares.extendleft(reversed(parts))

    def end(self) -> None:
        """Leave no process behind."""
        for worker in self.workers:
            worker.process.kill()
