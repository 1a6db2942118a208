"""A pull m(w, A) on a grid, and densely wherever it jumps, bends or is steep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from klip.shapes import NO_CONTEXT, Context
from klip.theory.blackbox import OLD
from klip.theory.views import Floats

PullByOld = Callable[..., Floats]
"""(log_ratio, advantage, old_log_prob) -> m."""

LEVELS = (OLD, -0.7, -2.0)
"""The old log-probabilities at which a pull that depends on them is sampled."""

ADVANTAGES = (-2.0, -1.0, -0.5, -0.3, 0.0, 0.3, 0.5, 1.0, 2.0)
LOG_RATIOS: Floats = np.linspace(-4.0, 4.0, 161)
CLOSE_BY: Floats = np.arange(-50, 51) / 64.0 + 1e-3
STEP = 1 / 64
MOST = 24
"""How many intervals with a sudden change are searched: in a noisy loss every one has it."""


@dataclass(frozen=True)
class SampledPull:
    """A pull at some points."""

    points: Floats  # [P, 3]: log-ratio, advantage, old log-prob
    pull: Floats  # [P]
    jumps: Floats  # [J, 3]: points where the pull jumps
    bends: Floats  # [K]: log-ratios near which it is steep or bends
    by_old: bool  # whether the pull depends on the old log-probability

    @property
    def log_ratio(self) -> Floats:
        """log w of each sample."""
        return self.points[:, 0]

    @property
    def advantage(self) -> Floats:
        """A of each sample."""
        return self.points[:, 1]

    @property
    def context(self) -> Context:
        """What a shape may know about the samples."""
        return Context(old_log_prob=self.points[:, 2]) if self.by_old else NO_CONTEXT

    def at(self, chosen: Any) -> SampledPull:
        """The samples at an index or a mask."""
        return dataclasses.replace(self, points=self.points[chosen], pull=self.pull[chosen])

    def changed(self, pull: Floats) -> SampledPull:
        """The same points with another pull."""
        return dataclasses.replace(self, pull=pull)


def points_only(points: Floats, by_old: bool = True) -> SampledPull:
    """Points at which the pull is not known: rows of (log-ratio, advantage, old log-prob)."""
    return SampledPull(points, np.zeros(len(points)), np.empty((0, 3)), np.empty(0), by_old)


def sample(pull: PullByOld, by_old: bool = False, error: float = 0.0) -> SampledPull:
    """A pull on the grid, and densely around its sudden changes.

    `error` is the relative error of the pull, which is no jump and blurs the place of one.
    """
    levels = LEVELS if by_old else (OLD,)
    lines = [(LOG_RATIOS, a) for a in ADVANTAGES] + [(CLOSE_BY, a) for a in (-1.0, 1.0)]
    grid = np.array([(x, a, o) for o in levels for line, a in lines for x in line if x + o < 0])
    starts, owner = _sudden(pull, levels)
    jumps = _jumps(pull, starts, owner, max(1e-4, error))
    inside = np.linspace(0.0, STEP, 17)
    steep = _points(starts[:, None] + inside, owner)
    nearby = [np.add(jumps, [step, 0.0, 0.0]) for step in (-1e-3, -1e-5, 1e-5, 1e-3)]
    points = np.concatenate([grid, steep, *nearby])
    if len(jumps):  # too close to call: the loss may compute in fewer digits
        distance = np.abs(points[:, None, 0] - jumps[:, 0])
        blur = max(5e-6, error / 2)
        points = points[~np.any((distance < blur) & (distance > 0), axis=1)]
    values = _ask(pull, points)
    fine = np.isfinite(values)
    return SampledPull(points[fine], values[fine], jumps, starts + STEP / 2, by_old)


def _ask(pull: PullByOld, points: Floats) -> Floats:
    """The pull at rows of (log-ratio, advantage, old log-prob)."""
    out = np.empty(len(points))
    for level in np.unique(points[:, 2]):
        here = points[:, 2] == level
        out[here] = pull(points[here, 0], points[here, 1], float(level))
    return out


def _points(x: Floats, owner: Floats) -> Floats:
    """Rows of log-ratios `[R, C]`, with each row's advantage and old log-prob: `[R*C, 3]`."""
    return np.column_stack([x.ravel(), np.repeat(owner, x.shape[1], axis=0)])


def _sudden(pull: PullByOld, levels: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Starts of intervals in which m or its slope changes more than nearby, and their (A, old)."""
    starts: list[float] = []
    owner: list[tuple[float, float]] = []
    sizes: list[float] = []
    for a, o in ((a, o) for o in levels for a in (-1.0, 1.0)):
        x = np.arange(-256, min(256, int(-o / STEP) - 1) + 1) * STEP
        m = pull(x, np.full_like(x, a), o)
        change = np.abs(np.diff(m)) / np.maximum(1.0, np.exp(x[:-1]))
        left, right = _beside(change, 2)
        jumps = change > np.where(change > 0.02, 3 * np.minimum(left, right), 1e-4)
        jumps &= change > 2 * np.minimum(left, right)
        bend = np.pad(np.abs(np.diff(m, 2)) / np.maximum(1.0, np.exp(x[1:-1])), (0, 1))
        left, right = _beside(bend, 3)
        bends = (bend > 1e-3) & (bend > 8 * np.minimum(left, right))
        for i in np.flatnonzero(np.nan_to_num(jumps | bends)):
            starts.append(float(x[i]))
            owner.append((a, o))
            sizes.append(float(change[i]))
    largest = np.argsort(-np.array(sizes), kind="stable")[: MOST * len(levels)]
    return np.array(starts)[largest], np.array(owner).reshape(-1, 2)[largest]


def _beside(x: Floats, steps: int) -> tuple[Floats, Floats]:
    """The values `steps` places to the left and to the right of each."""
    wide = np.pad(x, steps, mode="edge")
    return wide[: x.size], wide[2 * steps :]


def _jumps(pull: PullByOld, starts: Floats, owner: Floats, least: float) -> Floats:
    """The points at which m jumps by `least` of w, `[J, 3]`: intervals are cut by 64 six times."""
    if not starts.size:
        return np.empty((0, 3))
    low, high = starts, starts + STEP
    rows = np.arange(low.size)
    left = np.zeros(low.size)
    for _ in range(6):  # 64^-6 of 1/64 is 2e-13
        x = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, 65)
        m = _ask(pull, _points(x, owner)).reshape(x.shape)
        change = np.nan_to_num(np.abs(np.diff(m)), nan=0.0, posinf=0.0)
        step = np.argmax(change, axis=1)
        left = change[rows, step]
        low, high = x[rows, step], x[rows, step + 1]
    jumps = np.column_stack([(low + high) / 2, owner])[left > least * np.exp(low)]
    order = np.lexsort(jumps.T)
    apart = np.ones(len(jumps), bool)
    apart[1:] = np.any(np.abs(np.diff(jumps[order], axis=0)) > 1e-9, axis=1)
    return jumps[order][apart]
