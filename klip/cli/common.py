"""What the commands share: kinds of arguments, and ways to print."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from klip.engine.fields import whole_number
from klip.errors import KlipError

Json = Annotated[bool, tyro.conf.arg(name="json", help="print one JSON object")]
Output = Annotated[
    Path | None, tyro.conf.arg(aliases=["-o"], help="file to write: png, svg or pdf")
]
TaskArgs = Annotated[
    tuple[str, ...] | None,
    tyro.conf.arg(metavar="NAME=VALUE...", help="keyword arguments of the task"),
]
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def _whole(words: list[str]) -> int:
    try:
        return int(words[0])
    except ValueError:
        pass
    try:
        return whole_number("", float(words[0]))
    except (KlipError, ValueError):
        raise ValueError("it must be a whole number, such as 1000000 or 1e6") from None


_WHOLE = tyro.constructors.PrimitiveConstructorSpec[Any](
    nargs=1,
    metavar="INT",
    instance_from_str=_whole,
    is_instance=lambda value: value is None or isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)
Whole = Annotated[int, _WHOLE]
"""A whole number, which may be written as 1e6."""
MaybeWhole = Annotated[int | None, _WHOLE]
"""The same, or not given."""
Flag = Annotated[tyro.conf.DisallowNone[bool | None], ""]
"""A flag that says yes, or is not given."""


def console(stderr: bool = False) -> Console:
    """A console that is wide enough for a table where the output is not a terminal."""
    file = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if file.isatty() else 160)


def address(ray: tuple[str, ...] | None) -> str | None:
    """The Ray cluster that `--ray` names: "auto" without an address, None where it is not given."""
    if ray is not None and len(ray) > 1:
        raise KlipError(f"--ray {' '.join(ray)}: give one address, or none")
    return None if ray is None else ray[0] if ray else "auto"


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output; a NaN in it is an error."""
    print(json.dumps(data, indent=2, allow_nan=False, default=str))


def escape(text: str) -> str:
    """The text with its brackets escaped, so that rich sees no markup in it."""
    return text.replace("[", "\\[")


def wrote(page: Path, others: Sequence[Path]) -> list[str]:
    """What to say of a page and the tables and figures that were written with it, kind by kind.

    >>> wrote(Path("a.html"), [Path("a/x.svg"), Path("a/x.png"), Path("a/y.svg")])
    ['wrote a.html', 'wrote a/*.svg: x, y', 'wrote a/*.png: x']
    """
    lines = [f"wrote {page}"]
    for kind in dict.fromkeys(path.suffix for path in others):
        same = [path for path in others if path.suffix == kind]
        lines.append(f"wrote {same[0].parent}/*{kind}: {', '.join(path.stem for path in same)}")
    return lines
