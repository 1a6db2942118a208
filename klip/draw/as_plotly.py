"""A panel as plain data, from which the page's script makes a Plotly chart.

Numbers that are not whole are rounded to six digits. Colours come in pairs, for light and for
dark: the script takes the one that the reader's page has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from klip.draw.palette import Dash, Look
from klip.draw.panel import Axis, Dots, Fan, Guide, Line, Mark, Panel, Picture, Whisker

Chart = dict[str, Any]


def charts(picture: Picture) -> Iterator[tuple[str, Chart]]:
    """The charts of a picture with their names on the page, one at a time: they may be large."""
    return ((picture.key(i), chart(picture, panel)) for i, panel in enumerate(picture.panels))


def chart(picture: Picture, panel: Panel) -> Chart:
    """One panel."""
    return {
        "file": f"{picture.stem}-{panel.title}",
        "x": _axis(panel.x),
        "y": _axis(panel.y),
        "marks": [_mark(mark) for mark in panel.marks],
    }


def dashes(dash: Dash) -> str:
    """A dash as Plotly spells it.

    >>> dashes(()), dashes((12, 12))
    ('solid', '12px,12px')
    """
    return ",".join(f"{length:g}px" for length in dash) or "solid"


def rounded(values: Iterable[Any]) -> list[float | int | None]:
    """Six digits of each, and whole numbers whole; None where there is no number."""
    return [_round(value) for value in values]


def _round(value: float | None) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    if float(value).is_integer() and abs(value) < 1e15:  # such as steps: they stay exact
        return int(value)
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _axis(axis: Axis) -> dict[str, Any]:
    about: dict[str, Any] = {"label": axis.label}
    if axis.ticks:
        about |= {"at": [at for at, _ in axis.ticks], "names": [name for _, name in axis.ticks]}
    flags = {"log": axis.log, "zero": axis.from_zero, "down": axis.down}
    return about | {name: True for name, is_set in flags.items() if is_set}


def _mark(mark: Mark) -> dict[str, Any]:
    match mark:
        case Line():
            about = {
                "kind": "line", "label": mark.label, "dash": dashes(mark.dash),
                "x": rounded(mark.x), "y": rounded(mark.y), "about": mark.about,
                "shown": mark.shown,
            }  # fmt: skip
            for name in ("low", "high"):
                if (ends := getattr(mark, name)) is not None:
                    about[name] = rounded(ends)
            if mark.raw is not None:
                about["raw"] = {"x": rounded(mark.raw[0]), "y": rounded(mark.raw[1])}
            about |= {name: True for name in ("published", "steps") if getattr(mark, name)}
        case Fan():
            about = {"kind": "fan", "label": mark.label, "x": rounded(mark.x), "alpha": mark.alpha,
                     "low": rounded(mark.low), "high": rounded(mark.high)}  # fmt: skip
        case Dots():
            about = {"kind": "dots", "label": mark.label, "x": rounded(mark.x),
                     "y": rounded(mark.y)}  # fmt: skip
        case Whisker():
            low, middle, high = rounded((mark.low, mark.estimate, mark.high))
            about = {"kind": "whisker", "label": mark.label, "at": mark.at, "estimate": middle,
                     "low": low, "high": high, "about": mark.about,
                     "upright": mark.upright}  # fmt: skip
        case Guide():
            about = {"kind": "level", "at": _round(mark.at), "text": mark.text, "axis": mark.axis}
    return about | _colours(mark.look)


def _colours(look: Look) -> dict[str, str]:
    return {"light": look.light, "dark": look.dark}
