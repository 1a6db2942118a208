"""A shape's picture in a few kilobytes of SVG, in the colours of the page that holds it."""

from __future__ import annotations

from typing import Final

import numpy as np

from klip.shapes import Shape
from klip.theory.curves import Floats, View
from klip.theory.portrait import Pose, pose

WIDTH, HEIGHT, GAP = 170.0, 130.0, 24.0
TOP: Final = 2.2
"""The largest |m| and |beta| drawn."""
_SIGNS: Final = (("up", 1.0), ("down", -1.0))
_VIEWS: Final[tuple[tuple[View, str], ...]] = (("multiplier", "m"), ("beta", "β"))


def sketch(subject: Shape | Pose) -> str:
    """SVG of m and beta against w from 0 to 2, at A = +1 and A = -1; jumps are dotted.

    A shape is sampled first; a pose, in which somebody has kept one, is drawn as it is.
    """
    posed = pose(subject) if isinstance(subject, Shape) else subject
    panels = [_panel(posed, view, name, i) for i, (view, name) in enumerate(_VIEWS)]
    box = f"0 0 {2 * WIDTH + GAP:g} {HEIGHT + 16:g}"
    return (
        f'<svg class="sketch" viewBox="{box}" role="img" aria-label="m and β against the ratio w">'
        + "".join(panels)
        + "</svg>"
    )


def _panel(posed: Pose, view: View, name: str, place: int) -> str:
    left = place * (WIDTH + GAP)
    parts = [f'<svg x="{left:g}" width="{WIDTH:g}" height="{HEIGHT:g}">']  # cuts what is outside
    parts.append(f'<path class="axis" d="M0 {_y(0):g}H{WIDTH:g}M{_x(1):g} 0V{HEIGHT:g}"/>')
    curves = {a: posed.curves[view, a] for _, a in _SIGNS}
    for css, advantage in _SIGNS:
        if view == "multiplier":
            ends = " ".join(f"{_x(w):.1f},{_y(w * advantage):.1f}" for w in (0.0, 2.0))
            parts.append(f'<polyline class="free {css}" points="{ends}"/>')
        curve = curves[advantage]
        parts.append(f'<path class="line {css}" d="{_path(curve.x, curve.y)}"/>')
        for jump in curve.jumps:
            parts.append(
                f'<path class="jump {css}" d="M{_x(jump.at):.1f} {_y(jump.left):.1f}'
                f'V{_y(jump.right):.1f}"/>'
            )
    up, down = curves[1.0], curves[-1.0]
    same = np.isclose(up.y, np.interp(up.x, down.x, down.y), rtol=0, atol=1e-9)
    parts.append(f'<path class="line up both" d="{_path(up.x, np.where(same, up.y, np.nan))}"/>')
    parts.append(f'<text x="4" y="12">{name}</text></svg>')
    for w in (0, 1, 2):
        anchor = ("start", "middle", "end")[w]
        label = "w = 1" if w == 1 else str(w)
        parts.append(
            f'<text x="{left + _x(w):g}" y="{HEIGHT + 13:g}" text-anchor="{anchor}">{label}</text>'
        )
    return "".join(parts)


def _x(ratio: float) -> float:
    return ratio / 2.0 * WIDTH


def _y(value: float) -> float:
    return (1 - float(np.clip(value, -9 * TOP, 9 * TOP)) / TOP) / 2 * HEIGHT


def _path(xs: Floats, ys: Floats) -> str:
    """The path through points `[K]`; a NaN leaves a gap."""
    moves, pen = [], "M"
    for x, y in zip(xs, ys, strict=True):
        if np.isnan(y):
            pen = "M"
            continue
        moves.append(f"{pen}{_x(x):.1f} {_y(y):.1f}")
        pen = "L"
    return "".join(moves)
