"""`klip report` and `klip pack`: a page of runs, and their metrics in a few small files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from klip.cli.common import wrote

Runs = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]


def report(
    runs: Runs = Path("runs"),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    figures: Path | None = None,
    page_only: bool = False,
    watch: bool = False,
    every: float = 10.0,
) -> None:
    """Make one HTML page of all runs, with tables (CSV, LaTeX) and figures (PDF, SVG, PNG).

    Runs of PPO and of token experiments are told apart by their configs; a folder in which a
    trainer kept tokens (keep_tokens) makes the page of those.

    Args:
        runs: folder that `klip train`, `klip run` or `klip pack` wrote, or a trainer's with tokens
        output: the page; it needs nothing beside it, and no network
        figures: folder for tables and figures; unless given, the page's name without its suffix,
            or with -figures where that holds runs
        page_only: write the page alone
        watch: keep the page fresh while runs go on; tables and figures come when all have ended
        every: seconds between two looks while watching

    """
    from klip.pages.making import report

    page, *others = report(runs, output, figures, page_only, watch, every, _say)
    for line in wrote(page, others):
        print(line)


def _say(text: str) -> None:
    print(text, flush=True)


def pack(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR...")] = (
        Path("runs"),
    ),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("packed"),
    ended: bool = False,
) -> None:
    """Put the metrics of all runs into a few small files, from which reports can be made.

    Several folders and packs become one. A plan goes on from a pack with `klip run PLAN --have`.

    Args:
        runs: folders that `klip train` or `klip run` wrote, or packs
        output: folder to write: runs.json, and one Parquet file per task
        ended: leave out runs that are still going on, stopped or failed

    """
    from klip.pages.making import pack

    packed = pack(runs, output, ended)
    for path in packed.files:
        print(f"wrote {path}")
    print(f"{packed.runs} runs in {packed.size / 1e6:.1f} MB")
