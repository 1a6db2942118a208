"""`klip shapes`, `show`, `profile`, `probe`, `verify`, `figures`: look at trust regions."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from klip.cli.common import Json, Output, console, escape, print_json
from klip.errors import KlipError
from klip.shapes import Controller, Gate, Region, Shape, Threshold, Value, catalogue, parse

ShapeName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SHAPE")]
ShapeNames = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SHAPE...")]
Given = Annotated[
    tuple[str, ...],
    tyro.conf.arg(metavar="FIELD=NUMBER...", help="context to assume, such as age=4"),
]


MOST = 6
"""How many jumps or sign changes a table lists."""


def shapes(as_json: Json = False) -> None:
    """List the catalogue: every shipped shape, controller, gate and threshold."""
    kinds = {"shapes": (Shape, Controller), "gates": (Gate,), "thresholds": (Threshold,)}
    listed: dict[str, list[dict[str, Any]]] = {
        title: [_entry(cls) for kind in parts for cls in catalogue(kind).values()]
        for title, parts in kinds.items()
    }
    if as_json:
        return print_json(listed)
    out = console()
    for title, entries in listed.items():
        table = Table(title=f"{title} ({len(entries)})", title_justify="left", box=None)
        columns = ["", "name", "parameters", "formula", "needs", "guarantees", "reference"]
        if title != "shapes":
            columns.remove("guarantees")
        for column in columns:
            table.add_column(column, overflow="fold", no_wrap=column in ("", "name"))
        for entry in entries:
            needs = ", ".join(entry["needs"])
            parameters = ", ".join(f"{k}={v}" for k, v in entry["parameters"].items())
            formula, reference = escape(entry["formula"]), escape(entry["reference"])
            name = f"[bold]{entry['name']}[/]"
            kept = [entry["guarantees"]] if "guarantees" in entry else []
            table.add_row(entry["number"], name, parameters, formula, needs, *kept, reference)
        out.print(table, "")
    out.print(
        "guarantees: T1 what raises the objective raises the return, T2 at any step size, T3 the "
        "inner loop ends within a bound; `klip guarantee clip` says why"
    )
    out.print('Write one as "clip(eps=0.3)"; see it with `klip show clip`.')


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
    from klip.draw.show import show

    if not names:
        raise KlipError(
            "name at least one shape, such as `klip show clip`; `klip shapes` lists all"
        )
    chosen = [parse(name) for name in names]
    path = output or Path("-".join(region.initial.name for region in chosen)[:80] + ".png")
    show(chosen, path, _context(context), eps, upto)
    print(f"wrote {path}")


def profile(name: ShapeName, as_json: Json = False, context: Given = ()) -> None:
    """Print the properties of a shape: anchor, drift, sign, bounds, jumps, equilibrium and more."""
    from klip.theory.profile import profile

    shape, assumed = parse(name).initial, _context(context)
    properties = profile(shape, assumed).as_dict()
    if as_json:
        return print_json({"shape": str(shape), "context": dict(assumed), **properties})
    console().print(_properties(str(shape), properties))


def probe(
    loss: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.py:FUNCTION")],
    settings: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE...")] = (),
    as_json: Json = False,
    output: Output = None,
    profile: bool = False,
) -> int:
    """Find which trust region a loss implements, by its gradients; exits with 1 if it looks wrong.

    Args:
        loss: file.py:function or package.module:function; TRL's as trl:GRPOTrainer, verl's as
            verl.trainer.ppo.core_algos:compute_policy_loss_vanilla
        settings: keyword arguments of the loss, or settings of TRL's GRPOConfig and verl's actor
        as_json: print one JSON object
        output: file to draw the multiplier to: png, svg or pdf
        profile: print its own profile too

    """
    from klip.adapters.stock import probe

    probed = probe(loss, settings, output)
    if as_json:
        print_json(probed.as_dict())
        return 0 if probed.ok else 1
    out = console()
    say = functools.partial(out.print, soft_wrap=True, highlight=False)  # a line is a line
    say(f"[bold]{escape(probed.headline)}[/]")
    for finding in probed.findings:
        if not finding.by_design:
            say(f"[bold red]{finding.code}[/]: {escape(finding.message)}")
    if probed.ok:
        say("nothing looks wrong")
    if probed.caveats:
        say(f"[dim]caveats: {escape('; '.join(probed.caveats))}[/]")
    if profile:
        out.print(_properties("its own profile", probed.profile.as_dict()))
    if output is not None:
        print(f"wrote {output}")
    return 0 if probed.ok else 1


def verify(as_json: Json = False, samples: int = 1 << 20, seed: int = 0) -> int:
    """Check the paper's two theorems, sample by sample; exits with 1 if one does not hold.

    Args:
        as_json: print one JSON object
        samples: number of samples; a quarter as many go through each network
        seed: seed of the samples

    """
    if samples < 4096:
        raise KlipError(f"--samples {samples} is too few to fill every corner: give at least 4096")
    from klip.theory.identity import verify

    certificate = verify(samples=samples, seed=seed)
    if as_json:
        print_json(certificate.as_dict())
        return 0 if certificate.ok else 1
    out = console()
    table = Table(box=None)
    for column in ("", "check", "samples", "measured", "bound"):
        table.add_column(column, justify="right" if column in ("samples", "measured") else "left")
    for check in certificate.checks:
        mark = "[green]ok[/]" if check.ok else "[bold red]NO[/]"
        numbers = (f"{check.samples:,}", f"{check.measured:.3g}", f"{check.bound:g}")
        table.add_row(mark, check.name, *numbers)
    out.print(table)
    passed = sum(check.ok for check in certificate.checks)
    out.print(f"{passed} of {len(certificate.checks)} checks hold")
    return 0 if certificate.ok else 1


def figures(output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("figures")) -> None:
    """Draw the paper's geometry figures, as PNG and SVG.

    Args:
        output: folder to write them to

    """
    from klip.draw.geometry import figures

    for path in figures(output):
        print(f"wrote {path}")


def _entry(cls: type[Value]) -> dict[str, Any]:
    value = cls()
    kept = {}
    if isinstance(value, Region):
        from klip.theory.guarantee.table import in_brief

        kept = {"guarantees": in_brief(str(value))}
    return {
        "name": cls.name,
        "family": cls.family,
        "parameters": {
            k: str(v) if isinstance(v, Value) else v for k, v in value.parameters.items()
        },
        "needs": sorted(value.needs),
        "reference": cls.reference,
        "number": cls.number,
        "formula": value.formula,
        **kept,
    }


def _context(texts: Sequence[str]) -> dict[str, float]:
    pairs = {}
    for text in texts:
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
        table.add_row(key.replace("_", " "), escape(_plain(value)), f"[dim]{meanings[key]}[/]")
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
            shown = "; ".join(_plain(v) for v in value[:MOST]) or "none"
            more = len(value) - MOST
            return f"{shown}; and {more} more" if more > 0 else shown
    return str(value)
