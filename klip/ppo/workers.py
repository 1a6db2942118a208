"""Where cohorts run on this machine: one process a core, pinned to it.

The parent hands out cohorts, listens, and starts a process anew that was killed. Each process is
tied to it by a pipe: through it the parent hears how runs go on and asks to stop, and when the
parent is gone, however it went, the pipe closes and the process saves its runs and ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import multiprocessing.resource_tracker as resource_tracker
import os
import signal
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from klip.errors import KlipError
from klip.ppo.advance import Keeping, Progress, advance
from klip.ppo.config import Config, lockstep_key

# One thread per process: results are then the same bytes, and cores are not fought over.
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "0",
}
LARGEST_COHORT = 40
DEATHS = 3  # how often in a row a cohort's process may die before it has saved anything new


def cohorts(configs: Sequence[Config], workers: int) -> list[list[int]]:
    """Lists of runs that can go in lockstep, by index, so many that every worker has some."""
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for i, c in enumerate(configs):
        alike[lockstep_key(c)].append(i)
    found = []
    for members in alike.values():
        parts = workers * -(-len(members) // (workers * LARGEST_COHORT))
        found += [members[part::parts] for part in range(min(parts, len(members)))]
    return found


def run_here(
    configs: Sequence[Config],
    jobs: Sequence[Sequence[int]],
    keeping: Keeping,
    stop: Callable[[], bool],
    cores: int,
) -> Iterator[Progress]:
    """Train configs in these cohorts on so many cores, and say how each run goes on."""
    crew = Crew(sorted(os.sched_getaffinity(0))[:cores], keeping)
    try:
        yield from crew.work(deque(Job([(k, configs[k]) for k in job]) for job in jobs), stop)
    finally:
        crew.end()


def cores_for(workers: int | None) -> int:
    """How many processes to use: as many as asked for, or one a core."""
    there = len(os.sched_getaffinity(0))
    if workers is not None and not 1 <= workers <= there:
        raise KlipError(f"workers={workers} must lie between 1 and {there}, the cores there are")
    return there if workers is None else workers


class Job:
    """A cohort to train, and what became of its runs so far."""

    def __init__(self, runs: Sequence[tuple[int, Config]]) -> None:
        self.open = dict(runs)
        self.deaths = 0
        self.saved: dict[int, int] = {}

    def hear(self, news: Progress) -> None:
        """Take in what a run's process says."""
        if news.status != "running":
            self.open.pop(news.run, None)
        if news.saved > self.saved.get(news.run, 0):
            self.saved[news.run], self.deaths = news.saved, 0

    def given_up(self, why: str) -> Iterator[Progress]:
        """Its open runs, each stopped for a reason."""
        for number in list(self.open):
            yield Progress(number, "stopped", reason=why, saved=self.saved.get(number, 0))
        self.open.clear()


class Worker:
    """A process that trains one job, and the parent's end of the pipe to it."""

    def __init__(self, job: Job, keeping: Keeping, core: int) -> None:
        self.job, self.core = job, core
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        fields = [(number, dataclasses.asdict(c)) for number, c in job.open.items()]
        about = json.dumps({**dataclasses.asdict(keeping), "out": str(keeping.out)})
        saved = {name: os.environ.get(name) for name in ENVIRONMENT}
        os.environ.update(ENVIRONMENT)
        try:
            self.process: BaseProcess = context.Process(
                target=_work, args=(json.dumps(fields), about, core, theirs), daemon=True
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
        """What the process has said and not been heard saying."""
        try:
            while self.pipe.poll():
                news = Progress(*json.loads(self.pipe.recv_bytes()))
                self.job.hear(news)
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
    """As many workers as there are cores, each busy while there are jobs."""

    def __init__(self, cores: Sequence[int], keeping: Keeping) -> None:
        self.free, self.keeping = list(cores), keeping
        self.workers: list[Worker] = []

    def work(self, jobs: deque[Job], stop: Callable[[], bool]) -> Iterator[Progress]:
        """Do all jobs in their order; when asked to stop, wait until all runs are saved."""
        stopping = False
        while jobs or self.workers:
            if stop() and not stopping:
                stopping = True
                for worker in self.workers:
                    worker.ask_to_stop()
                for job in jobs:
                    yield from job.given_up("it was asked to stop")
                jobs.clear()
            while jobs and self.free:
                self.workers.append(Worker(jobs.popleft(), self.keeping, self.free.pop(0)))
            waiting: list[Any] = [worker.pipe for worker in self.workers]
            wait([*waiting, *(worker.process.sentinel for worker in self.workers)], timeout=0.2)
            for worker in list(self.workers):
                yield from worker.news()
                if not worker.process.is_alive():
                    yield from worker.news()
                    yield from self._ended(worker, jobs, stopping)

    def _ended(self, worker: Worker, jobs: deque[Job], stopping: bool) -> Iterator[Progress]:
        """A process ended; if its runs did not, they go on in a new one."""
        self.workers.remove(worker)
        self.free.append(worker.core)
        worker.pipe.close()
        job = worker.job
        if not job.open:
            return
        job.deaths += 1
        code = worker.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        why = f"its process {how}{' (out of memory?)' if code == -signal.SIGKILL else ''}"
        if stopping or job.deaths > DEATHS:
            again = "" if stopping else f" {job.deaths} times in a row"
            yield from job.given_up(why + again)
            return
        for number in job.open:
            note = f"{why}; it goes on from its last checkpoint in a new one"
            yield Progress(number, "running", notes=(note,), saved=job.saved.get(number, 0))
        jobs.appendleft(job)

    def end(self) -> None:
        """Leave no process behind."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()


def _work(jobs: str, about: str, core: int, pipe: Connection) -> None:
    """The life of a worker: pin, then train its cohort, watching the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then asks us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    os.sched_setaffinity(0, {core})
    threading.Thread(target=_listen, args=(pipe, stop), daemon=True).start()
    runs = [
        (number, Config(**{**fields, "hidden": tuple(fields["hidden"])}))
        for number, fields in json.loads(jobs)
    ]

    def tell(news: Progress) -> None:
        try:
            pipe.send_bytes(json.dumps(news).encode())
        except OSError:  # nobody listens any more
            stop.set()

    try:
        advance(runs, Keeping.read(about), tell, stop.is_set)
    except KlipError as error:
        for number, _ in runs:
            tell(Progress(number, "stopped", reason=str(error)))
    except Exception:
        for number, _ in runs:
            reason = f"this is a mistake in Klip:\n{traceback.format_exc()}"
            tell(Progress(number, "stopped", reason=reason))


def _listen(pipe: Connection, stop: threading.Event) -> None:
    """Wait until the parent says stop, or is gone."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    stop.set()
