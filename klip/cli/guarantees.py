"""`klip guarantee`: which promises a shape keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from klip.cli.common import Json, Output, Whole, console, escape, print_json
from klip.cli.shapes import ShapeNames
from klip.errors import KlipError
from klip.theory.guarantee.verdict import CLAIMS, Guarantee

COLOURS = {"holds": "green", "refuted": "bold red", "measured": "yellow"}


def guarantee(
    names: ShapeNames = (),
    output: Output = None,
    seed: Whole = 0,
    keep: Annotated[
        Path | None, tyro.conf.arg(help="folder to write counterexamples of the adversary to")
    ] = None,
    replay: Annotated[Path | None, tyro.conf.arg(help="such a file, to play again instead")] = None,
    as_json: Json = False,
) -> None:
    """Say which promises shapes keep, with a counterexample where they do not.

    Args:
        names: shapes, such as clip "ramp(width=0.1)" my_shapes.py:MyShape
        output: file to draw two and three arms under each to: png, svg or pdf
        seed: seed of the small MDPs and of the adversary
        keep: folder to write counterexamples of the adversary to
        replay: such a file, to play again instead
        as_json: print one JSON object

    """
    from klip.draw.guarantee import as_data, guarantee

    if replay is not None:
        again = guarantee(names, replay=replay)
        if as_json:
            return print_json(as_data(again))
        print(f"{again.shape}: {again.steps} steps of rate {again.rate:g}")
        print(f"  return {again.change:+.6g} (the file says {again.kept:+.6g})")
        print(f"  surrogate {again.surrogate:+.6g}, mean total variation {again.variation:.4g}")
        return None
    if not names:
        raise KlipError(
            "name at least one shape, such as `klip guarantee clip`; `klip shapes` lists all"
        )
    found = guarantee(names, output, seed, keep)
    if as_json:
        return print_json({"shapes": [as_data(each) for each in found]})
    out = console()
    for each in found:
        _say(out, each)
    for path in [output] if output is not None else []:
        print(f"wrote {path}")
    if keep is not None:
        print(f"kept {sum(e.counterexample is not None for e in found)} in {keep}")
    return None


def _say(out: Console, found: Guarantee) -> None:
    out.print(f"[bold]{escape(found.shape)}[/]  {found.brief}", highlight=False)
    for verdict in found.verdicts:
        name, colour = verdict.claim, COLOURS[verdict.outcome]
        line = f"  [bold]{name}[/] [dim]({CLAIMS[name]})[/]\n    "
        checked = f" [dim]checked by {' and '.join(verdict.checked)}[/]" if verdict.checked else ""
        out.print(f"{line}[{colour}]{escape(verdict.headline)}[/]{checked}", highlight=False,
                  soft_wrap=True)  # fmt: skip
    for remark in found.remarks:
        out.print(f"  [dim]{escape(remark)}[/]", highlight=False, soft_wrap=True)
    out.print()
