"""A curve on axes: its jumps are cut, and a dotted connector shows the height of each."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from klip.theory.curves import Curve


def draw(axes: Axes, curve: Curve, *, color: str, label: str | None = None, **line: Any) -> None:
    """Draw the curve as a line, and each jump as a dotted connector in its colour."""
    # Unsnapped: rounded to whole pixels, a level line parts from an equal one that also bends.
    axes.plot(curve.x, curve.y, color=color, label=label, snap=False, **line)
    for jump in curve.jumps:
        x, y, order = [jump.at, jump.at], [jump.left, jump.right], line.get("zorder", 2)
        axes.plot(x, y, color=color, linewidth=0.9, linestyle=(0, (1, 1.6)), zorder=order)
