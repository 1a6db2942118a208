"""The command `klip`: each function below is a subcommand, and does nothing but ask and print."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro
from rich.console import Console
from rich.table import Table

from klip.errors import KlipError
from klip.ppo import Config
from klip.shapes import Controller, Gate, Shape, Threshold, Value, catalogue, parse, parse_shape

Json = Annotated[bool, tyro.conf.arg(name="json", help="print one JSON object")]
Output = Annotated[
    Path | None, tyro.conf.arg(aliases=["-o"], help="file to write: png, svg or pdf")
]
ShapeName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SHAPE")]
ShapeNames = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SHAPE...")]
Given = Annotated[
    tuple[str, ...],
    tyro.conf.arg(metavar="FIELD=NUMBER...", help="context to assume, such as age=4"),
]


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


def shapes(as_json: Json = False) -> None:
    """The catalogue: every shipped shape, controller, gate and threshold."""
    kinds = {"shapes": (Shape, Controller), "gates": (Gate,), "thresholds": (Threshold,)}
    found: dict[str, list[dict[str, Any]]] = {
        title: [_entry(cls) for kind in parts for cls in catalogue(kind).values()]
        for title, parts in kinds.items()
    }
    if as_json:
        return _print_json(found)
    console = _console()
    for title, entries in found.items():
        table = Table(title=f"{title} ({len(entries)})", title_justify="left", box=None)
        for column in ("", "name", "parameters", "formula", "needs", "reference"):
            table.add_column(column, overflow="fold", no_wrap=column in ("", "name"))
        for entry in entries:
            needs = ", ".join(entry["needs"])
            parameters = ", ".join(f"{k}={v}" for k, v in entry["parameters"].items())
            formula, reference = _escape(entry["formula"]), _escape(entry["reference"])
            name = f"[bold]{entry['name']}[/]"
            table.add_row(entry["number"], name, parameters, formula, needs, reference)
        console.print(table, "")
    console.print('Write one as "clip(eps=0.3)"; see it with `klip show clip`.')


def show(
    names: ShapeNames,
    output: Output = None,
    context: Given = (),
    eps: float = 0.2,
    upto: float = 2.0,
) -> None:
    """Draw shapes side by side: multiplier and beta against w, and the beta map.

    Args:
        names: shapes, such as clip "ramp(width=0.1)" my_shapes.py:MyShape
        output: file to write: png, svg or pdf
        context: context to assume, such as age=4
        eps: radius of the band that is shaded where a shape has none of its own
        upto: largest ratio to draw

    """
    if not names:
        raise KlipError(
            "name at least one shape, such as `klip show clip`; `klip shapes` lists all"
        )
    from klip.report.show import save, show

    if upto <= 1:
        raise KlipError(f"--upto {upto} leaves nothing beyond w = 1 to see: give more than 1")
    chosen = [parse_shape(name) for name in names]
    path = output or Path("-".join(s.name for s in chosen)[:80] + ".png")
    save(show(chosen, context=_context(context), eps=eps, ratios=(0.0, upto)), path)
    print(f"wrote {path}")


def profile(name: ShapeName, as_json: Json = False, context: Given = ()) -> None:
    """The properties of a shape: anchor, drift, sign, bounds, jumps, equilibrium, and more."""
    from klip.theory.profile import profile

    shape, given = parse_shape(name), _context(context)
    properties = profile(shape, given).as_dict()
    if as_json:
        return _print_json({"shape": str(shape), "context": dict(given), **properties})
    _console().print(_properties(str(shape), properties))


def probe(
    loss: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.py:FUNCTION")],
    as_json: Json = False,
    output: Output = None,
) -> None:
    """Which trust region a loss function really implements, by its gradients alone."""
    from klip.report.show import probe_picture, save
    from klip.theory.probe import load_loss, probe

    found = probe(load_loss(loss))
    if output is not None:
        save(probe_picture(found.points(), found.match.shape, loss), output)
    if as_json:
        return _print_json(found.as_dict())
    console = _console()
    match, where = found.match, found.match.where
    kind = "is" if match.exact else "is none of the catalogue; the nearest is"
    console.print(f"{loss} ({found.framework}, {found.reduction}) {kind} [bold]{match.shape}[/]")
    console.print(
        f"largest difference {match.max_difference:.3g} at w={where[0]:.4g}, A={where[1]:g}"
    )
    if match.equivalents:
        console.print(f"the same function as {', '.join(match.equivalents)}")
    console.print(_properties("its own profile", found.profile.as_dict()))
    for finding in found.findings:
        colour = "dim" if finding.by_design else "bold red"
        console.print(f"[{colour}]{finding.code}[/]: {_escape(finding.message)}")
    console.print("" if found.findings else "nothing looks wrong")
    if output is not None:
        print(f"wrote {output}")


def verify(as_json: Json = False, samples: int = 1 << 20, seed: int = 0) -> int:
    """Check the paper's two theorems, sample by sample; exits with 1 if one does not hold.

    Args:
        as_json: print one JSON object
        samples: how many samples to draw; a quarter as many go through each network
        seed: of the samples

    """
    if samples < 4096:
        raise KlipError(f"--samples {samples} is too few to fill every corner: give at least 4096")
    from klip.theory.identity import verify

    certificate = verify(samples=samples, seed=seed)
    if as_json:
        _print_json(certificate.as_dict())
        return 0 if certificate.ok else 1
    console = _console()
    table = Table(box=None)
    for column in ("", "check", "samples", "measured", "bound"):
        table.add_column(column, justify="right" if column in ("samples", "measured") else "left")
    for check in certificate.checks:
        mark = "[green]ok[/]" if check.ok else "[bold red]NO[/]"
        table.add_row(mark, check.name, f"{check.samples:,}", f"{check.measured:.3g}",
                      f"{check.bound:g}")  # fmt: skip
    console.print(table)
    passed = sum(check.ok for check in certificate.checks)
    console.print(f"{passed} of {len(certificate.checks)} checks hold")
    return 0 if certificate.ok else 1


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
    console = _console()
    labels = [f"{parse(c.shape).brief} seed {c.seed}" for c in configs]
    with Watch(console, labels, [c.iterations for c in configs]) as watch:
        results = train(
            task, shape, seeds, workers=workers, out=out,
            progress=lambda _, p: watch.tell(p.run, p.status, p.row), **given,
        )  # fmt: skip
    console.print(summary(results))
    diverged = [r for r in results if r.status == "diverged"]
    for r in diverged:
        console.print(f"{r.config.shape} seed {r.config.seed} diverged: {r.reason}")
    console.print(f"the runs are in {out}")
    return 1 if diverged else 0


def curves(
    runs: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = Path("runs"),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("curves.png"),
) -> None:
    """Draw the learning curves of finished runs, and say which shapes trained to the same bytes.

    Args:
        runs: folder that `klip train` wrote
        output: file to write: png, svg or pdf

    """
    from klip.report.learning import find_runs, identities, learning_curves
    from klip.report.style import save

    found = find_runs(runs)
    save(learning_curves(found), output)
    for task, first, second, alike, seeds in identities(found):
        same = f"identical, byte for byte, in {alike} of {seeds} seeds"
        print(f"{task}: {first} and {second} are {same}")
    print(f"wrote {output}")


def figures(output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("figures")) -> None:
    """Draw the paper's geometry figures, as PNG and SVG.

    Args:
        output: folder to write them to

    """
    from klip.report.geometry import write_figures

    for path in write_figures(output):
        print(f"wrote {path}")


def bench(task: tuple[str, ...] = (), quick: bool = False, as_json: Json = False) -> int:
    """Measure training speed beside Stable-Baselines3 and SBX, on all cores, in 10 minutes or so.

    Args:
        task: only these of the benchmark's tasks
        quick: three tasks, one timed turn each instead of three
        as_json: print one JSON object

    """
    script = Path(__file__).parents[1] / "benchmarks" / "speed.py"
    if not script.exists():
        raise KlipError("`klip bench` needs a checkout of the repository, which has benchmarks/")
    options = [*(["--task", *task] if task else []), *["--quick"] * quick, *["--json"] * as_json]
    return subprocess.run([sys.executable, str(script), *options], check=False).returncode


COMMANDS: dict[str, Callable[..., Any]] = {
    "shapes": shapes,
    "show": show,
    "profile": profile,
    "probe": probe,
    "verify": verify,
    "train": train,
    "curves": curves,
    "figures": figures,
    "bench": bench,
}


def main(args: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on standard error and exit code 2."""
    try:
        result = tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="klip",
            description="The workbench for trust regions in policy optimisation.",
            args=args,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
        sys.stdout.flush()
    except KlipError as error:
        print(f"klip: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("klip: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `klip shapes | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return int(result or 0)


def _console() -> Console:
    """Wide enough for a table when the output is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def _print_json(data: Mapping[str, Any]) -> None:
    print(json.dumps(data, indent=2, allow_nan=False, default=str))


def _escape(text: str) -> str:
    return text.replace("[", "\\[")


def _entry(cls: type[Value]) -> dict[str, Any]:
    value = cls()
    formula = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    return {
        "name": cls.name,
        "family": cls.family,
        "parameters": {
            k: str(v) if isinstance(v, Value) else v for k, v in value.parameters.items()
        },
        "needs": sorted(value.needs),
        "reference": cls.reference,
        "number": cls.number,
        "formula": formula,
    }


def _context(given: Sequence[str]) -> dict[str, float]:
    pairs = {}
    for text in given:
        name, _, number = text.partition("=")
        try:
            pairs[name] = float(number)
        except ValueError:
            raise KlipError(f"--context {text} must be FIELD=NUMBER, such as age=4") from None
    return pairs


def _properties(title: str, properties: Mapping[str, Any]) -> Table:
    from klip.theory.profile import Profile

    table = Table(title=title, title_justify="left", show_header=False, box=None)
    meanings = Profile.meanings()
    for key, value in properties.items():
        table.add_row(key.replace("_", " "), _escape(_plain(value)), f"[dim]{meanings[key]}[/]")
    return table


def _plain(value: Any) -> str:
    """A property as a person would write it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case dict():
            return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
        case list() | tuple():
            return "; ".join(_plain(v) for v in value) or "none"
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
