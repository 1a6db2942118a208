"""Shapes side by side, and a foreign loss beside the shape that it turned out to be."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from klip.draw.curves import draw
from klip.draw.style import (
    BAND,
    BETA_MAP,
    NEUTRAL,
    colour_of,
    figure,
    save,
    shade_band,
    styled,
    zero_line,
)
from klip.errors import KlipError
from klip.shapes import ImportanceSampling, Region, Shape, parse
from klip.theory.curves import (
    SMALLEST_RATIO,
    Curve,
    Floats,
    View,
    along_ratio,
    context_of,
    values,
)
from klip.theory.views import raised_by

__all__ = ["probe_picture", "save", "show"]

RATIOS: Final = (0.0, 2.0)
ADVANTAGES: Final = (-2.0, 2.0)
FARTHEST: Final = 10.0
"""The largest ratio at which a probed shape's jumps are looked for."""
COLUMN: Final = 2.35
"""The width of a shape's column, in inches."""

Extend = Literal["neither", "both", "min", "max"]


def show(
    shapes: str | Region | Sequence[str | Region],
    output: str | Path | None = None,
    context: Mapping[str, float] | None = None,
    eps: float = 0.2,
    upto: float = RATIOS[1],
) -> Figure:
    """One column per shape: m against w, beta against w, and beta over the (w, A) plane.

    Each row has one scale, so columns compare by eye. A shape that looks at more than w and A is
    drawn at the `context` given, or else at a typical one, and the column says which.

    >>> figure = show(["clip", "spo"])
    >>> len(figure.axes)
    7

    Args:
        shapes: one or several, or their spellings; a controller is drawn as it starts
        output: a file to write as well, .png, .svg or .pdf
        context: what to assume of the samples, such as {"age": 4}
        eps: radius of the band that is shaded where a shape has none of its own
        upto: largest ratio to draw

    Returns:
        a figure of matplotlib's, which a notebook shows by itself

    """
    if upto <= 1:
        raise KlipError(f"upto={upto} leaves nothing beyond w = 1 to see: give more than 1")
    assumed, ratios = dict(context or {}), (RATIOS[0], upto)
    every = [shapes] if isinstance(shapes, (str, Region)) else shapes
    chosen = [(parse(each) if isinstance(each, str) else each).initial for each in every]
    drawn = _columns(chosen, assumed, eps, ratios)
    if output is not None:
        save(drawn, Path(output))
    return drawn


def _columns(
    shapes: Sequence[Shape],
    assumed: Mapping[str, float],
    eps: float,
    ratios: tuple[float, float],
) -> Figure:
    _check(shapes, assumed)
    notes = [_notes(shape, ratios, assumed) for shape in shapes]
    with styled():
        count = len(shapes)
        fig = figure(COLUMN * count + 1.3, 7.0)
        grid = fig.subplots(3, count, sharex=True, sharey="row", squeeze=False)
        multipliers = [_pair(shape, "multiplier", ratios, assumed) for shape in shapes]
        betas = [_pair(shape, "beta", ratios, assumed) for shape in shapes]
        for i, shape in enumerate(shapes):
            _title(grid[0, i], shape, notes[i])
            low, high = _band(shape, eps, assumed)
            for ax in grid[:2, i]:
                shade_band(ax, low, high)
                zero_line(ax)
            for advantage in (1.0, -1.0):
                free = along_ratio(ImportanceSampling(), "multiplier", advantage, ratios)
                draw(grid[0, i], free, color=colour_of(advantage), lw=0.9, ls="--")
            _draw_signs(grid[0, i], multipliers[i])
            _draw_signs(grid[1, i], betas[i])
            for edge in (low, high):
                grid[2, i].axvline(edge, color=NEUTRAL, linewidth=0.7, linestyle="--")
            grid[2, i].set_xlabel("ratio $w$")
        reach = 1.06 * ratios[1]
        grid[0, 0].set(ylim=_limits(multipliers, reach, 2 * reach), xlim=ratios)
        grid[1, 0].set(ylim=_limits(betas, reach / 4, 2 * reach))
        _maps(fig, grid[2], shapes, ratios, assumed)
        for ax, label in zip(grid[:, 0], _ROWS, strict=True):
            ax.set_ylabel(label)
        fig.align_ylabels(grid[:, 0])
        fig.legend(handles=_key(), loc="outside lower center", ncols=4 if count > 1 else 2)
    return fig


_ROWS: Final = ("multiplier $m$", r"$\beta = m - wA$", "advantage $A$")


def _check(shapes: Sequence[Shape], assumed: Mapping[str, float]) -> None:
    if not shapes:
        raise KlipError("there is no shape to show; name one, such as clip")
    needed = frozenset[str]().union(*(shape.needs for shape in shapes))
    for name in assumed:
        if name not in needed:
            needs = f"they need {', '.join(sorted(needed))}" if needed else "they need no context"
            raise KlipError(f"none of these shapes looks at '{name}'; {needs}")


def _pair(
    shape: Shape,
    view: View,
    ratios: tuple[float, float],
    assumed: Mapping[str, float],
) -> dict[float, Curve]:
    return {a: along_ratio(shape, view, a, ratios, assumed) for a in (1.0, -1.0)}


def _draw_signs(ax: Axes, curves: Mapping[float, Curve]) -> None:
    """Draw both signs; where one would hide the other, they alternate in dashes."""
    for advantage, curve in curves.items():
        draw(ax, curve, color=colour_of(advantage))
    up, down = curves[1.0], curves[-1.0]
    same = np.isclose(up.y, np.interp(up.x, down.x, down.y), rtol=0, atol=1e-9)
    shared = np.where(same, up.y, np.nan)
    draw(ax, Curve(up.x, shared, ()), color=colour_of(1.0), ls=(0, (4, 4)), zorder=2.5)


def _limits(
    columns: Sequence[Mapping[float, Curve]], least: float, most: float
) -> tuple[float, float]:
    """A row's common scale: what its curves need, at least `least` and at most `most` either way.

    A shape that grows like w^2 then leaves its own panel instead of flattening its neighbours.
    """
    heights = np.concatenate([curve.y for column in columns for curve in column.values()])
    high, low = float(np.nanmax(heights)), float(np.nanmin(heights))
    margin = 0.05 * (high - low)
    top, bottom = min(max(high + margin, least), most), max(min(low - margin, -least), -most)
    return bottom, top


def _maps(
    fig: Figure,
    row: Sequence[Axes],
    shapes: Sequence[Shape],
    ratios: tuple[float, float],
    assumed: Mapping[str, float],
) -> None:
    """Draw the bottom row: beta as an image, on one symmetric scale for all."""
    w = np.linspace(max(ratios[0], SMALLEST_RATIO), ratios[1], 401)
    advantage = np.linspace(*ADVANTAGES, 401)
    betas = [values(s, "beta", w[None, :], advantage[:, None], assumed) for s in shapes]
    limit = colour_limit(betas, pull=ratios[1] * max(ADVANTAGES))
    for ax, beta in zip(row, betas, strict=True):
        image = ax.imshow(
            beta, extent=(*ratios, *ADVANTAGES), origin="lower", aspect="auto", cmap=BETA_MAP,
            vmin=-limit, vmax=limit, interpolation="nearest",
        )  # fmt: skip
        zero_line(ax)
        ax.set_yticks([-2, -1, 0, 1, 2])
    bar = fig.colorbar(
        image, ax=list(row), label=r"$\beta$", extend=_extend(betas, limit), aspect=14, pad=0.02
    )
    bar.outline.set_linewidth(0.4)


def colour_limit(betas: Sequence[Floats], pull: float) -> float:
    """The end of the common colour scale: the largest |beta|, but among several shapes the
    largest `pull` |wA| of the unconstrained surrogate.

    A beta of that size has cancelled the pull altogether; a shape that goes on to ten times as
    much should not leave the others blank. The colour bar has an arrow where values go beyond.
    """
    reaches = sorted(float(np.quantile(np.abs(beta), 0.98)) for beta in betas)
    typical = min(reaches[-1], max(pull, reaches[(len(reaches) - 1) // 2]))
    largest = max(float(np.abs(beta).max()) for beta in betas)
    return (largest if largest <= 1.5 * typical else typical) or 1.0


def _extend(betas: Sequence[Floats], limit: float) -> Extend:
    """The ends of the colour bar that need an arrow, since values lie beyond them."""
    below = any(float(beta.min()) < -limit for beta in betas)
    above = any(float(beta.max()) > limit for beta in betas)
    return "both" if below and above else "min" if below else "max" if above else "neither"


def _title(ax: Axes, shape: Shape, notes: Sequence[str]) -> None:
    """Write the shape's spelling, without a user's folders, and under it what was assumed."""
    name = re.sub(r"[^\s(]*/", "", str(shape))
    words = (re.sub(r"([(:])", r"\1 ", w) if len(w) > 27 else w for w in name.split())
    lines = textwrap.wrap(" ".join(words), 27, break_on_hyphens=False)
    spelled = re.sub(r"([(:]) ", r"\1", "\n".join(lines))
    ax.set_title(spelled, pad=6 + 11 * len(notes), fontsize=9)
    if notes:
        ax.annotate(
            "\n".join(notes), (0.5, 1.0), (0, 4), xycoords="axes fraction",
            textcoords="offset points", ha="center", va="bottom", fontsize=7.5, color=NEUTRAL,
        )  # fmt: skip


_FACTS: Final = {
    "old_log_prob": "old probability",
    "kl": "state KL",
    "behaviour_log_ratio": "old / sampler log-ratio",
    "proximal_log_ratio": "old / start log-ratio",
    "reference_log_ratio": "new / reference log-ratio",
}


def _notes(shape: Shape, ratios: tuple[float, float], assumed: Mapping[str, float]) -> list[str]:
    """What a column takes for granted, and what it cannot show."""
    w = np.linspace(max(ratios[0], SMALLEST_RATIO), ratios[1], 65)[None, :]
    w, advantage = np.broadcast_arrays(w, np.array([[-1.0], [1.0]]))
    context = context_of(shape, w, advantage, assumed)
    facts = []
    for name in sorted(shape.needs):
        fact = np.asarray(getattr(context, name), dtype=float)
        label = _FACTS.get(name, name.replace("_", " "))
        if np.ptp(fact) > 0:
            facts.append(f"{label} from $w$" if np.ptp(fact, axis=-1).any() else f"{label} = $A$")
        else:
            number = float(np.exp(fact.flat[0]) if name == "old_log_prob" else fact.flat[0])
            facts.append(f"{label} {number:.3g}")
    lines = textwrap.wrap("at " + ", ".join(facts), 34) if facts else []
    with raised_by(shape):
        weight = shape.kl_weight(np.log(w), advantage, context)
    if weight is not None:
        weights = np.broadcast_to(np.asarray(weight, dtype=float), w.shape)
        up_to = "up to " if np.ptp(weights) > 0 else ""
        lines.append(f"+ closed-form KL, weight {up_to}{float(weights.max()):.3g}")
    return lines


def _band(shape: Shape, eps: float, assumed: Mapping[str, float]) -> tuple[float, float]:
    """The edges of the shape's own band; [1 - eps, 1 + eps] if it has none."""
    ones = np.ones(1)
    with raised_by(shape):
        edges = shape.band(context_of(shape, ones, ones, assumed), ones) or (1 - eps, 1 + eps)
    low, high = (float(np.ravel(np.asarray(edge))[0]) for edge in edges)
    return low, high


def _key() -> list[Any]:
    return [
        Line2D([], [], color=colour_of(1.0), label="$A = +1$"),
        Line2D([], [], color=colour_of(-1.0), label="$A = -1$"),
        Line2D([], [], color=NEUTRAL, linewidth=0.9, linestyle="--", label="unconstrained $wA$"),
        Patch(facecolor=BAND, label="band"),
    ]


_MARKERS: Final = "osD^v<>P"
_VIEWS: Final[tuple[View, View]] = ("multiplier", "beta")


def probe_picture(
    points: Mapping[float, tuple[Floats, Floats]], match_shape: Shape | None, title: str
) -> Figure:
    """What a foreign loss does, sample by sample, and the shape that comes nearest, if any.

    `points` has, for each advantage, the ratios `[K]` at which the loss was asked and the
    multipliers `[K]` that its gradient gave there. Markers are the loss, lines the shape. A probe
    asks far more than a page can hold, so the figure has at most five advantages, the ratios from 0
    to 2 or to the shape's last jump, and one point where several crowd.
    """
    if not points or not all(len(w) for w, _ in points.values()):
        raise KlipError("there are no recovered points to draw")
    advantages = _few(points)
    ratios = _window(np.concatenate([points[a][0] for a in advantages]), advantages, match_shape)
    with styled():
        fig = figure(7.2, 3.5)
        panels = fig.subplots(1, 2, sharex=True)
        for ax in panels:
            zero_line(ax)
            ax.axvline(1.0, color="#9A9A9A", linewidth=0.7, zorder=1)
            ax.set_xlabel("ratio $w$")
        handles = []
        for i, advantage in enumerate(advantages):
            w, m = _thinned(*points[advantage], ratios)
            colour = colour_of(advantage)
            looks: dict[str, Any] = {
                "linestyle": "none", "marker": _MARKERS[i % len(_MARKERS)], "markersize": 4.2,
                "markerfacecolor": "white", "markeredgecolor": colour, "markeredgewidth": 1.0,
            }  # fmt: skip
            handles.append(
                Line2D([], [], label=f"$A = {advantage:{'+g' if advantage else 'g'}}$", **looks)
            )
            for ax, view, heights in zip(panels, _VIEWS, (m, m - w * advantage), strict=True):
                if match_shape is not None and ratios[0] < ratios[1]:
                    curve = along_ratio(match_shape, view, advantage, ratios)
                    draw(ax, curve, color=colour, linewidth=1.4, alpha=0.75)
                ax.plot(w, heights, zorder=3, **looks)
        for ax, label in zip(panels, _ROWS, strict=False):
            ax.set_ylabel(label)
        fig.suptitle(textwrap.fill(title, 80), fontsize=10, fontweight="bold")
        lines = f"; lines: {match_shape}" if match_shape is not None else ""
        fig.legend(
            handles=handles, loc="outside lower center", ncols=len(handles),
            title=textwrap.fill(f"markers: the loss{lines}", 90), title_fontsize=8.5,
        )  # fmt: skip
    return fig


def _few(points: Mapping[float, object]) -> list[float]:
    """At most five advantages, from the largest down: both extremes, those nearest 1 and -1, 0."""
    if len(points) <= 5:
        return sorted(points, reverse=True)
    targets = (max(points), 1.0, 0.0, -1.0, min(points))
    return sorted({min(points, key=lambda a: abs(a - t)) for t in targets}, reverse=True)


def _window(w: Floats, advantages: Sequence[float], shape: Shape | None) -> tuple[float, float]:
    """The ratios worth drawing: around 1, and as far as something still happens."""
    low, high = float(np.min(w)), float(np.max(w))
    top = RATIOS[1]
    if shape is not None and high > top:
        ends = (RATIOS[1], min(high, FARTHEST))
        jumps = [j.at for a in advantages for j in along_ratio(shape, "multiplier", a, ends).jumps]
        top = max([top, *(1.2 * at for at in jumps)])
    return (low, min(high, top)) if low < top else (low, high)


def _thinned(w: Floats, m: Floats, ratios: tuple[float, float]) -> tuple[Floats, Floats]:
    """The points within the window, no two closer than a marker is wide."""
    order = np.argsort(w)
    w, m = np.asarray(w, dtype=float)[order], np.asarray(m, dtype=float)[order]
    kept, last = [], -np.inf
    for i in np.flatnonzero((w >= ratios[0]) & (w <= ratios[1])):
        if w[i] - last >= (ratios[1] - ratios[0]) / 45:
            kept.append(i)
            last = w[i]
    return w[kept], m[kept]
