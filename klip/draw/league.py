"""The pictures of a league: scores, ranks, knobs, stress, and what properties go along with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from klip.draw.palette import Look, looks
from klip.draw.panel import Axis, Guide, Line, Mark, Panel, Picture, Whisker
from klip.draw.properties import divided
from klip.shapes.names import brief
from klip.studies.predicting import Prediction
from klip.studies.standings import Standing, Standings, Which, places, sensitivity

TITLES: Final = {"published": "As published", "tuned": "Tuned: one setting for all cells"}
SCORE: Final = "IQM of normalised scores"
Tables = Mapping[Which, Sequence[Standing]]


def names(rows: Sequence[Standing]) -> dict[str, str]:
    """Labels by entrant, with the factor of a knob that was tuned and a mark for newcomers."""
    return {
        row.entrant: row.label
        + ("" if row.factor == 1 else f" × {row.factor:g}")
        + (" (new)" if row.newcomer else "")
        for row in rows
    }


def league_looks(standings: Standings) -> Mapping[str, Look]:
    """A look for each entrant."""
    labels = {entrant: brief(entrant) for entrant in standings.entrants}
    own = looks(labels.values())
    return {entrant: own[label] for entrant, label in labels.items()}


def scores(standings: Standings, tables: Tables) -> Picture:
    """The league table as intervals: both tables, the highest first, with a line at PPO-Clip's."""
    own, panels = league_looks(standings), []
    for which, rows in tables.items():
        clip = next(row for row in rows if row.entrant == standings.rules.shapes[0])
        marks: list[Mark] = [Guide(clip.iqm.estimate, "PPO-Clip", "x")]
        label = names(rows)
        for place, row in enumerate(rows):
            e, about = row.iqm, f"{e_runs(row)}, rank {_ranks(row)}"
            marks.append(
                Whisker(label[row.entrant], place, e.estimate, e.low, e.high, own[row.entrant],
                        about)
            )  # fmt: skip
        axis = _down([label[row.entrant] for row in rows])
        panels.append(Panel(TITLES[which], Axis(SCORE), axis, tuple(marks)))
    return _lists("league", panels)


def ranks(standings: Standings, tables: Tables) -> Picture:
    """Between which ranks each shape lies."""
    own, panels = league_looks(standings), []
    for which, rows in tables.items():
        label, place = names(rows), places(rows)
        marks = tuple(
            Whisker(label[row.entrant], line, place[row.entrant], row.ranks[0], row.ranks[1],
                    own[row.entrant])
            for line, row in enumerate(rows)
        )  # fmt: skip
        axis = _down([label[row.entrant] for row in rows])
        panels.append(Panel(TITLES[which], Axis("rank, 95 % of resamples"), axis, marks))
    return _lists("ranks", panels)


def knobs(standings: Standings) -> Picture:
    """Tuning scores against the knob, and what one setting for all cells costs."""
    own = league_looks(standings)
    marks: list[Mark] = []
    for entrant, choice in standings.frozen.items():
        if len(choice.scores) > 1:
            pairs = sorted((float(factor), score) for factor, score in choice.scores.items())
            x, y = np.array(pairs).T
            marks.append(Line(brief(entrant), own[entrant], x, y))
    ticks = tuple((factor, f"× {factor:g}") for factor in standings.rules.factors)
    tuning = Panel(
        "Score against the knob", Axis("factor of the knob as published", ticks, log=True),
        Axis("mean normalised score, tuning"), tuple(marks),
    )  # fmt: skip
    costs = sorted(((sensitivity(c), name) for name, c in standings.frozen.items()), reverse=True)
    bars = tuple(
        Whisker(brief(name), place, cost, 0.0, cost, own[name])
        for place, (cost, name) in enumerate(costs)
    )
    axis = _down([brief(name) for _, name in costs])
    cost = Panel("What one setting for all cells costs", Axis("normalised score"), axis, bars)
    return _lists("knobs", (tuning, cost))


def stress_looks(standings: Standings) -> Mapping[str, Look]:
    """A look for each stress."""
    return looks(stress.name for stress in standings.rules.stress)


def under_stress(standings: Standings, tables: Tables) -> Picture | None:
    """The scores of each shape under each stress, beside each other; the highest over all first."""
    own, panels = stress_looks(standings), []
    if len(own) < 2:
        return None
    aside = np.linspace(-0.18, 0.18, len(own))
    for which, rows in tables.items():
        label = names(rows)
        marks: list[Mark] = [Guide(1.0, "PPO-Clip, as published", "x")]
        for place, row in enumerate(rows):
            for (name, look), off in zip(own.items(), aside, strict=True):
                e = row.stress[name].iqm
                marks.append(
                    Whisker(f"{label[row.entrant]}, {name}", place + float(off), e.estimate, e.low,
                            e.high, look)
                )  # fmt: skip
        axis = _down([label[row.entrant] for row in rows])
        panels.append(Panel(TITLES[which], Axis(SCORE), axis, tuple(marks)))
    return replace(_lists("stress", panels), colours=own)


def properties(
    standings: Standings, rows: Sequence[Standing], found: Sequence[Prediction]
) -> Picture:
    """Scores of the shapes that have a property, and of those that do not, side by side."""
    own = league_looks(standings)
    points = {row.entrant: (row.label, row.iqm.estimate, own[row.entrant]) for row in rows}
    return divided("properties", found, points, SCORE)


def _lists(stem: str, panels: Sequence[Panel]) -> Picture:
    """Two lists beside each other, as tall as the longer one needs."""
    most = max(len(panel.y.ticks) for panel in panels)
    return Picture(stem, tuple(panels), 2, (4.2, 1.0 + 0.2 * most))


def e_runs(row: Standing) -> str:
    """How many runs a score rests on."""
    return f"{len(row.scores.grid)} × {row.scores.n} runs"


def _ranks(row: Standing) -> str:
    low, high = row.ranks
    return str(low) if low == high else f"{low} to {high}"


def _down(labels: Sequence[str]) -> Axis:
    return Axis(ticks=tuple((float(i), label) for i, label in enumerate(labels)), down=True)
