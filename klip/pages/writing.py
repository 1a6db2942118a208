"""From a study to files: the page, tables and figures; once, or for as long as runs go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from klip.draw.figures import write_figures
from klip.errors import KlipError
from klip.pages.report import render
from klip.runs import run_paths
from klip.runs.files import disk, write_whole
from klip.studies import across
from klip.studies.study import Known, Study, read_study, stamp
from klip.studies.tables import (
    as_csv,
    as_latex,
    differences,
    finals,
    records,
    returns_as_latex,
    table_1,
)

Say = Callable[[str], None]


def write_page(study: Study, path: Path, refresh: float | None = None) -> Path:
    """The page alone; whoever has it open finds the old one or the new."""
    if path.is_dir():
        raise KlipError(f"{path} is a folder: give the name of a file, such as {path}/report.html")
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, render(study, refresh).encode("utf-8"))
    return path


def write_tables(study: Study, folder: Path) -> list[Path]:
    """table.csv, and in LaTeX table.tex (the paper's Table 1) and returns.tex (every variant).

    And across.csv, where tasks can be pooled.
    """
    rows = finals(study)
    texts = {
        "table.csv": as_csv(records(rows, differences(study))),
        "table.tex": as_latex(table_1(rows)),
        "returns.tex": returns_as_latex(rows),
    }
    pooled = across.across(study)
    if pooled is not None:
        texts["across.csv"] = as_csv(across.records(pooled))
    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_whole(folder / name, text.encode("utf-8"))
    return [folder / name for name in texts]


def write_report(study: Study, page: Path, folder: Path | None) -> list[Path]:
    """The page, and in a folder, if one is given, tables and figures."""
    written = [write_page(study, page)]
    if folder is not None:
        written += [*write_tables(study, folder), *write_figures(study, folder)]
    return written


def watch(
    runs: Path,
    page: Path,
    every: float,
    say: Say,
    known: Known,
    *,
    workers: int = 1,
    times: int | None = None,
) -> Study:
    """Write the page whenever a run has changed, until all have ended; the study as it is then.

    `known` collects what was read; `times` is how often to look at most.
    """
    before: object = None
    quiet = looks = 0
    while True:
        now = {path: stamp(path) for path in run_paths(runs)}
        study = read_study(runs, known, workers)
        state = now, [run.status for run in study.runs]
        looks += 1
        if state != before:
            quiet = 0
            write_page(study, page, refresh=every)
            done = sum(run.status == "done" for run in study.runs)
            say(f"wrote {page}: {done} of {len(study.runs)} runs done")
        else:
            quiet += 1
        before = state
        # A trainer begins runs one after the other: all that are there may have ended before.
        if (study.runs and study.ended and quiet) or (times is not None and looks >= times):
            return study
        time.sleep(every)
