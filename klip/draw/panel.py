"""A picture described once: panels, their axes, and the marks in them.

    Findings ── pictures ──> Picture ──┬─ as_matplotlib ──> PDF, SVG, PNG
                                       └─ as_plotly ──────> the page's charts

A description knows neither renderer. Coordinates are arrays `[K]`; NaN leaves a gap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from klip.draw.palette import INK, PLAIN, Dash, Look, on_another

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """What is along one side of a panel."""

    label: str = ""
    ticks: tuple[tuple[float, str], ...] = ()
    """Values and their names; empty where the renderer chooses them."""
    log: bool = False
    from_zero: bool = False
    down: bool = False
    """Whether it runs from the top down, as lists do."""


@dataclass(frozen=True, eq=False)
class Line:
    """A line, perhaps with a band around it and a rougher line behind it."""

    label: str
    look: Look
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    raw: tuple[Floats, Floats] | None = None
    """x and y of the same line before it was smoothed."""
    about: str | tuple[str, ...] = ""
    """What to say beside a value: once, or for each point."""
    shown: bool = True
    """Whether a page shows it at first; figures have only lines that are shown."""
    published: bool = False
    """Drawn thin and pale: it belongs to the line of the same label."""
    below: int = 0
    """How many lines drawn before it lie exactly under it."""
    steps: bool = False
    """Whether it is a staircase: each value holds until the next."""

    @property
    def dash(self) -> Dash:
        """Its own dash, or the one that lets the lines below it show."""
        return on_another(self.below) if self.below else () if self.published else self.look.dash


@dataclass(frozen=True, eq=False)
class Fan:
    """The area between two quantiles."""

    label: str
    x: Floats
    low: Floats
    high: Floats
    alpha: float
    look: Look = PLAIN


@dataclass(frozen=True, eq=False)
class Dots:
    """Points without a line."""

    label: str
    x: Floats
    y: Floats
    look: Look = PLAIN


@dataclass(frozen=True, eq=False)
class Whisker:
    """An estimate and its interval, across the panel or upright."""

    label: str
    at: float
    """Where it stands on the other axis."""
    estimate: float
    low: float | None
    high: float | None
    look: Look = PLAIN
    about: str = ""
    upright: bool = False


@dataclass(frozen=True)
class Guide:
    """A straight line through the whole panel, at a value of one axis."""

    at: float
    text: str
    axis: Literal["x", "y"] = "y"
    look: Look = INK


Mark = Line | Fan | Dots | Whisker | Guide


@dataclass(frozen=True, eq=False)
class Panel:
    """One chart."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    about: str = ""
    """What to say beside the title."""
    note: str = ""
    """What to say below it on a page."""

    @property
    def legend(self) -> list[Line]:
        """The lines that a legend names."""
        return [mark for mark in self.marks if isinstance(mark, Line) and not mark.published]


@dataclass(frozen=True, eq=False)
class Picture:
    """Panels that belong together: a figure of a paper, a section of a page."""

    stem: str
    """The stem of its files, and of its charts' names on a page."""
    panels: tuple[Panel, ...]
    most_columns: int = 3
    """The most panels beside each other."""
    size: tuple[float, float] = (3.6, 2.7)
    """Width and height of a panel in print, in inches."""
    smooth: bool = False
    """Whether it has lines that are smoothed."""
    colours: Mapping[str, Look] = field(default_factory=dict)
    """What the looks of its whiskers mean: for the legend of a figure."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of its panels: as few rows as possible, and evenly filled."""
        rows = math.ceil(len(self.panels) / self.most_columns)
        return rows, math.ceil(len(self.panels) / rows)

    def key(self, place: int) -> str:
        """The name of a panel's chart on a page."""
        return f"{self.stem}-{place}"


def minus(text: str) -> str:
    """A number as pictures and pages write it: a minus sign instead of the hyphen."""
    return text.replace("-", "−")
