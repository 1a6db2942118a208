"""`klip run` and `klip plans`: many tasks and shapes at once, here or on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from klip.cli.common import Json, MaybeWhole, address, console, escape, print_json
from klip.cli.training import follow
from klip.engine.advance import CHECKPOINT_EVERY, Keeping
from klip.errors import KlipError

if TYPE_CHECKING:
    from klip.engine.plan import Plan


def run(
    plan: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PLAN")],
    task: tuple[str, ...] = (),
    shape: Annotated[tuple[str, ...], tyro.conf.arg(aliases=["--arm"])] = (),
    seeds: MaybeWhole = None,
    steps: MaybeWhole = None,
    out: Path = Path("runs"),
    workers: int | None = None,
    ray: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[ADDRESS]")] = None,
    dry_run: bool = False,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    iteration_limit: float | None = None,
    have: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PACK...")] = (),
) -> int:
    """Finish what is missing of a plan, on all cores or on a Ray cluster.

    Args:
        plan: name of a shipped plan (`klip plans`), or path of a TOML file
        task: only these tasks
        shape: only these shapes, or these arms of a token plan
        seeds: number of seeds to train, the first of the plan's
        steps: environment steps, or completions, instead of the plan's
        out: folder for the runs; on a cluster, one that all machines see
        workers: number of processes here; one per core unless given
        ray: train on the Ray cluster at this address, or on the one this machine belongs to
        dry_run: only say what would be done and how long it would take
        checkpoint_every: seconds between checkpoints
        accept_changes: go on although versions or processor changed; the run records it
        start_over: begin again the runs whose checkpoints are all damaged
        iteration_limit: seconds without an iteration after which a process is replaced, as when
            an environment hangs; none unless given
        have: packs (`klip pack`) whose runs count as done, as from another machine

    """
    from klip.engine import read_plan
    from klip.engine.having import having

    if ray is not None and workers is not None:
        raise KlipError("--workers is for this machine and --ray for a cluster: give one of them")
    cluster = address(ray)
    chosen = read_plan(plan).only(task, shape, seeds, steps)
    keeping = Keeping(out, checkpoint_every, accept_changes, start_over, having(have))
    console().print(f"plan {escape(chosen.name)}: {escape(chosen.about)}")
    return follow_plan(chosen, keeping, workers, cluster, dry_run, limit=iteration_limit)


def follow_plan(
    plan: Plan,
    keeping: Keeping,
    workers: int | None = None,
    ray: str | None = None,
    dry_run: bool = False,
    screen: Console | None = None,
    limit: float | None = None,
) -> int:
    """Finish the missing jobs of a plan, stage by stage; return 0 if all are done, else 1."""
    from klip.engine.finish import ENDED, check_missing, estimate, survey
    from klip.engine.run import site

    if plan.course is None:
        return follow(plan.configs, keeping, workers, ray, dry_run, limit=limit)
    where, screen = site(workers, ray), screen or console()
    everything = survey(plan.course.all_jobs(keeping), keeping)
    check_missing(everything)  # of all stages: the last one may begin hours later
    words = estimate(everything, where.cores, where.words)
    screen.print(escape(f"all stages: {words}"))
    code, stage = 0, plan
    while not dry_run:
        screen.print(f"stage {stage.stage}")
        code |= follow(stage.configs, keeping, workers, ray, False, screen, limit)
        stood = survey(stage.configs, keeping).ended
        if any(job.id not in stood or stood[job.id].status not in ENDED for job in stage.configs):
            return 1
        following = stage.next(keeping)
        if following is None:
            break
        stage = following
    return code


def plans(as_json: Json = False) -> None:
    """List the plans that come with Klip."""
    from klip.engine import read_plan, shipped_plans
    from klip.engine.job import label_of

    shipped = [read_plan(name) for name in shipped_plans()]
    names = {plan.name: list(dict.fromkeys(map(label_of, plan.configs))) for plan in shipped}
    if as_json:
        described = {
            plan.name: {
                "about": plan.about,
                "runs": len(plan.configs),
                "kind": plan.configs[0].kind,
                "names": names[plan.name],
            }
            for plan in shipped
        }
        return print_json(described)
    table = Table(box=None)
    for column in ("plan", "runs", "tasks", "shapes or arms", "about"):
        table.add_column(column, justify="right" if column == "runs" else "left", overflow="fold")
    for plan in shipped:
        tasks = ", ".join(dict.fromkeys(c.task for c in plan.configs))
        shown = "; ".join(names[plan.name])
        table.add_row(plan.name, str(len(plan.configs)), tasks, escape(shown), plan.about)
    console().print(table)
