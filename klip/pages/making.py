"""`klip.report` and `klip.pack`: a page of runs, and their metrics in a few small files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from klip.errors import KlipError
from klip.pages import writing
from klip.pages.kept import report_of_kept
from klip.runs.record import is_run, run_paths
from klip.studies import packing
from klip.studies.gathering import gathered
from klip.studies.packing import Packed, is_packed
from klip.studies.reading import Known, read_study
from klip.studies.study import Study


def report(
    runs: str | Path = "runs",
    output: str | Path = "report.html",
    figures: str | Path | None = None,
    page_only: bool = False,
    watch: bool = False,
    every: float = 10.0,
    say: Callable[[str], None] = lambda text: None,
) -> list[Path]:
    """Make one HTML page of all runs, with tables (CSV, LaTeX) and figures (PDF, SVG, PNG).

    Runs of PPO and of token experiments are told apart by their configs; a folder in which a
    trainer kept tokens (`keep_tokens`) makes the page of those. Returns the paths of all files
    written, the page's first.

    >>> import tempfile
    >>> page = tempfile.mkdtemp() + "/report.html"
    >>> [path.name for path in report("examples/cartpole", page, page_only=True)]
    ['report.html']

    Args:
        runs: folder that `klip.train`, `klip.run` or `klip.pack` wrote, or a trainer's with tokens
        output: the page; it needs nothing beside it, and no network
        figures: folder for tables and figures; unless given, the page's name without its suffix,
            or with -figures where that holds runs
        page_only: write the page alone
        watch: keep the page fresh while runs go on; tables and figures come when all have ended
        every: seconds between two looks while watching
        say: called with a line of text about what is going on

    Returns:
        the paths of all files that were written, the page's first

    """
    runs, output = Path(runs), Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise KlipError(f"-o {output} must end in .html; figures go to a folder, with --figures")
    if watch and every <= 0:
        raise KlipError(f"--every {every:g} must be more than 0 seconds")
    if (tokens := report_of_kept(runs)) is not None:
        if watch or figures is not None:
            raise KlipError(
                f"{runs} has kept tokens, whose report is a page alone, as they are now: leave out "
                f"{'--watch' if watch else '--figures'}"
            )
        return [writing.write_html(tokens, output)]
    beside = None if page_only else _beside(output, figures)
    if not watch:
        return writing.write_report(_read(runs), output, beside)
    say(f"watching {runs}; Ctrl-C ends it")
    known: Known = {}
    try:
        study = writing.watch(runs, output, every, say, known, workers=_processes())
    except KeyboardInterrupt:
        study = read_study(runs, known, _processes())
        page = writing.write_page(writing.report_of(study), output)
        say(f"stopped watching; {output} is as the runs are now")
        return [page]
    return writing.write_report(study, output, beside)


def pack(
    runs: str | Path | Sequence[str | Path] = ("runs",),
    output: str | Path = "packed",
    ended: bool = False,
) -> Packed:
    """Put the metrics of all runs into a few small files, from which reports can be made.

    Several folders and packs become one: a run that is there twice is one run, and two that ended
    with other bytes are refused. `klip.run(plan, have=[output])` goes on from it.

    >>> import tempfile
    >>> packed = pack("examples/cartpole", tempfile.mkdtemp())
    >>> packed.runs, sorted(path.name for path in packed.files)
    (6, ['CartPole-v1.parquet', 'runs.json', 'shapes.json'])

    Args:
        runs: folder that `klip.train` or `klip.run` wrote, or several, or packs among them
        output: folder to write: runs.json, and one Parquet file per task
        ended: leave out runs that are still going on, stopped or failed

    Returns:
        the files that were written, their size in bytes, and how many runs are in them

    """
    sources = [runs] if isinstance(runs, (str, Path)) else runs
    study = gathered([Path(source) for source in sources], _processes(), ended)
    return packing.pack(study, Path(output))


def _beside(output: Path, figures: str | Path | None) -> Path:
    """The folder for tables and figures: never one that holds runs."""
    if figures is not None:
        if _holds_runs(Path(figures)):
            raise KlipError(f"--figures {figures} holds runs: give a folder of its own")
        return Path(figures)
    named = (output.with_suffix(""), output.with_name(f"{output.stem}-figures"))
    free = [folder for folder in named if not _holds_runs(folder)]
    if not free:
        raise KlipError(f"{named[0]} and {named[1]} hold runs: give a folder with --figures")
    return free[0]


def _holds_runs(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    inside_a_run = any(is_run(parent) for parent in folder.resolve().parents)
    return inside_a_run or is_packed(folder) or bool(run_paths(folder))


def _read(runs: Path) -> Study:
    return read_study(runs, workers=_processes())


def _processes() -> int:
    return os.cpu_count() or 1
