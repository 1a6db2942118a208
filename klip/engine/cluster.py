"""The same groups as Ray tasks: one CPU each, on any number of machines, runs on shared storage.

Ray starts a task that is lost with its machine again on another, where it goes on from the
checkpoints. The folders say how runs stand, so nothing else needs to survive.
"""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from klip.disk import operations
from klip.engine.advance import Keeping, Progress, advance
from klip.engine.crew import ENVIRONMENT
from klip.engine.finish import Runner
from klip.engine.job import Job, kind_of, read_job
from klip.engine.process import import_path
from klip.engine.schedule import schedule
from klip.errors import KlipError
from klip.runs.store import METRICS

RETRIES = 20  # times that Ray restarts a task whose process or machine was lost
PATIENCE = 120.0  # seconds to wait for the lock of a process that is going down with its machine
EVERY = 1.0  # seconds between looks at the folders


def on_ray(address: str) -> Runner:
    """A runner on a Ray cluster; `auto` is the one that this machine belongs to."""
    ray = _ray()
    try:
        _knock(address)
        with _nowhere():
            ray.init(address=address, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        raise KlipError(
            f"there is no Ray cluster at {address} ({str(error).splitlines()[0]}): start one with "
            "`ray start --head`, or give its address"
        ) from None
    return run_on_ray


def cpus() -> int:
    """How many CPUs the cluster has."""
    return max(1, int(_ray().cluster_resources().get("CPU", 1)))


def run_on_ray(
    jobs: Sequence[Job], keeping: Keeping, stop: Callable[[], bool]
) -> Iterator[Progress]:
    """Train jobs on the cluster, and yield the news of each run."""
    ray = _ray()
    keeping = replace(keeping, out=keeping.out.resolve())
    halt = keeping.out / f".stop-{uuid.uuid4().hex}"
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(train_group)
    waiting: dict[Any, Sequence[Job]] = {}
    by_run: dict[str, Any] = {}
    for group in schedule(jobs, cpus()).groups:  # what others need comes before them
        needs = {n.id for job in group for n in kind_of(job.kind).needs(job)}
        first = [by_run[run] for run in needs if run in by_run]  # Ray waits for these
        text = json.dumps([job.stored for job in group])
        result = task.remote(text, keeping.text, str(halt), os.getcwd(), *first)
        waiting[result] = group
        by_run |= {job.id: result for job in group}
    tails = {job.id: Tail(keeping.path(job) / METRICS, job) for job in jobs}
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=EVERY)
            if stop():
                _touch(halt)
            for job in [job for group in waiting.values() for job in group]:
                if row := tails[job.id].latest():
                    yield Progress(job.id, "running", row)
            for done in ready:
                yield from _outcome(ray, done, waiting.pop(done))
    finally:
        for left in waiting:
            ray.cancel(left, force=True)
        operations.remove(halt)


def train_group(jobs: str, keeping: str, halt: str, folder: str, *needed: str) -> str:
    """Train a group in a process of Ray's; return the last news of each run as JSON.

    Code that the user named is looked for from `folder`, as on the machine that sent the group.
    The results of the tasks `needed` are ignored: the folders say how those runs stand.
    """
    os.environ.update(ENVIRONMENT)  # before JAX or PyTorch is imported
    if os.path.isdir(folder):  # it is shared, or this is the same machine
        os.chdir(folder)
    kept, stop = Keeping.read(keeping), Halt(Path(halt))
    runs = {job.id: job for job in map(read_job, json.loads(jobs))}
    latest: dict[str, Progress] = {}
    until = time.monotonic() + PATIENCE
    while True:
        busy = [job for run, job in runs.items() if run not in latest or _is_busy(latest[run])]
        advance(busy, kept, lambda news: latest.update({news.run: news}), stop)
        if not any(map(_is_busy, latest.values())) or stop() or time.monotonic() > until:
            return json.dumps(list(latest.values()))
        time.sleep(2.0)


def _is_busy(news: Progress) -> bool:
    return news.status == "busy"


class Halt:
    """Whether the file that asks all tasks to stop is there; looks at most once a second."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked, self.next = path, False, 0.0

    def __call__(self) -> bool:
        if not self.asked and time.monotonic() >= self.next:
            self.asked, self.next = self.path.exists(), time.monotonic() + 1.0
        return self.asked


class Tail:
    """The last row of a metrics file that somebody else writes."""

    def __init__(self, path: Path, job: Job) -> None:
        self.path, self.size = path, 0
        self.keys = kind_of(job.kind).brief
        self.step, self.read_at = 0, time.monotonic()

    def latest(self) -> dict[str, Any]:
        """Its last whole row, in brief, if there is a new one."""
        try:
            size = self.path.stat().st_size
            if size == self.size:
                return {}
            with self.path.open("rb") as file:
                file.seek(max(0, size - 65536))
                lines = file.read().split(b"\n")
            row = json.loads(lines[-2])
            brief = {key: _number(row[key]) for key in self.keys if key in row}
            step = int(row["step"])
        except (OSError, ValueError, IndexError, KeyError, TypeError, AttributeError,
                OverflowError, RecursionError):  # fmt: skip
            return {}  # it is half written, or damaged, which its trainer mends
        now = time.monotonic()
        brief["speed"] = max(step - self.step, 0) / max(now - self.read_at, 1e-9)
        self.size, self.step, self.read_at = size, step, now
        return brief


def _number(value: Any) -> float | int | None:
    """A metric as it is shown; raises for what is none."""
    if value is not None and not math.isfinite(value):
        raise ValueError(value)
    return value if value is None or isinstance(value, int) else float(value)


def _outcome(ray: Any, task: Any, group: Sequence[Job]) -> Iterator[Progress]:
    """Yield how a task's runs stand at its end."""
    try:
        for news in json.loads(ray.get(task)):
            yield Progress(*news)
    except ray.exceptions.RayError as error:
        reason = f"its Ray task was lost: {str(error).splitlines()[0]}"
        for job in group:
            yield Progress(job.id, "stopped", reason=reason)


@contextmanager
def _nowhere() -> Iterator[None]:
    """Hide the working folder from Ray, which would put it first on its workers' import path."""
    path = list(sys.path)
    sys.path[:] = import_path()
    try:
        with tempfile.TemporaryDirectory() as empty, chdir(empty):
            yield
    finally:
        sys.path[:] = path


def _knock(address: str) -> None:
    """Raise at once if nobody is there: Ray itself would go on trying."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=5).close()


def _touch(path: Path) -> None:
    operations.make_folders(path.parent)
    operations.close(operations.create(path))


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise KlipError('--ray needs Ray: pip install "klip-rl[ray]"') from None
    return ray
