"""`klip run` and `klip plans`: many tasks and shapes at once, here or on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from klip.cli.common import Json, console, escape, print_json
from klip.cli.training import follow
from klip.errors import KlipError
from klip.ppo.advance import CHECKPOINT_EVERY, Keeping


def run(
    plan: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PLAN")],
    task: tuple[str, ...] = (),
    shape: tuple[str, ...] = (),
    seeds: int | None = None,
    steps: int | None = None,
    out: Path = Path("runs"),
    workers: int | None = None,
    ray: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[ADDRESS]")] = None,
    dry_run: bool = False,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
) -> int:
    """Finish what is missing of a plan, on all cores or on a Ray cluster.

    Args:
        plan: name of a shipped plan (`klip plans`), or path of a TOML file
        task: only these tasks
        shape: only these shapes
        seeds: only the first so many seeds
        steps: so many environment steps instead of the plan's
        out: folder for the runs; on a cluster one that all machines see
        workers: how many processes here; as many as there are cores unless given
        ray: train on the Ray cluster at this address, or on the one this machine belongs to
        dry_run: only say what would be done and how long it would take
        checkpoint_every: seconds between checkpoints
        accept_changes: go on though versions or processor changed; recorded in the run
        start_over: begin runs again whose checkpoints are all damaged

    """
    from klip.experiments import read_plan
    from klip.experiments.local import estimate, here_in_order
    from klip.ppo.workers import cores_for

    if ray is not None and workers is not None:
        raise KlipError("--workers is for this machine and --ray for a cluster: give one of them")
    chosen = read_plan(plan).only(task, shape, seeds, steps)
    keeping = Keeping(out, checkpoint_every, accept_changes, start_over)
    if ray is not None:
        from klip.experiments.cluster import cpus, on_ray

        if len(ray) > 1:
            raise KlipError(f"--ray {' '.join(ray)}: give one address, or none")
        runner, cores, where = on_ray(ray[0] if ray else "auto"), cpus(), "of the Ray cluster"
    else:
        cores, where = cores_for(workers), "here"
        runner = here_in_order(cores)
    screen = console()
    screen.print(f"plan {escape(chosen.name)}: {escape(chosen.about)}")
    screen.print(escape(estimate(chosen.configs, keeping, cores, where)))
    if dry_run:
        return 0
    return follow(chosen.configs, keeping, runner)


def plans(as_json: Json = False) -> None:
    """List the plans that come with Klip."""
    from klip.experiments import read_plan, shipped_plans

    found = [read_plan(name) for name in shipped_plans()]
    if as_json:
        return print_json({plan.name: {"about": plan.about, "runs": len(plan.configs)}
                           for plan in found})  # fmt: skip
    table = Table(box=None)
    for column in ("plan", "runs", "tasks", "about"):
        table.add_column(column, justify="right" if column == "runs" else "left")
    for plan in found:
        tasks = ", ".join(dict.fromkeys(c.task for c in plan.configs))
        table.add_row(plan.name, str(len(plan.configs)), tasks, plan.about)
    console().print(table)
