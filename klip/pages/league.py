"""The league's page: one HTML file, made of the report's parts, from the standings alone.

Pictures come before tables: the first is the league table as intervals. Both go into files, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from klip.draw import as_matplotlib
from klip.draw import league as draw
from klip.draw.panel import Picture
from klip.draw.properties import PROPERTIES, has
from klip.errors import KlipError
from klip.pages.cards import card
from klip.pages.template import page
from klip.pages.words import marks
from klip.pages.writing import write_html
from klip.runs.files import own_folder, write_whole
from klip.shapes.names import brief
from klip.studies.comparing import CLAIM
from klip.studies.predicting import predictions
from klip.studies.scores import Estimate
from klip.studies.standings import (
    WHICH,
    Standing,
    Standings,
    Which,
    records,
    sensitivity,
    table,
)
from klip.studies.tables import as_csv, as_json

FAILING = 0.25
"""A shape is said to fail in a cell where its mean score is below this; PPO-Clip's is 1."""


def write(standings: Standings, path: Path) -> Path:
    """Write the page; return its path."""
    check_places(path)
    return write_html(render(standings), path)


def check_places(page: Path, figures: Path | None = None) -> None:
    """Raise unless a page can be written there, and figures: before anything is trained."""
    if page.suffix.lower() not in (".html", ".htm"):
        raise KlipError(f"-o {page} must end in .html")
    if figures is not None:
        own_folder(figures)


def write_figures(standings: Standings, folder: Path) -> list[Path]:
    """Write the page's pictures (PDF, SVG, PNG) and both tables (CSV, JSON); return the paths."""
    tables = _tables(standings)
    lines = [line for rows in tables.values() for line in records(rows)]
    own_folder(folder)
    texts = {"league.csv": as_csv(lines), "league.json": as_json(lines)}
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    drawn = {picture.stem: picture for picture in pictures(standings, tables)}
    figures = {stem: as_matplotlib.drawn(picture) for stem, picture in drawn.items()}
    return [*(folder / name for name in texts), *as_matplotlib.write(figures, folder)]


def pictures(standings: Standings, tables: draw.Tables) -> list[Picture]:
    """All pictures of the page, in its order."""
    # a control that has PPO-Clip's runs would count them twice
    tuned = [row for row in tables["tuned"] if row.better is None or not row.same]
    had = {row.entrant: has(row.spelling, standings.portraits.get(row.spelling)) for row in tuned}
    found = predictions(
        {row.entrant: row.iqm.estimate for row in tuned},
        {name: {e: of[name] for e, of in had.items() if name in of} for name in PROPERTIES},
    )
    drawn = [
        draw.scores(standings, tables),
        draw.ranks(standings, tables),
        draw.knobs(standings),
        draw.under_stress(standings, tables),
        draw.properties(standings, tuned, found),
    ]
    return [picture for picture in drawn if picture is not None]


def render(standings: Standings) -> str:
    """The page's HTML; the same standings give the same bytes."""
    tables = _tables(standings)
    drawn = {picture.stem: picture for picture in pictures(standings, tables)}
    context: dict[str, Any] = {
        "rules": standings.rules,
        "cells": standings.rules.cells,
        "scales": standings.scales["testing"],
        "run_count": len(standings.entries),
        "says": {which: says(rows) for which, rows in tables.items()},
        "pushed": {
            s.name: {which: shown(rows, s.name) for which, rows in tables.items()}
            for s in standings.rules.stress
        },
        "shade": shade,
        "tables": [_table(which, rows) for which, rows in tables.items()],
        "looks": draw.league_looks(standings),
        "stress_looks": draw.stress_looks(standings),
        "picture": drawn.get,
        "cards": [_card(standings, tables, row) for row in tables["tuned"]],
        "smoke": len(standings.rules.cells) == 1,
        "newcomers": standings.newcomers,
        "untested": standings.untested,
    }
    return page("league.html", list(drawn.values()), context, None, ("league.css",))


def _tables(standings: Standings) -> dict[Which, list[Standing]]:
    return {which: table(standings, which) for which in WHICH}


def says(rows: Sequence[Standing]) -> list[str]:
    """Who stands above or below PPO-Clip, and how sure that is, in sentences."""
    label, lines = draw.names(rows), shown(rows)
    first = [label[row.entrant] for row in rows if row.ranks[0] == 1]
    lines.append(f"The first place may be that of {_listed(first)}.")
    if same := [label[row.entrant] for row in rows if row.same and row.better is not None]:
        lines.append(f"The same runs as PPO-Clip’s: {_listed(same)}.")
    for row in rows:
        if row.newcomer:
            lines.append(f"{row.label} ranks between {row.ranks[0]} and {row.ranks[1]}.")
    return lines


def shown(rows: Sequence[Standing], stress: str | None = None) -> list[str]:
    """Who is shown to be better or worse than PPO-Clip, over all cells or under one stress."""
    by_reading: dict[str, list[str]] = {"better": [], "worse": [], "open": []}
    for row in rows:
        better = row.stress[stress].better if stress else row.better
        by_reading.setdefault(_reading(better, row.same), []).append(draw.names([row])[row.entrant])
    above, below, left = (by_reading[reading] for reading in ("better", "worse", "open"))
    lines = []
    if above:
        lines.append(f"Shown to be better than PPO-Clip: {_listed(above)}.")
    if below:
        lines.append(f"Shown to be worse than PPO-Clip: {_listed(below)}.")
    if left and not lines:
        lines.append("No shape is shown to be better or worse than PPO-Clip.")
    elif left:
        others = len(above) + len(below) + len(left)
        lines.append(f"{len(left)} of {others} are not told apart from it.")
    return lines


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence, each of them in one line."""
    return ", ".join(name.replace(" ", "\N{NO-BREAK SPACE}") for name in names)


def shade(score: float) -> str:
    """How a cell of the table is coloured: the further a score lies from 1, PPO-Clip's, the more.

    >>> shade(1.0), shade(0.4), shade(3.0)
    ('--side:var(--down);--far:0%', '--side:var(--down);--far:30%', '--side:var(--up);--far:50%')
    """
    side = "up" if score > 1 else "down"
    return f"--side:var(--{side});--far:{50 * min(abs(score - 1), 1.0):.0f}%"


def _table(which: Which, rows: Sequence[Standing]) -> dict[str, Any]:
    label = draw.names(rows)
    lines = [
        {"row": row, "label": label[row.entrant], "spelled": brief(row.spelling), "mark": mark,
         "says": _reading(row.better, row.same)}
        for row, mark in zip(rows, marks([row.iqm for row in rows]), strict=True)
    ]  # fmt: skip
    return {"title": draw.TITLES[which], "lines": lines, "stress": list(rows[0].stress)}


def _reading(better: Estimate | None, same: bool) -> str:
    if better is None:
        return "the reference"
    if same:
        return "the same runs"
    if better.p_holm is None or better.p_holm > CLAIM:
        return "open"
    return "better" if better.estimate > 0.5 else "worse"


def _card(
    standings: Standings, tables: Mapping[Which, Sequence[Standing]], row: Standing
) -> dict[str, Any]:
    """A shape's picture and properties, and how it fared."""
    published = next(r for r in tables["published"] if r.entrant == row.entrant)
    choice = standings.frozen[row.entrant]
    failed = [
        f"{which}: {cell} ({score:.2f})"
        for which, of in (("as published", published), ("tuned", row))
        for cell, score in of.cells.items()
        if score < FAILING
    ]
    return {
        "card": card(row.spelling, standings.portraits.get(row.spelling)),
        "published": published,
        "tuned": row,
        "factor": row.factor,
        "trials": sorted(choice.scores.items(), key=lambda pair: float(pair[0])),
        "sensitivity": sensitivity(choice),
        "failed": failed,
    }
