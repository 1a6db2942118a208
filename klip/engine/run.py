"""`klip.run` and `klip.resume`: finish a plan, or the runs of a folder, with one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from klip.engine.advance import CHECKPOINT_EVERY, Keeping
from klip.engine.crew import cores_for
from klip.engine.finish import HERE, Listener, Result, Runner, ended, finish, here, survey
from klip.engine.having import having
from klip.engine.plan import Plan, read_plan
from klip.engine.resume import read_jobs
from klip.errors import KlipError


class Site(NamedTuple):
    """Where jobs run."""

    runner: Runner
    cores: int
    words: str
    """as in "on 2 cores here" """


def site(workers: int | None = None, ray: str | None = None, limit: float | None = None) -> Site:
    """Where to run: in processes here, or on a Ray cluster.

    Args:
        workers: number of processes here; one per core unless given
        ray: address of a cluster; "auto" is the one that this machine belongs to
        limit: seconds of silence after which a process here is replaced

    """
    if ray is None:
        return Site(here(workers, limit), cores_for(workers), HERE)
    if workers is not None:
        raise KlipError("workers is for this machine and ray for a cluster: give one of them")
    if limit is not None:
        raise KlipError("iteration_limit is for processes on this machine, not for Ray's")
    from klip.engine.cluster import cpus, on_ray

    return Site(on_ray(ray), cpus(), "of the Ray cluster")


def run(
    plan: str | Path | Plan,
    task: Sequence[str] = (),
    shape: Sequence[str] = (),
    seeds: int | None = None,
    steps: int | None = None,
    out: str | Path = "runs",
    workers: int | None = None,
    ray: str | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    iteration_limit: float | None = None,
    have: Sequence[str | Path] = (),
    progress: Listener = lambda news: None,
) -> list[Result]:
    """Finish the missing runs of a plan, stage by stage if it has several.

    Return how each of its runs stands, and where it lies. Runs that have ended in `out` or in one
    of the packs in `have` are not trained again.

    Raises `Unfinished` as `klip.train` does.

    >>> results = run("paper", task=["CartPole-v1"], seeds=1)  # doctest: +SKIP
    >>> {result.status for result in results}  # doctest: +SKIP

    Args:
        plan: a plan, the name of a shipped one, or the path of a TOML file
        task: only these tasks
        shape: only these shapes, or these arms of a token plan
        seeds: number of seeds to train, the first of the plan's
        steps: environment steps, or completions, instead of the plan's
        out: folder for the runs; on a cluster, one that all machines see
        workers: number of processes here; one per core unless given
        ray: address of a Ray cluster to train on; "auto" is the one this machine belongs to
        checkpoint_every: seconds between checkpoints
        accept_changes: go on with runs begun under other versions or on another processor
        start_over: begin again the runs whose checkpoints are all damaged
        iteration_limit: seconds without an iteration after which a process is replaced, as when
            an environment hangs; none unless given
        have: packs (`klip.pack`) whose runs count as done, as from another machine
        progress: called with the news of every iteration of every run

    Returns:
        how each run of the plan stands, and where it lies: its folder, or the pack that has it

    """
    chosen = plan if isinstance(plan, Plan) else read_plan(plan)
    packs = having(have)
    keeping = Keeping(Path(out), checkpoint_every, accept_changes, start_over, packs)
    runner = site(workers, ray, iteration_limit).runner
    stage: Plan | None = chosen.only(task, shape, seeds, steps)
    results: list[Result] = []
    while stage is not None:
        results += ended(finish(survey(stage.configs, keeping), runner, progress))
        stage = stage.next(keeping)
    return results


def resume(
    runs: str | Path = "runs",
    workers: int | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    run_code: bool = False,
    iteration_limit: float | None = None,
    progress: Listener = lambda news: None,
) -> list[Result]:
    """Go on with every run in a folder that has not ended; return how each stands then.

    Runs that were done before are not among them; those that had diverged are. Raises `Unfinished`
    as `klip.train` does.

    >>> [result.status for result in resume("runs")]  # doctest: +SKIP

    Args:
        runs: folder that `klip.train` or `klip.run` wrote, or one run in it
        workers: number of processes; one per core unless given
        checkpoint_every: seconds between checkpoints
        accept_changes: go on although versions or processor changed; the run records it
        start_over: begin again the runs whose checkpoints are all damaged
        run_code: go on with runs whose shape or task is somebody's Python code
        iteration_limit: seconds without an iteration after which a process is replaced, as when
            an environment hangs; none unless given
        progress: called with the news of every iteration of every run

    Returns:
        how each run stands, and where it lies

    """
    out, jobs = read_jobs(Path(runs), run_code)
    keeping = Keeping(out, checkpoint_every, accept_changes, start_over)
    return ended(finish(survey(jobs, keeping), here(workers, iteration_limit), progress))
