"""A shape's view along the ratio, as a line that is honest about its jumps.

A clip drawn through neighbouring samples looks like a steep ramp, which is another shape. So each
jump is located by bisection, the line is cut there, and a dotted connector shows its height.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from klip.shapes import NO_CONTEXT, Context, Shape
from klip.theory.views import Floats, raised_by, reference_context

View = Literal["multiplier", "beta", "effective_advantage", "objective"]

SMALLEST_RATIO = 0.005
"""Where a ratio axis that opens at 0 is first sampled: log 0 is no number."""
VISIBLE = 1e-3  # of a curve's height: smaller jumps cannot be seen


@dataclass(frozen=True)
class Leap:
    """A jump of a curve: where it is, and the values on its two sides."""

    at: float
    left: float
    right: float


@dataclass(frozen=True)
class Curve:
    """y against x, both `[K]`; y is NaN at each jump."""

    x: Floats
    y: Floats
    jumps: tuple[Leap, ...]


def trace(
    function: Callable[[Floats], Floats], low: float, high: float, samples: int = 801
) -> Curve:
    """The function over [low, high], its jumps located and cut.

    >>> trace(np.sign, -1.0, 2.0).jumps
    (Leap(at=0.0, left=-1.0, right=1.0),)
    """
    x = np.linspace(low, high, samples)
    y = np.asarray(function(x), dtype=float)
    height = float(np.ptp(y)) or 1.0
    step = np.abs(np.diff(y))
    cells = np.flatnonzero(step > VISIBLE * height)
    if cells.size == 0:
        return Curve(x, y, ())
    left, right, y_left, y_right = x[cells], x[cells + 1], y[cells], y[cells + 1]
    for _ in range(60):
        # Keep the part in which the function moves more. Not in halves: at sgn(0) a symmetric
        # grid would meet the value in the middle of a jump and take it for one of the sides.
        middle = left + 0.47 * (right - left)
        y_middle = np.asarray(function(middle), dtype=float)
        lower = np.abs(y_middle - y_left) >= np.abs(y_right - y_middle)
        left, y_left = np.where(lower, left, middle), np.where(lower, y_left, y_middle)
        right, y_right = np.where(lower, middle, right), np.where(lower, y_middle, y_right)
    real = np.abs(y_right - y_left) > VISIBLE * height
    at = (left + right)[real] / 2
    sides = np.stack([y_left[real], np.full(at.shape, np.nan), y_right[real]], axis=1)
    where = np.repeat(cells[real] + 1, 3)
    return Curve(
        np.insert(x, where, np.repeat(at, 3)),
        np.insert(y, where, sides.ravel()),
        tuple(
            Leap(round(float(a), 12) + 0.0, float(low_side), float(high_side))
            for a, (low_side, _, high_side) in zip(at, sides, strict=True)
        ),
    )


def context_of(
    shape: Shape, w: Floats, advantage: Floats, overrides: Mapping[str, float]
) -> Context:
    """The facts that a shape is drawn with: those given, and a typical value of the others."""
    if not shape.needs:
        return NO_CONTEXT
    known = {key: value for key, value in overrides.items() if key in shape.needs}
    return reference_context(shape, np.log(w), advantage, known)


def values(
    shape: Shape,
    view: View,
    w: npt.ArrayLike,
    advantage: npt.ArrayLike,
    overrides: Mapping[str, float] | None = None,
) -> Floats:
    """A view of the shape at ratios and advantages that broadcast against one another."""
    ratios, advantages = np.broadcast_arrays(
        np.asarray(w, dtype=float), np.asarray(advantage, dtype=float)
    )
    context = context_of(shape, ratios, advantages, overrides or {})
    with raised_by(shape):
        view_values = getattr(shape, view)(np.log(ratios), advantages, context)
        return np.broadcast_to(np.asarray(view_values, dtype=float), ratios.shape)


def along_ratio(
    shape: Shape,
    view: View,
    advantage: float,
    ratios: tuple[float, float],
    overrides: Mapping[str, float] | None = None,
) -> Curve:
    """A view of the shape against w, at one advantage."""
    low, high = max(ratios[0], SMALLEST_RATIO), ratios[1]
    return trace(lambda w: values(shape, view, w, advantage, overrides), low, high)
