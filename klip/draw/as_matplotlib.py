"""A picture as a matplotlib figure, and in files: PDF, SVG and PNG.

The bytes of the files depend on the description alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from klip.draw.palette import Dash, Look
from klip.draw.panel import Axis, Dots, Fan, Guide, Line, Mark, Panel, Picture, Whisker, minus
from klip.draw.style import figure, save, styled

FORMATS: Final = ("pdf", "svg", "png")
SOFT: Final = 0.15
"""How dark a band is."""
LONGEST_LINE: Final = 60
"""Characters of a row's name in a line; longer ones have several, in small type."""
SMALL_TYPE: Final = 0.75
"""Its size beside the usual one's."""
FITTING: Final = 18
"""Characters of a row's name for which a panel is wide enough."""
CHARACTER: Final = 0.068
"""The width of one, in inches."""


def drawn(picture: Picture) -> Figure:
    """The figure, with one legend for all panels: a label looks the same in each."""
    rows, columns = picture.grid
    width, height = picture.size
    names = [lines for panel in picture.panels for lines in _names(panel.y)]
    longest = max((max(map(len, lines)) * _scale(lines) for lines in names), default=0)
    fig = figure((width + CHARACTER * max(longest - FITTING, 0)) * columns, height * rows)
    with styled():
        for place, panel in enumerate(picture.panels, 1):
            _draw(fig.add_subplot(rows, columns, place), panel)
        _legend(fig, picture.colours)
    return fig


def write(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write figures by their stems, each in all formats; return the paths in the order written."""
    written = []
    for stem, fig in figures.items():
        with styled():  # laid out once, for all formats
            fig.draw_without_rendering()
        fig.set_layout_engine("none")
        for suffix in FORMATS:
            path = folder / f"{stem}.{suffix}"
            save(fig, path)
            written.append(path)
    return written


def compact(value: float) -> str:
    """A number of an axis in few characters.

    >>> [compact(x) for x in (0.0, 0.25, -300.0, 2500.0, 200000.0, 1.2e6)]
    ['0', '0.25', '−300', '2500', '200k', '1.2M']
    """
    for size, sign in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, 1e4):
            return minus(f"{value / size:g}{sign}")
    return minus(f"{round(value, 12):g}")


def _draw(ax: Axes, panel: Panel) -> None:
    for mark in panel.marks:
        if not isinstance(mark, Line) or mark.shown:
            _mark(ax, mark)
    _axis(ax, panel.x, "x")
    _axis(ax, panel.y, "y")
    ax.set_title(_plain(f"{panel.title}, {panel.about}" if panel.about else panel.title))


def _mark(ax: Axes, mark: Mark) -> None:
    match mark:
        case Line():
            _line(ax, mark)
        case Fan(label, x, low, high, alpha, look):
            ax.fill_between(x, low, high, color=look.light, alpha=alpha, lw=0, label=label)
        case Dots(_, x, y, look):
            ax.plot(x, y, ls="", marker="o", ms=3, color=look.light, alpha=0.35)
        case Whisker(_, at, estimate, low, high, look):
            if low is not None and high is not None:
                ends, beside = [low, high], [at, at]
                ax.plot(*_turned(mark, ends, beside), color=look.light, lw=1.6)
            ax.plot(*_turned(mark, [estimate], [at]), color=look.light, marker="o", ms=4.5)
        case Guide(at, text, axis, look):
            line = ax.axvline if axis == "x" else ax.axhline
            line(at, color=look.light, lw=0.8, ls=":", label=text or None, zorder=1)


def _line(ax: Axes, line: Line) -> None:
    shade, steps = line.look.light, "steps-post" if line.steps else "default"
    if line.published:
        ax.plot(line.x, line.y, color=shade, lw=0.8, alpha=0.45, zorder=1)
        return
    if line.raw is not None and not line.below:
        ax.plot(*line.raw, color=shade, lw=0.5, alpha=0.25, zorder=1)
    if line.low is not None and line.high is not None and not line.below:
        step: Any = "post" if line.steps else None
        ax.fill_between(line.x, line.low, line.high, step=step, color=shade, alpha=SOFT, lw=0)
    label, dash = _plain(line.label), _dash(line.dash)
    ax.plot(line.x, line.y, color=shade, lw=1.4, ls=dash, drawstyle=steps, label=label)


def _turned(mark: Whisker, along: list[float], beside: list[float]) -> tuple[Any, Any]:
    return (beside, along) if mark.upright else (along, beside)


def _dash(dash: Dash) -> Any:
    """A dash in matplotlib's unit, the line's width, which is about two pixels of a page."""
    return (0, tuple(length / 2 for length in dash)) if dash else "-"


def _axis(ax: Axes, axis: Axis, name: str) -> None:
    side = ax.xaxis if name == "x" else ax.yaxis
    side.set_label_text(_plain(axis.label))
    if axis.log:
        ax.set(**{f"{name}scale": "log"})
    if axis.ticks:
        names = _names(axis)
        side.set_ticks([at for at, _ in axis.ticks], ["\n".join(lines) for lines in names])
        for text, lines in zip(side.get_ticklabels(), names, strict=True):
            text.set_fontsize(float(text.get_fontsize()) * _scale(lines))
        side.set_minor_locator(NullLocator())
    elif not axis.log:
        side.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    if axis.from_zero:
        ax.set(**{f"{name}lim": (0, None)})
    if axis.down:
        places = [at for at, _ in axis.ticks]
        ax.set(**{f"{name}lim": (max(places) + 0.6, min(places) - 0.6)})


def _names(axis: Axis) -> list[list[str]]:
    """The lines of the name of each tick."""
    return [textwrap.wrap(_plain(text), LONGEST_LINE) or [""] for _, text in axis.ticks]


def _scale(lines: list[str]) -> float:
    """The size of a name's type beside the usual one's."""
    return 1.0 if len(lines) == 1 else SMALL_TYPE


def _legend(fig: Figure, colours: Mapping[str, Look]) -> None:
    """Draw a legend below all panels: what colours mean, and each label as it first looks."""
    handles: dict[str, Any] = {
        _plain(label): Line2D([], [], color=look.light, marker="o", ms=4.5)
        for label, look in colours.items()
    }
    for ax in fig.axes:
        own, labels = ax.get_legend_handles_labels()
        handles = dict(zip(labels, own, strict=True)) | handles
    if handles:
        columns = min(len(handles), 2 * len(fig.axes), 6)
        fig.legend(
            handles.values(), list(handles), fontsize=8, loc="outside lower center", ncols=columns
        )


def _plain(text: str) -> str:
    """Text in which a dollar is a dollar and opens no formula."""
    return text.replace("$", r"\$")
