"""Which catalogue shape a pull m(w, A) is, and with what parameters.

Jumps are located first, to 1e-12 in log w: they hold the radius of a hard clip exactly. The other
parameters come from a search along each coordinate and then least squares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from klip.shapes import (
    NO_CONTEXT,
    Band,
    Context,
    ParameterError,
    Penalty,
    Shape,
    catalogue,
    numbers,
    with_numbers,
)
from klip.theory.blackbox import OLD, Floats

Pull = Callable[..., Floats]
"""(log_ratio, advantage, old_log_prob) -> m."""

TOLERANCE = 1e-6
"""The largest |difference| / max(1, |m|) of shapes that count as the same."""

LEVELS = (OLD, -0.7, -2.0)
"""The old log-probabilities at which a pull that depends on them is sampled."""

ADVANTAGES = (-2.0, -1.0, -0.5, -0.3, 0.0, 0.3, 0.5, 1.0, 2.0)
LOG_RATIOS: Floats = np.linspace(-4.0, 4.0, 161)


@dataclass(frozen=True)
class Samples:
    """A pull at some points; all arrays `[P]`."""

    log_ratio: Floats
    advantage: Floats
    old_log_prob: Floats
    pull: Floats
    jumps: Floats  # [J, 3]: log-ratio, advantage, old log-prob
    by_old: bool  # whether the pull depends on the old log-probability

    @property
    def context(self) -> Context:
        """What a shape may know about the samples."""
        return Context(old_log_prob=self.old_log_prob) if self.by_old else NO_CONTEXT

    def at(self, chosen: Any) -> Samples:
        """Some of the samples."""
        parts = (self.log_ratio, self.advantage, self.old_log_prob, self.pull)
        return Samples(*(part[chosen] for part in parts), self.jumps, self.by_old)

    def changed(self, pull: Floats) -> Samples:
        """The same points with another pull."""
        return dataclasses.replace(self, pull=pull)


@dataclass(frozen=True)
class Match:
    """The catalogue shape that a pull is, or is nearest to."""

    shape: Shape | None
    name: str
    parameters: dict[str, float]
    max_difference: float
    """The largest |difference| / max(1, |m|)."""
    exact: bool
    where: tuple[float, float]
    """(w, A) of the largest difference."""
    equivalents: list[str]
    """Other spellings of the same function."""

    def __str__(self) -> str:
        return str(self.shape) if self.shape else self.name


def sample(pull: Pull, by_old: bool = False) -> Samples:
    """A pull on the grid, and closely around whatever is steep there."""
    levels = LEVELS if by_old else (OLD,)
    grid = np.array([(x, a, o) for o in levels for a in ADVANTAGES for x in LOG_RATIOS if x + o < 0])
    jumps, steep = _jumps(pull, levels)
    nearby = [jumps + [[step, 0.0, 0.0]] for step in (-1e-3, -1e-5, 1e-5, 1e-3)]
    points = np.concatenate([grid, steep, *nearby])
    values = np.concatenate(
        [_ask(pull, part) for part in (grid, steep, *nearby) if len(part)] or [np.empty(0)]
    )
    fine = np.isfinite(values)
    return Samples(*points[fine].T, values[fine], jumps, by_old)


def _ask(pull: Pull, points: Floats) -> Floats:
    """The pull at rows of (log-ratio, advantage, old log-prob)."""
    out = np.empty(len(points))
    for level in np.unique(points[:, 2]):
        here = points[:, 2] == level
        out[here] = pull(points[here, 0], points[here, 1], float(level))
    return out


def _jumps(pull: Pull, levels: tuple[float, ...]) -> tuple[Floats, Floats]:
    """The points where the pull jumps, and samples of the intervals where it is only steep."""
    lines = [(a, o) for o in levels for a in (-1.0, 1.0)]
    starts, ends, owners = [], [], []
    for a, o in lines:
        x = np.arange(-256, min(256, int(-o * 64) - 1) + 1) / 64.0
        m = pull(x, np.full_like(x, a), o)
        change = np.abs(np.diff(m)) / np.maximum(1.0, np.exp(x[:-1]))
        around = np.maximum(*(np.pad(change, 2, mode="edge")[i : i + change.size] for i in (0, 4)))
        for i in np.flatnonzero((change > 1e-4) & (change > 3 * around)):
            starts.append(x[i]), ends.append(x[i + 1]), owners.append((a, o))
    if not starts:
        return np.empty((0, 3)), np.empty((0, 3))
    low, high, owner = np.array(starts), np.array(ends), np.array(owners)
    first = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 33)
    steps = np.linspace(0.0, 1.0, 65)
    rows = np.arange(low.size)
    for _ in range(6):  # 64^-6 of 1/64 is 2e-13
        x = low[:, None] + (high - low)[:, None] * steps
        m = _rows(pull, x, owner)
        step = np.argmax(np.abs(np.diff(m)), axis=1)
        low, high = x[rows, step], x[rows, step + 1]
    left = np.abs(m[rows, step + 1] - m[rows, step])
    sudden = left > 1e-4 * np.exp(low)
    jumps = np.column_stack([(low + high) / 2, owner])[sudden]
    steep = [(x, *o) for line, o in zip(first[~sudden], owner[~sudden], strict=True) for x in line]
    return jumps, np.array(steep).reshape(-1, 3)


def _rows(pull: Pull, x: Floats, owner: Floats) -> Floats:
    points = np.column_stack([x.ravel(), np.repeat(owner, x.shape[1], axis=0)])
    return _ask(pull, points).reshape(x.shape)


def match(samples: Samples, tolerance: float = TOLERANCE) -> Match:
    """The catalogue shape nearest to the samples; with the fewest odd parameters, if several."""
    if samples.pull.size == 0 or not np.any(samples.pull):
        return Match(None, "none", {}, 0.0, False, (1.0, 0.0), [])
    candidates = _candidates(samples.by_old)
    found = [_fit(shape, samples, tolerance) for shape in candidates]
    if not any(fit.exact for fit in found):
        found += _sums(candidates, samples, tolerance)
    exact = [fit for fit in found if fit.exact]
    best = min(exact, key=lambda f: f.odd) if exact else min(found, key=lambda f: f.distance)
    same = [f.shape for f in exact if f is not best and _same(f.shape, best.shape)]
    worst = int(np.argmax(_difference(best.shape, samples)))
    where = (float(np.exp(samples.log_ratio[worst])), float(samples.advantage[worst]))
    return Match(
        best.shape,
        _name(best.shape),
        _parameters(best.shape),
        best.largest,
        best.exact,
        where,
        [str(shape) for shape in same],
    )


@dataclass(frozen=True)
class _Fit:
    shape: Shape
    largest: float
    distance: float
    exact: bool
    odd: int  # parameters that are not the default


def _candidates(by_old: bool) -> list[Shape]:
    """The catalogue, as far as a ratio, an advantage and an old log-probability determine it."""
    known = frozenset({"old_log_prob"} if by_old else ())
    context = Context(old_log_prob=OLD) if by_old else NO_CONTEXT
    shapes = [cls() for cls in catalogue().values()]
    return [
        shape for shape in shapes
        if isinstance(shape, Shape) and shape.needs <= known
        and shape.kl_weight(0.0, 1.0, context) is None
    ]  # fmt: skip


def _sums(candidates: list[Shape], samples: Samples, tolerance: float) -> list[_Fit]:
    """Shape + penalty. At A = 0 the penalty stands alone, so it is fitted there and taken off."""
    found = []
    idle = samples.at(samples.advantage == 0)
    if not np.any(np.abs(idle.pull) > tolerance):
        return []
    for penalty in (shape for shape in candidates if isinstance(shape, Penalty)):
        fit = _fit(penalty, idle, tolerance)
        if not (fit.exact and isinstance(fit.shape, Penalty)):
            continue
        beta = fit.shape.beta(samples.log_ratio, samples.advantage, samples.context)
        rest = samples.changed(samples.pull - beta)
        for shape in (shape for shape in candidates if not isinstance(shape, Penalty)):
            base = _fit(shape, rest, tolerance)
            found.append(_judge(base.shape + fit.shape, base.odd + 1, samples, tolerance))
    return found


def _fit(default: Shape, samples: Samples, tolerance: float) -> _Fit:
    """The parameters with which a shape is nearest to the samples."""
    few = samples.at(_thin(samples))
    names, start, least = _coordinates(default)
    theta = start
    for _ in range(2 if names else 0):
        theta = _search(default, names, theta, least, few)
        if _misfit(_residuals(default, names, theta[None], few))[0] < tolerance / 10:
            break
        theta = _polish(default, names, theta, least, few)
    shape = _tidy(default, names, theta, samples, tolerance)
    plain = numbers(default)
    odd = sum(plain.get(key) != value for key, value in numbers(shape).items())
    return _judge(shape, odd, samples, tolerance)


def _judge(shape: Shape, odd: int, samples: Samples, tolerance: float) -> _Fit:
    difference = _difference(shape, samples)
    largest = float(difference.max())
    distance = float(np.sqrt(np.mean(np.minimum(difference, 10.0) ** 2)))
    return _Fit(shape, largest, distance, largest <= tolerance, odd)


def _thin(samples: Samples) -> Floats:
    """Every third log-ratio of the grid, and all that lies between its points."""
    place = samples.log_ratio * 20
    between = np.abs(place - np.round(place)) > 1e-9
    chosen: Floats = between | (np.round(place) % 3 == 0)
    return chosen


def _coordinates(shape: Shape) -> tuple[list[str], Floats, Floats]:
    """The names, defaults and lower bounds of the numbers to fit; a band is low and high."""
    rules = {f.name: f.metadata for f in fields(shape)}
    values: dict[str, float] = dict(numbers(shape))
    if isinstance(shape, Band):
        eps = values.pop("eps", 0.0)
        values = {"low": eps, "high": eps} | values
    bounds = []
    for name in values:
        above, at_least = rules[name].get("above"), rules[name].get("at_least")
        open_bound = -np.inf if above is None else above + 1e-9
        bounds.append(open_bound if at_least is None else at_least)
    return list(values), np.array(list(values.values())), np.array(bounds, dtype=float)


def _residuals(shape: Shape, names: list[str], thetas: Floats, samples: Samples) -> Floats:
    """(shape - pull) / max(1, |pull|) for rows of parameters: `[G, P]`."""
    new: dict[str, Any] = {name: thetas[:, i, None] for i, name in enumerate(names)}
    if isinstance(shape, Band):
        new["eps"] = None
    varied = with_numbers(shape, new)
    with np.errstate(all="ignore"):
        m = varied.multiplier(samples.log_ratio[None], samples.advantage[None], samples.context)
        r = (m - samples.pull) / np.maximum(1.0, np.abs(samples.pull))
    return np.nan_to_num(r, nan=1e6, posinf=1e6, neginf=-1e6)


def _misfit(residuals: Floats) -> Floats:
    """How far each row is off, every sample counting for at most 1."""
    out: Floats = np.minimum(np.abs(residuals), 1.0).mean(axis=1)
    return out


def _search(
    shape: Shape, names: list[str], theta: Floats, least: Floats, samples: Samples
) -> Floats:
    """Each parameter in turn, among values that the jumps suggest and a coarse range."""
    for _ in range(2):
        for i in range(len(names)):
            values = _guesses(theta[i], least[i], samples.jumps)
            if samples.by_old:
                values = np.concatenate([values, _crossings(shape, names, theta, i, samples)])
            rows = np.repeat(theta[None], values.size, axis=0)
            rows[:, i] = values
            rows = rows[[_build(shape, names, row) is not None for row in rows]]
            theta = rows[np.argmin(_misfit(_residuals(shape, names, rows, samples)))]
    return theta


def _guesses(now: float, least: float, jumps: Floats) -> Floats:
    w = np.exp(jumps[:, 0])
    scale = now if now > 0 else 0.1
    coarse = scale * np.geomspace(1 / 32, 32, 31)
    every = np.unique(np.concatenate([coarse, abs(w - 1), w, 1 / w, 1 / w - 1, [0.0]]))
    return np.concatenate([[now], every[every >= least]])


def _crossings(
    shape: Shape, names: list[str], theta: Floats, i: int, samples: Samples
) -> Floats:
    """Values of a parameter at which the shape itself jumps where the pull does."""
    found = []
    for x, a, o in samples.jumps:
        here = Samples(*(np.array([v]) for v in (x, a, o, 0.0)), samples.jumps, True)
        low, high = 1e-5, 1e2
        for _ in range(12):
            rows = np.repeat(theta[None], 65, axis=0)
            rows[:, i] = np.geomspace(low, high, 65)
            change = np.abs(np.diff(_residuals(shape, names, rows, here)[:, 0]))
            step = int(np.argmax(change))
            if change[step] < 1e-3:
                break
            low, high = rows[step, i], rows[step + 1, i]
        else:
            found.append((low + high) / 2)
    return np.array(found)


def _polish(
    shape: Shape, names: list[str], theta: Floats, least: Floats, samples: Samples
) -> Floats:
    """Least squares from there; parameters that only place jumps stay where they are."""

    def residuals(x: Floats) -> Floats:
        row: Floats = np.clip(_residuals(shape, names, x[None], samples)[0], -1e3, 1e3)
        return row

    def slopes(x: Floats) -> Floats:
        steps = 1e-7 * np.maximum(np.abs(x), 1e-2)
        rows = np.clip(_residuals(shape, names, x + np.diag(steps), samples), -1e3, 1e3)
        change: Floats = ((rows - residuals(x)) / steps[:, None]).T
        return change

    scale = np.maximum(np.abs(theta), 0.01)
    found = least_squares(
        residuals, theta, slopes, (least, np.inf), x_scale=scale,
        ftol=1e-15, xtol=1e-13, gtol=1e-15, max_nfev=30,
    )  # fmt: skip
    if _build(shape, names, found.x) is None:
        return theta
    both = np.stack([theta, found.x])
    better: Floats = both[np.argmin(_misfit(_residuals(shape, names, both, samples)))]
    return better


def _build(default: Shape, names: list[str], theta: Floats) -> Shape | None:
    """The shape with these numbers, or None if it refuses them."""
    new: dict[str, Any] = dict(zip(names, map(float, theta), strict=True))
    if isinstance(default, Band):
        new["eps"] = None
    try:
        return dataclasses.replace(default, **new)
    except ParameterError:
        return None


def _tidy(
    default: Shape, names: list[str], theta: Floats, samples: Samples, tolerance: float
) -> Shape:
    """The shape with short numbers, and the default ones, wherever they fit as well."""

    _, start, _ = _coordinates(default)

    def largest(row: Floats) -> float:
        return float(np.abs(_residuals(default, names, row[None], samples)).max())

    allowed = max(tolerance, largest(theta) * (1 + 1e-9)) if names else 0.0
    for i in range(len(names)):
        for value in (start[i], *(round(theta[i], digits) for digits in (2, 3, 4, 6))):
            trial = theta.copy()
            trial[i] = value
            near = abs(value - theta[i]) < 1e-5 * max(1.0, abs(value)) or value == start[i]
            if near and _build(default, names, trial) and largest(trial) <= allowed:
                theta = trial
                break
    return _build(default, names, theta) or default


def _difference(shape: Shape, samples: Samples) -> Floats:
    with np.errstate(all="ignore"):
        m = shape.multiplier(samples.log_ratio, samples.advantage, samples.context)
        off = np.abs(m - samples.pull) / np.maximum(1.0, np.abs(samples.pull))
    return np.nan_to_num(off, nan=np.inf)


def _same(one: Shape, other: Shape) -> bool:
    """Whether two shapes agree far beyond the samples too, and not just in a limit."""
    if any(0 < abs(value) < 1e-5 or abs(value) > 1e5 for value in numbers(one).values()):
        return False
    x, a = np.meshgrid(np.linspace(-19.0, 19.0, 381), [-3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0])
    old = np.full(x.size, -20.0)
    wide = Samples(x.ravel(), a.ravel(), old, np.zeros(x.size), np.empty((0, 3)), True)
    m = one.multiplier(wide.log_ratio, wide.advantage, wide.context)
    return bool(_difference(other, wide.changed(m)).max() <= TOLERANCE)


def _name(shape: Shape) -> str:
    parts = [part for part in shape.parameters.values() if isinstance(part, Shape)]
    return " + ".join(part.name for part in parts) if parts else shape.name


def _parameters(shape: Shape) -> dict[str, float]:
    """The numbers by their own names, or by dotted paths where two parts share a name."""
    paths = numbers(shape)
    leaves = [path.rpartition(".")[2] for path in paths]
    short = len(set(leaves)) == len(leaves)
    return {leaf if short else path: paths[path] for leaf, path in zip(leaves, paths, strict=True)}
