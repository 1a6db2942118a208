"""The picture of a search: how much each knob matters, and how the score goes with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from klip.draw.palette import PLAIN, looks
from klip.draw.panel import Axis, Dots, Guide, Line, Mark, Panel, Picture, Whisker
from klip.studies.ranges import Range
from klip.studies.tuning import Tried, Tuned

WORDS: Final = {"final": "final return", "area": "return over training"}
NEARBY: Final = "middle half of trials nearby"
MOST_TICKS: Final = 5
LEAST: Final = 4
"""A window of the running middle has at least so many trials."""


def sensitivity(tuned: Tuned) -> Picture:
    """A panel for all knobs' importance, and one for each: scores, and their running quartiles."""
    panels = [_importance(tuned), *(_panel(tuned, each) for each in tuned.question.over)]
    return Picture("tuning", tuple(panels), size=(3.6, 2.7))


def _importance(tuned: Tuned) -> Panel:
    names = list(tuned.importance) or [each.name for each in tuned.question.over]
    own = looks(names)
    marks: tuple[Mark, ...] = tuple(
        Whisker(name, place, share, 0.0, share, own[name], f"{share:.0%}")
        for place, (name, share) in enumerate(tuned.importance.items())
    )
    about = "" if marks else "trials do not tell knobs apart"
    y = Axis("", tuple((float(place), name) for place, name in enumerate(names)), down=True)
    return Panel("Importance", Axis("share (PED-ANOVA)", from_zero=True), y, marks, about)


def _panel(tuned: Tuned, each: Range) -> Panel:
    """The scores of all trials against a knob."""
    places = _places(each, tuned.trials)
    scores = np.array([trial.score for trial in tuned.trials])
    best = places[int(np.argmax(scores))]
    marks: list[Mark] = [Dots("trials", places, scores), Guide(float(best), "found", "x")]
    middle = _running(places, scores, bool(each.choices))
    if each.ordered and len(middle):
        at, low, half, high = middle.T
        marks.append(Line(NEARBY, PLAIN, at, half, low, high))
    else:
        marks += [
            Whisker(NEARBY, at, half, low, high, upright=True) for at, low, half, high in middle
        ]
    y = Axis(WORDS[tuned.question.metric])
    return Panel(each.name, Axis("", _ticks(each), log=each.log), y, tuple(marks))


def _ticks(each: Range) -> tuple[tuple[float, str], ...]:
    """The values of a list; of a logarithm, powers of ten, and 2 and 5 times them if they fit."""
    if each.choices:
        return tuple((float(i), _name(value)) for i, value in enumerate(each.choices))
    if not each.log:
        return ()
    powers = range(math.floor(math.log10(each.low)), math.ceil(math.log10(each.high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [float(f"{f}e{power}") for power in powers for f in factors]
        inside = [value for value in values if each.low <= value <= each.high]
        if len(inside) <= MOST_TICKS:
            break
    return tuple((value, f"{value:g}") for value in inside)


def _places(each: Range, trials: Sequence[Tried]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Where trials stand along a knob; values of a list stand side by side."""
    values = [trial.knobs[each.name] for trial in trials]
    if each.choices:
        values = [each.choices.index(value) for value in values]
    return np.array(values, dtype=float)


def _running(
    x: np.ndarray[Any, np.dtype[np.float64]], y: np.ndarray[Any, np.dtype[np.float64]], listed: bool
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Rows of x and the quartiles of y: for each value of a list, or in windows of x's ranks."""
    if listed:
        groups = [np.flatnonzero(x == value) for value in np.unique(x)]
    else:
        order = np.argsort(x, kind="stable")
        width = max(LEAST, len(x) // 5)
        starts = range(0, max(len(x) - width + 1, 0), max(width // 2, 1))
        groups = [order[start : start + width] for start in starts]
    rows = [(float(np.median(x[g])), *np.quantile(y[g], (0.25, 0.5, 0.75))) for g in groups]
    return np.array(rows).reshape(-1, 4)


def _name(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"
