"""`klip train`, `resume`, `runs` and `bench`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console

from klip.cli.common import Flag, Json, MaybeWhole, TaskArgs, Whole, console, escape, print_json
from klip.engine.advance import CHECKPOINT_EVERY, Keeping
from klip.engine.fields import types_of
from klip.errors import KlipError
from klip.ppo.config import OWN, Config
from klip.ppo.presets import PRESETS
from klip.runs.files import shown
from klip.runs.store import TRACEBACK

if TYPE_CHECKING:
    from klip.engine.job import Job


def _attribute_docs(cls: type) -> dict[str, str]:
    """The strings that stand under a dataclass's fields."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        before.target.id: str(after.value.value)
        for before, after in itertools.pairwise(body.body)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }


def _overrides() -> type:
    """The config's fields as options, each of them optional; a yes or no has two, as flags."""
    docs, types = _attribute_docs(Config), types_of(Config)
    whose = "whose conventions hold where no field says otherwise (the paper's: paper)"
    options: list[tuple[str, Any, Any]] = [
        ("preset", _described(Literal[tuple(PRESETS)] | None, whose), None)
    ]
    for field in dataclasses.fields(Config):
        if field.name in OWN:
            continue
        kind, usual, text = types[field.name], field.default, docs[field.name]
        if kind is bool:
            text, usual = f"{text} (the paper's: {'yes' if usual else 'no'})", None
            options.append((field.name, _described(Flag, text), None))
            opposite = f"the opposite of --{field.name.replace('_', '-')}"
            options.append((f"no_{field.name}", _described(Flag, opposite), None))
            continue
        option = TaskArgs if field.name == "task_args" else MaybeWhole if kind is int else None
        text = f"{text} (the paper's: {usual})" if usual not in ("", ()) else text
        options.append((field.name, _described(option or kind | None, text), None))
    return dataclasses.make_dataclass("Overrides", options)


def _described(option: Any, text: str) -> Any:
    about = tyro.conf.arg(help=text, help_behavior_hint="")
    return Annotated[(option, about, tyro.conf.DisallowNone)]


def given(overrides: Any) -> dict[str, Any]:
    """The fields of the config that were given as options."""
    said = {k: v for k, v in dataclasses.asdict(overrides).items() if v is not None}
    denied = [name.removeprefix("no_") for name in said if name.startswith("no_")]
    for name in denied:
        if name in said:
            flag = name.replace("_", "-")
            raise KlipError(f"--{flag} and --no-{flag} were both given: give one of them")
        del said[f"no_{name}"]
    return {**said, **dict.fromkeys(denied, False)}


Overrides = _overrides()


def train(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")],
    shape: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="SHAPE...")] = None,
    seeds: Whole = 5,
    workers: int | None = None,
    out: Path = Path("runs"),
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    iteration_limit: float | None = None,
    fields: tyro.conf.OmitArgPrefixes[Overrides] = Overrides(),  # type: ignore[valid-type]  # noqa: B008
) -> int:
    """Train shapes on a Gymnasium task, every shape with every seed, on all cores.

    The same command again goes on where it stopped, and repeats nothing.

    Args:
        task: Gymnasium id, such as Hopper-v4; your own is module:Id-v0 or file.py:Id-v0
        shape: trust regions, such as clip "ramp(width=0.1)" adaptive-kl; the preset's unless given
        seeds: number of seeds, from 0
        workers: number of processes; one per core unless overrides
        out: folder for the runs
        checkpoint_every: seconds between checkpoints
        accept_changes: go on although versions or processor changed; the run records it
        start_over: begin again the runs whose checkpoints are all damaged
        iteration_limit: seconds without an iteration after which a process is replaced, as when
            an environment hangs; none unless given
        fields: a preset, and any field of the config

    """
    from klip.ppo.train import plan

    keeping = Keeping(out, checkpoint_every, accept_changes, start_over)
    jobs = plan(task, shape, seeds, **given(fields))
    return follow(jobs, keeping, workers, limit=iteration_limit)


def resume(
    runs: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = Path("runs"),
    workers: int | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    run_code: bool = False,
    iteration_limit: float | None = None,
) -> int:
    """Go on with every run in a folder that has not ended, exactly where it stopped.

    Args:
        runs: folder that `klip train` or `klip run` wrote, or one run in it
        workers: number of processes; one per core unless given
        checkpoint_every: seconds between checkpoints
        accept_changes: go on although versions or processor changed; the run records it
        start_over: begin again the runs whose checkpoints are all damaged
        run_code: go on with runs whose shape or task is somebody's Python code
        iteration_limit: seconds without an iteration after which a process is replaced, as when
            an environment hangs; none unless given

    """
    from klip.engine.resume import read_jobs

    out, jobs = read_jobs(runs, run_code)
    keeping = Keeping(out, checkpoint_every, accept_changes, start_over)
    return follow(jobs, keeping, workers, limit=iteration_limit)


def runs(
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = Path("runs"),
    as_json: Json = False,
) -> int:
    """List the runs in a folder: task, shape, seed, status, progress, return, and why it stopped.

    Args:
        folder: folder that `klip train` or `klip run` wrote, or one run in it
        as_json: print one JSON object

    """
    from klip.engine.listing import list_runs, runs_table

    entries = list_runs(folder)
    if as_json:
        print_json({"runs": entries})
    else:
        screen = console()
        screen.print(runs_table(entries, folder))
        for run in entries:
            for note in run["notes"]:
                screen.print(escape(shown(f"{run['path']}: {note}")), style="yellow")
    return 1 if any(run["status"] == "damaged" for run in entries) else 0


def follow(
    jobs: Sequence[Job],
    keeping: Keeping,
    workers: int | None = None,
    ray: str | None = None,
    dry_run: bool = False,
    screen: Console | None = None,
    limit: float | None = None,
) -> int:
    """Finish the missing jobs and show their progress; return 0 if all are done, else 1."""
    from klip.engine.finish import check_missing, estimate, finish, survey
    from klip.engine.labels import labels_of
    from klip.engine.live import Watch, summary
    from klip.engine.memory import check_memory
    from klip.engine.run import site
    from klip.engine.schedule import cost, schedule

    runner, cores, where = site(workers, ray, limit)
    screen, surveyed = screen or console(), survey(jobs, keeping)
    if not dry_run:
        check_missing(surveyed)
    screen.print(escape(estimate(surveyed, cores, where)))
    if dry_run:
        check_missing(surveyed)
        if ray is None:
            check_memory(schedule(surveyed.missing, cores).groups, cores)
        return 0
    watched = list({job.id: job for job in (*surveyed.missing, *surveyed.jobs)}.values())
    with Watch(screen, watched, [cost([job]) for job in watched]) as watch:
        try:
            results = finish(surveyed, runner, watch.tell, watch.say)
        except (KeyboardInterrupt, SystemExit):
            watch.say("the same command goes on from here")
            raise
    screen.print(summary(results))
    names = labels_of([r.config for r in results])
    undone = [(r, name) for r, name in zip(results, names, strict=True) if r.status != "done"]
    for r, name in undone:
        name = f"{r.config.task} {name} seed {r.config.seed}"
        screen.print(f"[bold red]{r.status}[/]: {escape(name)}: {escape(shown(r.reason))}")
        if (r.path / TRACEBACK).is_file():
            screen.print(f"  its traceback is in {escape(str(r.path / TRACEBACK))}")
    places = [keeping.out] if len(surveyed.taken) < len(results) else []
    places += [keeping.have.places[id] for id in surveyed.taken]
    words = " and ".join(dict.fromkeys(map(str, places)))
    screen.print(f"the runs are in {escape(words)}")
    return 1 if undone else 0


def bench(task: tuple[str, ...] = (), quick: bool = False, as_json: Json = False) -> int:
    """Measure training speed beside Stable-Baselines3 and SBX, on all cores, in about 10 minutes.

    Args:
        task: only these of the benchmark's tasks
        quick: three tasks, one timed turn each instead of three
        as_json: print one JSON object

    """
    script = Path(__file__).parents[2] / "benchmarks" / "speed.py"
    if not script.exists():
        raise KlipError("`klip bench` needs a checkout of the repository, which has benchmarks/")
    if not hasattr(os, "sched_setaffinity"):
        raise KlipError(
            "`klip bench` keeps each process on one core, as only Linux can: run it there"
        )
    options = [*(["--task", *task] if task else []), *["--quick"] * quick, *["--json"] * as_json]
    return subprocess.run([sys.executable, str(script), *options], check=False).returncode
