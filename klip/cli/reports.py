"""`klip report` and `klip pack`: what trained, to look at and to keep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import tyro

from klip.errors import KlipError

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

    Runs of PPO and of token experiments are told apart by their configs.

    Args:
        runs: folder that `klip train`, `klip run` or `klip pack` wrote
        output: the page; it needs nothing beside it, and no network
        figures: folder for tables and figures; named as the page, without its suffix, unless given
        page_only: write the page alone
        watch: keep the page fresh while runs go on; tables and figures come when all have ended
        every: seconds between looks, when watching

    """
    from klip.pages import writing
    from klip.studies.reading import Known, read_study

    if output.suffix.lower() not in (".html", ".htm"):
        raise KlipError(f"-o {output} must end in .html; figures go to a folder, with --figures")
    folder = None if page_only else figures or output.with_suffix("")
    if watch and every <= 0:
        raise KlipError(f"--every {every:g} must be more than 0 seconds")
    workers = os.cpu_count() or 1
    if watch:
        print(f"watching {runs}; Ctrl-C ends it", flush=True)
        known: Known = {}
        try:
            study = writing.watch(runs, output, every, _say, known, workers=workers)
        except KeyboardInterrupt:
            study = read_study(runs, known, workers)
            writing.write_page(writing.report_of(study), output)
            print(f"stopped watching; {output} is as the runs are now")
            return
    else:
        study = read_study(runs, workers=workers)
    written = writing.write_report(study, output, folder)
    print(f"wrote {written[0]}")
    for kind in dict.fromkeys(path.suffix for path in written[1:]):
        names = ", ".join(path.stem for path in written[1:] if path.suffix == kind)
        print(f"wrote {folder}/*{kind}: {names}")


def _say(text: str) -> None:
    print(text, flush=True)


def pack(
    runs: Runs = Path("runs"),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("packed"),
) -> None:
    """Put the metrics of all runs into a few small files, from which reports can be made.

    Args:
        runs: folder that `klip train` or `klip run` wrote
        output: folder to write: runs.json, and a Parquet file a task

    """
    from klip.studies.packing import pack
    from klip.studies.reading import read_study

    study = read_study(runs, workers=os.cpu_count() or 1)
    if not study.runs:
        raise KlipError(f"there are no runs in {runs}; `klip train` makes some")
    made = pack(study, output)
    for path in made.files:
        print(f"wrote {path}")
    print(f"{len(study.runs)} runs in {made.size / 1e6:.1f} MB")
