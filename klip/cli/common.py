"""What the commands share: kinds of arguments, and ways to print."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

Json = Annotated[bool, tyro.conf.arg(name="json", help="print one JSON object")]
Output = Annotated[
    Path | None, tyro.conf.arg(aliases=["-o"], help="file to write: png, svg or pdf")
]
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def console() -> Console:
    """A console that is wide enough for a table where the output is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output; a NaN in it is an error."""
    print(json.dumps(data, indent=2, allow_nan=False, default=str))


def escape(text: str) -> str:
    """The text with its brackets escaped, so that rich sees no markup in it."""
    return text.replace("[", "\\[")
