"""`klip.train`: many runs with one call, on all cores, into their folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klip.errors import KlipError
from klip.ppo.advance import CHECKPOINT_EVERY, Keeping, Progress
from klip.ppo.config import Config, config
from klip.ppo.interruption import Interruption
from klip.ppo.workers import cohorts, cores_for, run_here
from klip.runs import Damaged, read_run
from klip.shapes import Region

Listener = Callable[[Progress], None]


@dataclass(frozen=True)
class Result:
    """How one run stands, and where it lies."""

    config: Config
    path: Path
    status: str
    """done, diverged or failed; stopped, busy, damaged or changed if it could not be trained now"""
    reason: str
    """why it is not done"""
    final_return: float | None
    """mean over the last tenth of the steps, in the paper's definition"""


def plan(
    task: str,
    shapes: Sequence[str | Region] = ("clip",),
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
    shapes: Sequence[str | Region] = ("clip",),
    seeds: int | Iterable[int] = 5,
    *,
    workers: int | None = None,
    out: str | Path = "runs",
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    progress: Listener = lambda news: None,
    **fields: Any,
) -> list[Result]:
    """Train every shape with every seed; `fields` are those of `Config`, `steps` among them.

    The runs fill all cores unless `workers` says how many processes to use. Each goes on exactly
    where it stopped, and one that has ended is not repeated. `accept_changes` goes on with runs
    begun under other versions or on another processor, `start_over` begins those again whose
    checkpoints are all damaged. `progress` hears of every iteration of every run, by its place.
    """
    keeping = Keeping(Path(out), checkpoint_every, accept_changes, start_over)
    return train_all(plan(task, shapes, seeds, **fields), keeping, here(workers), progress)


Runner = Callable[[Sequence[Config], Keeping, Callable[[], bool]], Iterator[Progress]]
"""Trains configs, says how each goes on, by its place, and ends early when asked to stop."""


def here(workers: int | None = None) -> Runner:
    """On this machine, on all cores or some, each task's runs shared equally among them."""
    cores = cores_for(workers)
    return lambda configs, keeping, stop: run_here(
        configs, cohorts(configs, cores), keeping, stop, cores
    )


def train_all(
    configs: Sequence[Config],
    keeping: Keeping,
    runner: Runner,
    progress: Listener = lambda news: None,
    said: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Finish what is missing of these runs; Ctrl-C and SIGTERM save them and are raised then."""
    if not keeping.every >= 0:
        raise KlipError(f"checkpoint_every={keeping.every} must be 0 seconds or more")
    results = [look(c, keeping.path(c)) for c in configs]
    for i, result in enumerate(results):
        if result is not None:
            c = configs[i]
            row = {"iteration": c.iterations, "step": c.iterations * c.batch}
            progress(Progress(i, result.status, row, result.reason, saved=c.iterations))
    missing = [i for i, result in enumerate(results) if result is None]
    latest: dict[int, Progress] = {}
    with Interruption(said) as stop:
        for news in runner([configs[i] for i in missing], keeping, stop):
            told = news._replace(run=missing[news.run])
            latest[told.run] = told
            progress(told)
    for i in missing:
        results[i] = _result(configs[i], keeping.path(configs[i]), latest[i])
    return [result for result in results if result is not None]


def look(c: Config, path: Path) -> Result | None:
    """How a run ended, if it has and all its files are as they were written."""
    try:
        record = read_run(path) if path.is_dir() else None
    except Damaged:
        return None
    if record is None or record.status not in ("done", "diverged") or record.notes:
        return None
    return Result(c, path, record.status, record.reason, record.final_return)


def _result(c: Config, path: Path, news: Progress) -> Result:
    """How a run stands after what was last heard of it."""
    try:
        value = read_run(path).final_return
    except KlipError:  # why it could not be trained is in the news
        value = None
    return Result(c, path, news.status, news.reason, value)
