"""`klip.train`: many runs with one call, on all cores, into their folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from klip.engine.advance import CHECKPOINT_EVERY, Keeping
from klip.engine.fields import check_runs, whole_number
from klip.engine.finish import Listener, Result, ended, finish, here, survey
from klip.errors import KlipError
from klip.ppo.config import Config, config
from klip.ppo.presets import shape_of
from klip.shapes import Region
from klip.shapes.names import spelled

Task = str | Callable[..., Any]
"""A Gymnasium id, or a class or function that makes an environment."""


def plan(
    task: Task,
    shape: str | Region | Sequence[str | Region] | None = None,
    seeds: int | Iterable[int] = 5,
    **fields: Any,
) -> list[Config]:
    """Every shape with every seed, seeds varying fastest."""
    if shape is None:
        shape = str(shape_of(fields.get("preset", "paper")))
    shapes = [shape] if isinstance(shape, (str, Region)) else list(shape)
    spellings = [each if isinstance(each, str) else spelled(each) for each in shapes]
    chosen = [*seeds] if isinstance(seeds, Iterable) else range(whole_number("seeds", seeds))
    check_runs(len(shapes) * len(chosen))
    name = task if isinstance(task, str) else _name(task)
    if not shapes or not chosen:
        raise KlipError("nothing to train: give at least one shape and one seed")
    configs = [
        config(name, shape=each, seed=seed, **fields) for each in spellings for seed in chosen
    ]
    if len({c.id for c in configs}) < len(configs):
        raise KlipError("the same run is named twice: give each shape and seed once")
    return configs


def _name(maker: Callable[..., Any]) -> str:
    from klip.tasks.own import task_of  # here, since it loads Gymnasium

    return task_of(maker)


def train(
    task: Task,
    shape: str | Region | Sequence[str | Region] | None = None,
    seeds: int | Iterable[int] = 5,
    *,
    preset: str = "paper",
    workers: int | None = None,
    out: str | Path = "runs",
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    iteration_limit: float | None = None,
    progress: Listener = lambda news: None,
    **fields: Any,
) -> list[Result]:
    """Train every shape with every seed; how each run stands then, and where it lies.

    It works in a plain script, in a notebook and under pytest: no `if __name__ == "__main__"` is
    needed. Raises `Unfinished` where a run failed or could not be trained, once all others have
    ended; a run that diverged has ended, and is returned as that.

    >>> results = train("CartPole-v1", ["clip", "spo"], seeds=5)  # doctest: +SKIP
    >>> {result.status for result in results}  # doctest: +SKIP

    Args:
        task: Gymnasium id; one of your own is `module:Id-v0` or `file.py:Id-v0`, or a class or
            function that makes an environment, with its keyword arguments as `task_args`
        shape: trust regions or controllers, or their spellings; one, or several; the preset's
            unless given, which is PPO-Clip
        seeds: how many, from 0, or which
        preset: whose conventions hold where no field says otherwise: "paper", "sb3", "cleanrl",
            "spinning-up" or "brax"
        workers: how many processes; as many as there are cores unless given
        out: folder for the runs; one that is there goes on where it stopped, and is not repeated
        checkpoint_every: seconds between checkpoints
        accept_changes: go on with runs begun under other versions or on another processor
        start_over: begin those again whose checkpoints are all damaged
        iteration_limit: seconds without an iteration after which a process is replaced, as when
            an environment hangs; none unless given
        progress: hears of every iteration of every run, by its id
        fields: those of `Config`, `steps` among them

    Returns:
        for each run its status, its folder and its final return

    """
    keeping = Keeping(Path(out), checkpoint_every, accept_changes, start_over)
    found = survey(plan(task, shape, seeds, preset=preset, **fields), keeping)
    return ended(finish(found, here(workers, iteration_limit), progress))
