"""Where cohorts run: one process a core, pinned to it, each advancing its runs in lockstep."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import queue
import signal
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from klip.errors import KlipError
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


class Progress(NamedTuple):
    """What a worker says about one of its runs."""

    run: int
    status: str  # running, done, diverged
    row: dict[str, Any]  # its latest metrics
    reason: str = ""


class WorkerFailed(KlipError):
    """A worker process ended before its runs did."""


def cohorts(configs: Sequence[Config], workers: int) -> list[list[list[int]]]:
    """For each worker its cohorts, each a list of indices of runs that can go in lockstep."""
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for i, c in enumerate(configs):
        alike[lockstep_key(c)].append(i)
    share: list[list[list[int]]] = [[] for _ in range(workers)]
    for members in alike.values():
        parts = workers * -(-len(members) // (workers * LARGEST_COHORT))
        for part in range(parts):
            chosen = members[part::parts]
            if chosen:
                least = min(share, key=lambda s: sum(len(cohort) for cohort in s))
                least.append(chosen)
    return [s for s in share if s]


def run_all(configs: Sequence[Config], out: Path, workers: int) -> Iterator[Progress]:
    """Train every config, and say how each of them goes on."""
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    processes = []
    saved = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        for i, share in enumerate(cohorts(configs, workers)):
            jobs = [[(k, dataclasses.asdict(configs[k])) for k in cohort] for cohort in share]
            process = context.Process(
                target=_work, args=(json.dumps(jobs), str(out), cores[i % len(cores)], messages),
                daemon=True,
            )  # fmt: skip
            process.start()
            processes.append(process)
    finally:
        for name, value in saved.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    open_runs = set(range(len(configs)))
    try:
        while open_runs:
            try:
                progress = messages.get(timeout=0.5)
            except queue.Empty:
                dead = [p for p in processes if not p.is_alive() and p.exitcode != 0]
                if dead and messages.empty():
                    raise WorkerFailed(
                        f"a worker ended with exit code {dead[0].exitcode} and {len(open_runs)} "
                        "runs unfinished; run the same command again"
                    ) from None
                continue
            if isinstance(progress, str):
                raise WorkerFailed(progress)
            if progress.status != "running":
                open_runs.discard(progress.run)
            yield progress
    finally:
        for process in processes:
            process.terminate() if open_runs else process.join()


def _work(jobs: str, out: str, core: int, messages: Any) -> None:
    """The life of a worker: pin, then train cohort after cohort."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends us
    os.sched_setaffinity(0, {core})
    try:
        for cohort in json.loads(jobs):
            _train(cohort, Path(out), messages)
    except KlipError as error:
        messages.put(str(error))
    except Exception:
        messages.put(f"a worker failed:\n{traceback.format_exc()}")


def _train(jobs: list[tuple[int, dict[str, Any]]], out: Path, messages: Any) -> None:
    from klip.ppo.cohort import Cohort  # after pinning: JAX counts its threads on import
    from klip.runs import RunFolder, folder_of

    configs = [Config(**{**fields, "hidden": tuple(fields["hidden"])}) for _, fields in jobs]
    folders = [
        RunFolder(folder_of(out, c.task, c.shape, c.seed, c.id), dataclasses.asdict(c))
        for c in configs
    ]
    cohort = Cohort(configs)
    open_runs = set(range(len(jobs)))
    began = time.perf_counter()
    for _ in range(configs[0].iterations):
        rows = cohort.iterate()
        elapsed, began = time.perf_counter() - began, time.perf_counter()
        for i in sorted(open_runs):
            run, row = cohort.runs[i], rows[i]
            if row is not None:
                folders[i].append(row)
                brief = {**_brief(row), "speed": run.config.batch / elapsed}
                messages.put(Progress(jobs[i][0], "running", brief))
            if run.diverged or run.iteration == run.config.iterations:
                open_runs.discard(i)
                status = "diverged" if run.diverged else "done"
                folders[i].finish(cohort.arrays(i), status, run.diverged, run.iteration)
                messages.put(Progress(jobs[i][0], status, _brief(row or {}), run.diverged))
        if not open_runs:
            break


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    return {k: row[k] for k in ("iteration", "step", "return_mean", "kill", "kl") if k in row}
