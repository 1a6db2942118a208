"""`klip.train`: many runs with one call, on all cores, into their folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klip.errors import KlipError
from klip.ppo.config import Config, config
from klip.ppo.workers import Progress, run_all
from klip.runs import final_return, folder_of, read_metrics, read_status
from klip.shapes import Controller, Shape


@dataclass(frozen=True)
class Result:
    """How one run ended, and where it lies."""

    config: Config
    path: Path
    status: str
    """done or diverged"""
    reason: str
    final_return: float | None
    """mean over the last tenth of the steps, in the paper's definition"""


def plan(
    task: str,
    shapes: Sequence[str | Shape | Controller] = ("clip",),
    seeds: int | Iterable[int] = 5,
    **fields: Any,
) -> list[Config]:
    """Every shape with every seed, seeds varying fastest."""
    chosen = range(seeds) if isinstance(seeds, int) else list(seeds)
    if not shapes or not chosen:
        raise KlipError("nothing to train: give at least one shape and one seed")
    made = [
        config(task, shape=str(shape), seed=seed, **fields) for shape in shapes for seed in chosen
    ]
    if len({c.id for c in made}) < len(made):
        raise KlipError("the same run is named twice: give each shape and seed once")
    return made


def train(
    task: str,
    shapes: Sequence[str | Shape | Controller] = ("clip",),
    seeds: int | Iterable[int] = 5,
    *,
    workers: int | None = None,
    out: str | Path = "runs",
    progress: Callable[[list[Config], Progress], None] | None = None,
    **fields: Any,
) -> list[Result]:
    """Train every shape with every seed; `fields` are those of `Config`, `steps` among them.

    The runs fill all cores unless `workers` says how many processes to use. Runs that have ended
    already are not repeated.
    """
    configs, out = plan(task, shapes, seeds, **fields), Path(out)
    cores = len(os.sched_getaffinity(0))
    count = cores if workers is None else workers
    if not 1 <= count <= cores:
        raise KlipError(f"workers={count} must lie between 1 and {cores}, the cores there are")
    paths = [folder_of(out, c.task, c.shape, c.seed, c.id) for c in configs]
    missing = [i for i, path in enumerate(paths) if read_status(path) is None]
    for message in run_all([configs[i] for i in missing], out, count):
        if progress is not None:
            progress(configs, message._replace(run=missing[message.run]))
    results = []
    for c, path in zip(configs, paths, strict=True):
        status, value = read_status(path) or {}, final_return(read_metrics(path))
        results.append(Result(c, path, status["status"], status["reason"], value))
    return results
