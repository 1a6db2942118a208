"""From a study to files: the page, tables and figures; once, or for as long as runs go on.

    Study ── report_of ──> Report ──> report.html, table.csv, learning-curves.pdf, ...

What kind of study it is, PPO or tokens, is decided here and nowhere else.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import polars as pl
from matplotlib.figure import Figure

from klip.disk import operations
from klip.draw import arms as arm_pictures
from klip.draw import as_matplotlib
from klip.draw.pictures import pictures, shape_pictures
from klip.errors import KlipError
from klip.pages import report, tokens
from klip.runs import run_paths
from klip.runs.files import disk, own_folder, write_whole
from klip.studies import across, arms, step_sizes
from klip.studies.findings import Findings, find
from klip.studies.reading import Known, read_study, stamp
from klip.studies.study import Study
from klip.studies.tables import as_csv, as_json, as_latex, records, returns_as_latex

Say = Callable[[str], None]
KEPT = "tokens.parquet"
"""The file of the tokens that a page shows, beside its tables."""


class Page(Protocol):
    """Returns the HTML; with `refresh`, the page loads itself again after that many seconds."""

    def __call__(self, *, refresh: float | None = None) -> str: ...


@dataclass(frozen=True)
class Report:
    """What can be written of a study; its statistics are computed, its parts are not yet made."""

    page: Page
    tables: Callable[[], dict[str, str]]
    """By the names of their files."""
    figures: Callable[[], dict[str, Figure]]
    """By the stems of their files."""
    kept: Callable[[], pl.DataFrame | None] = lambda: None
    """The tokens that the page shows, if it shows any."""


def report_of(study: Study) -> Report:
    """The report of a study of either kind; what both page and files need is computed here."""
    if arms.is_tokens(study):
        arm_findings = arms.find_arms(study)
        by_group = arm_pictures.pictures(arm_findings)
        every = [picture for kinds in by_group.values() for picture in kinds.values()]
        return Report(
            partial(tokens.render, arm_findings, by_group),
            lambda: {
                "arms.csv": as_csv(arms.records(arm_findings)),
                "arms.json": as_json(arms.records(arm_findings)),
            },
            lambda: {picture.stem: as_matplotlib.drawn(picture) for picture in every},
            partial(tokens.kept_tokens, arm_findings),
        )
    findings = find(study)
    described = pictures(findings)
    return Report(
        partial(report.render, findings, described),
        lambda: _tables(findings),
        lambda: (
            {stem: as_matplotlib.drawn(picture) for stem, picture in described.items()}
            | _shapes(study)
        ),
    )


def _tables(findings: Findings) -> dict[str, str]:
    """Every number as CSV and JSON; in LaTeX the paper's Table 1, and returns of all variants."""
    rows = records(findings.finals, findings.differences)
    texts = {
        "table.csv": as_csv(rows),
        "table.json": as_json(rows),
        "table.tex": as_latex(findings.table_1),
        "returns.tex": returns_as_latex(findings.finals),
    }
    if findings.across is not None:
        texts["across.csv"] = as_csv(across.records(findings.across))
    if findings.step_sizes is not None:
        texts["step-sizes.csv"] = as_csv(step_sizes.records(findings.step_sizes))
    return texts


def _shapes(study: Study) -> dict[str, Figure]:
    figures = list(shape_pictures(study))
    if len(figures) == 1:
        return {"shapes": figures[0]}
    return {f"shapes-{i}": figure for i, figure in enumerate(figures, 1)}


def write_page(whole: Report, path: Path, refresh: float | None = None) -> Path:
    """Write the page alone, and return its path; a reader finds the old page or the new."""
    return write_html(whole.page(refresh=refresh), path)


def write_html(page: str, path: Path) -> Path:
    """Write a page's HTML, and return its path."""
    if path.is_dir():
        raise KlipError(f"{path} is a folder: give the name of a file, such as {path}/report.html")
    with disk(path):
        operations.make_folders(path.parent)
    write_whole(path, page.encode("utf-8", "backslashreplace"))
    return path


def write_tables(whole: Report, folder: Path) -> list[Path]:
    """Write each table to a file of its own; return the paths in the order written."""
    own_folder(folder)
    texts = whole.tables()
    for name, text in texts.items():
        write_whole(folder / name, text.encode("utf-8"))
    written = [folder / name for name in texts]
    if (kept := whole.kept()) is not None:
        file = io.BytesIO()
        kept.write_parquet(file)
        write_whole(folder / KEPT, file.getvalue())
        written.append(folder / KEPT)
    return written


def write_report(study: Study, page: Path, folder: Path | None) -> list[Path]:
    """Write the page, and tables and figures into `folder` if given; return all paths."""
    whole = report_of(study)
    written = [write_page(whole, page)]
    if folder is not None:
        written += write_tables(whole, folder)
        written += as_matplotlib.write(whole.figures(), folder)
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
    """Write the page whenever a run has changed, until all have ended; return the study then.

    `every` is the seconds between looks, `times` the most looks; `known` collects what was read.
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
            write_page(report_of(study), page, refresh=every)
            done = sum(run.status == "done" for run in study.runs)
            say(f"wrote {page}: {done} of {len(study.runs)} runs done")
        else:
            quiet += 1
        before = state
        # A trainer begins runs one after the other: all that are there may have ended before.
        if (study.runs and study.ended and quiet) or (times is not None and looks >= times):
            return study
        time.sleep(every)
