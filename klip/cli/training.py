"""`klip train` and `klip bench`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro

from klip.cli.common import Json, console
from klip.errors import KlipError
from klip.ppo import Config
from klip.shapes import parse


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
    """The config's fields as options, each of them optional."""
    docs, types = _attribute_docs(Config), get_type_hints(Config)
    options: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(Config):
        if field.name not in ("task", "shape", "seed"):
            text = f"{docs[field.name]} (the paper's: {field.default})"
            option: Any = Annotated[(types[field.name] | None, tyro.conf.arg(help=text))]
            options.append((field.name, option, None))
    return dataclasses.make_dataclass("Overrides", options)


Overrides = _overrides()


def train(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")],
    shape: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SHAPE...")] = ("clip",),
    seeds: int = 5,
    workers: int | None = None,
    out: Path = Path("runs"),
    fields: tyro.conf.OmitArgPrefixes[Overrides] = Overrides(),  # type: ignore[valid-type]  # noqa: B008
) -> int:
    """Train shapes on a Gymnasium task, every shape with every seed, on all cores.

    Args:
        task: Gymnasium id, such as Hopper-v4
        shape: trust regions, such as clip "ramp(width=0.1)" adaptive-kl
        seeds: how many seeds, from 0
        workers: how many processes; as many as there are cores unless given
        out: folder for the runs
        fields: any field of the config

    """
    from klip.ppo.train import plan, train
    from klip.report.live import Watch, summary

    given = {k: v for k, v in dataclasses.asdict(fields).items() if v is not None}
    configs = plan(task, shape, seeds, **given)
    screen = console()
    labels = [f"{parse(c.shape).brief} seed {c.seed}" for c in configs]
    with Watch(screen, labels, [c.iterations for c in configs]) as watch:
        results = train(
            task, shape, seeds, workers=workers, out=out,
            progress=lambda _, p: watch.tell(p.run, p.status, p.row), **given,
        )  # fmt: skip
    screen.print(summary(results))
    diverged = [r for r in results if r.status == "diverged"]
    for r in diverged:
        screen.print(f"{r.config.shape} seed {r.config.seed} diverged: {r.reason}")
    screen.print(f"the runs are in {out}")
    return 1 if diverged else 0


def bench(task: tuple[str, ...] = (), quick: bool = False, as_json: Json = False) -> int:
    """Measure training speed beside Stable-Baselines3 and SBX, on all cores, in 10 minutes or so.

    Args:
        task: only these of the benchmark's tasks
        quick: three tasks, one timed turn each instead of three
        as_json: print one JSON object

    """
    script = Path(__file__).parents[2] / "benchmarks" / "speed.py"
    if not script.exists():
        raise KlipError("`klip bench` needs a checkout of the repository, which has benchmarks/")
    options = [*(["--task", *task] if task else []), *["--quick"] * quick, *["--json"] * as_json]
    return subprocess.run([sys.executable, str(script), *options], check=False).returncode
