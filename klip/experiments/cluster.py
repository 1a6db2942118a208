"""The same cohorts as Ray tasks: one CPU each, on however many machines, runs on shared storage.

A task that is lost with its machine is started again by Ray on another, and goes on from the
checkpoints. How runs stand is read from their folders, so nothing else needs to survive.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from klip.errors import KlipError
from klip.experiments.schedule import schedule
from klip.ppo.advance import Keeping, Progress, advance
from klip.ppo.config import Config
from klip.ppo.train import Runner
from klip.ppo.workers import ENVIRONMENT

RETRIES = 20  # how often Ray starts a task again whose process or machine was lost
PATIENCE = 120.0  # seconds to wait for the lock of a process that is going down with its machine
EVERY = 1.0  # seconds between looks at the folders


def on_ray(address: str) -> Runner:
    """A runner on a Ray cluster; `auto` is the one that this machine belongs to."""
    ray = _ray()
    try:
        _knock(address)
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
    configs: Sequence[Config], keeping: Keeping, stop: Callable[[], bool]
) -> Iterator[Progress]:
    """Train configs on the cluster, and say how each run goes on."""
    ray = _ray()
    keeping = replace(keeping, out=keeping.out.resolve())
    halt = keeping.out / f".stop-{uuid.uuid4().hex}"
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(train_cohort)
    about = json.dumps({**asdict(keeping), "out": str(keeping.out)})
    waiting: dict[Any, tuple[int, ...]] = {}
    for job in schedule(configs, cpus()).jobs:
        fields = json.dumps([(k, asdict(configs[k])) for k in job])
        waiting[task.remote(fields, about, str(halt))] = job
    tails = {k: Tail(keeping.path(c) / "metrics.jsonl") for k, c in enumerate(configs)}
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=EVERY)
            if stop():
                _touch(halt)
            for job in waiting.values():
                for k in job:
                    if row := tails[k].latest():
                        yield Progress(k, "running", row)
            for done in ready:
                yield from _outcome(ray, done, waiting.pop(done))
    finally:
        for left in waiting:
            ray.cancel(left, force=True)
        halt.unlink(missing_ok=True)


def train_cohort(jobs: str, about: str, halt: str) -> str:
    """What a task does: as a worker, in a process of Ray's; the last news of each run."""
    os.environ.update(ENVIRONMENT)  # before JAX is imported
    keeping, stop = Keeping.read(about), Halt(Path(halt))
    runs = {
        number: Config(**{**fields, "hidden": tuple(fields["hidden"])})
        for number, fields in json.loads(jobs)
    }
    latest: dict[int, Progress] = {}
    until = time.monotonic() + PATIENCE
    while True:
        busy = [(n, runs[n]) for n in runs if n not in latest or latest[n].status == "busy"]
        advance(busy, keeping, lambda news: latest.update({news.run: news}), stop)
        waits = any(news.status == "busy" for news in latest.values())
        if not waits or stop() or time.monotonic() > until:
            return json.dumps(list(latest.values()))
        time.sleep(2.0)


class Halt:
    """Whether a file is there that asks all tasks to stop; looks at most once a second."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked, self.next = path, False, 0.0

    def __call__(self) -> bool:
        if not self.asked and time.monotonic() >= self.next:
            self.asked, self.next = self.path.exists(), time.monotonic() + 1.0
        return self.asked


class Tail:
    """The last row of a metrics file that somebody else writes."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        self.step, self.seen = 0, time.monotonic()

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
        except (OSError, ValueError, IndexError):
            return {}
        now, keys = time.monotonic(), ("iteration", "step", "return_mean", "kill", "kl")
        found = {key: row[key] for key in keys if key in row}
        found["speed"] = max(row["step"] - self.step, 0) / max(now - self.seen, 1e-9)
        self.size, self.step, self.seen = size, row["step"], now
        return found


def _outcome(ray: Any, task: Any, job: Sequence[int]) -> Iterator[Progress]:
    """How a task's runs stand at its end."""
    try:
        for news in json.loads(ray.get(task)):
            yield Progress(*news)
    except ray.exceptions.RayError as error:
        reason = f"its Ray task was lost: {str(error).splitlines()[0]}"
        for k in job:
            yield Progress(k, "stopped", reason=reason)


def _knock(address: str) -> None:
    """Raise at once if nobody is there: Ray itself would go on trying."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=5).close()


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise KlipError('--ray needs Ray: pip install "klip[ray]"') from None
    return ray
