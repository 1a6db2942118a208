"""Which catalogue shape a pull m(w, A) is, and with which parameters.

Jumps are located first, to 1e-12 in log w: they give the radius of a hard clip exactly. The other
parameters come from a search along each coordinate and then least squares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
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
from klip.theory.blackbox import OLD
from klip.theory.samples import SampledPull, points_only
from klip.theory.views import Floats

FEATURES = 16
"""How many jumps, and how many bends, may suggest values of a parameter."""

TOLERANCE = 1e-6
"""The largest |difference| / max(1, |m|) at which two pulls count as the same."""


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
    twist: str = ""
    """What makes the pull of the shape, if one thing does: "times 2", "minus kl-k3(b=0.1)"."""
    spelling: str = ""
    """How to write it, where the shape's own spelling does not say it all."""

    def __str__(self) -> str:
        return self.spelling or (str(self.shape) if self.shape else self.name)


def match(samples: SampledPull, tolerance: float = TOLERANCE) -> Match:
    """The catalogue shape nearest to the samples; of exact ones, the plainest."""
    if samples.pull.size == 0 or not np.any(samples.pull):
        return Match(None, "none", {}, 0.0, False, (1.0, 0.0), [])
    candidates = _candidates(samples.by_old)
    fits: list[_Fit] = []
    for needy in (True, False):  # shapes that use the old log-prob go first
        if not any(fit.exact for fit in fits):
            shapes = [shape for shape in candidates if bool(shape.needs) == needy]
            fits += [_fit(shape, samples, tolerance) for shape in shapes]
    if not any(fit.exact for fit in fits):
        fits += _sums(candidates, samples, tolerance)
    exact = [fit for fit in fits if fit.exact]
    best = min(exact, key=lambda f: f.odd) if exact else min(fits, key=lambda f: f.distance)
    same = [f.shape for f in exact if f is not best and _same(f.shape, best.shape)]
    return compare(best.shape, samples, best.exact, [str(shape) for shape in same])


def compare(
    shape: Shape, samples: SampledPull, exact: bool = False, equivalents: Iterable[str] = ()
) -> Match:
    """The match that a shape is for the samples, with its largest difference from them."""
    difference = _difference(shape, samples)
    worst = int(np.argmax(difference))
    where = (float(np.exp(samples.log_ratio[worst])), float(samples.advantage[worst]))
    largest = float(difference[worst])
    named = _name(shape), _parameters(shape)
    return Match(shape, *named, largest, exact, where, list(equivalents))


@dataclass(frozen=True)
class _Fit:
    shape: Shape
    largest: float
    distance: float
    exact: bool
    odd: int  # parameters that are not the default


def _candidates(by_old: bool) -> list[Shape]:
    """The shapes that ratio, advantage and, if `by_old`, old log-probability determine."""
    known = frozenset({"old_log_prob"} if by_old else ())
    context = Context(old_log_prob=OLD) if by_old else NO_CONTEXT
    shapes = [cls() for cls in catalogue().values()]
    determined = [shape for shape in shapes if shape.needs <= known]
    return [shape for shape in determined if shape.kl_weight(0.0, 1.0, context) is None]


def _sums(candidates: list[Shape], samples: SampledPull, tolerance: float) -> list[_Fit]:
    """Fits of shape + penalty: at A = 0 the penalty stands alone, is fitted and then subtracted."""
    fits = []
    for penalty in _penalties(candidates, samples, tolerance):
        beta = penalty.beta(samples.log_ratio, samples.advantage, samples.context)
        rest = samples.changed(samples.pull - beta)
        for shape in (shape for shape in candidates if not isinstance(shape, Penalty)):
            base = _fit(shape, rest, tolerance)
            fits.append(_judge(base.shape + penalty, base.odd + 1, samples, tolerance))
    return fits


def _penalties(
    candidates: list[Shape], samples: SampledPull, tolerance: float
) -> Iterator[Penalty]:
    """The penalties that are the whole pull at A = 0."""
    idle = samples.at(samples.advantage == 0)
    if not np.any(np.abs(idle.pull) > tolerance):
        return
    for candidate in (shape for shape in candidates if isinstance(shape, Penalty)):
        fit = _fit(candidate, idle, tolerance)
        if fit.exact and isinstance(fit.shape, Penalty):
            yield fit.shape


def reversed_penalty(samples: SampledPull, tolerance: float = TOLERANCE) -> Penalty | None:
    """The penalty that is the pull at A = 0 but for its sign, or None."""
    turned = samples.changed(-samples.pull)
    return next(_penalties(_candidates(samples.by_old), turned, tolerance), None)


def _fit(default: Shape, samples: SampledPull, tolerance: float) -> _Fit:
    """The shape with the parameters that bring it nearest to the samples."""
    few = samples.at(_thin(samples))
    names, start, least = _coordinates(default)
    theta = start

    def misfit(row: Floats) -> float:
        return float(_misfit(_residuals(default, names, row[None], few))[0])

    for _ in range(3 if names else 0):
        theta = _search(default, names, theta, least, few)
        if misfit(theta) < tolerance / 10:
            break
        for free in (~_pinned(theta, samples.jumps), np.full(len(names), True)):
            if free.any() and misfit(theta) >= tolerance / 10:
                theta = _polish(default, names, theta, least, few, free)
        if misfit(theta) > 0.03:
            break
    if isinstance(default, Band) and tolerance / 10 <= misfit(theta) < 0.03:
        theta = min([theta, *_equal_sides(default, names, theta, least, few)], key=misfit)
    shape = _tidy(default, names, theta, samples, tolerance)
    plain = numbers(default)
    odd = sum(plain.get(key) != value for key, value in numbers(shape).items())
    return _judge(shape, odd, samples, tolerance)


def _judge(shape: Shape, odd: int, samples: SampledPull, tolerance: float) -> _Fit:
    difference = _difference(shape, samples)
    largest = float(difference.max())
    distance = float(np.sqrt(np.mean(np.minimum(difference, 10.0) ** 2)))
    return _Fit(shape, largest, distance, largest <= tolerance, odd)


def _thin(samples: SampledPull) -> Floats:
    """A mask of every third log-ratio of the grid and of all samples between its points, `[P]`."""
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


def _residuals(shape: Shape, names: list[str], thetas: Floats, samples: SampledPull) -> Floats:
    """(shape - pull) / max(1, |pull|) for rows of parameters: `[G, P]`."""
    new: dict[str, Any] = {name: thetas[:, i, None] for i, name in enumerate(names)}
    if isinstance(shape, Band):
        new["eps"] = None
    varied = with_numbers(shape, new)
    with np.errstate(all="ignore"):
        m = varied.multiplier(samples.log_ratio[None], samples.advantage[None], samples.context)
        r = (m - samples.pull) / np.maximum(1.0, np.abs(samples.pull))
    out: Floats = np.nan_to_num(r, nan=1e6, posinf=1e6, neginf=-1e6)
    return out


def _misfit(residuals: Floats) -> Floats:
    """The mean |residual| of each row, in which a sample counts for at most 1, `[G]`."""
    out: Floats = np.minimum(np.abs(residuals), 1.0).mean(axis=1)
    return out


def _search(
    shape: Shape, names: list[str], theta: Floats, least: Floats, samples: SampledPull
) -> Floats:
    """The best value of each parameter in turn, among suggestions of jumps and a coarse range."""
    for _ in range(2):
        for i in range(len(names)):
            values = _guesses(theta, i, least[i], samples)
            if shape.needs:
                crossings = _crossings(shape, names, theta, i, samples)
                values = np.concatenate([values, crossings[crossings >= least[i]]])
            rows = np.repeat(theta[None], values.size, axis=0)
            rows[:, i] = values
            order = np.argsort(_misfit(_residuals(shape, names, rows, samples)), kind="stable")
            theta = next(row for row in rows[order] if _build(shape, names, row))
    return theta


def _guesses(theta: Floats, i: int, least: float, samples: SampledPull) -> Floats:
    """The value, its multiples, the other parameters, and what jumps and bends suggest."""
    now = theta[i]
    places = [samples.jumps[:FEATURES, 0], np.unique(samples.bends)[:FEATURES]]
    w = np.exp(np.concatenate(places))
    coarse = (now if now > 0 else 0.1) * np.geomspace(1 / 32, 32, 31)
    apart = np.abs(w[:, None] - w).ravel()
    parts = [theta, coarse, np.abs(w - 1), w, 1 / w, 1 / w - 1, apart[apart < 1], np.zeros(1)]
    every = np.unique(np.concatenate(parts))
    return np.concatenate([[now], every[every >= least]])


def _crossings(
    shape: Shape, names: list[str], theta: Floats, i: int, samples: SampledPull
) -> Floats:
    """Values of a parameter at which the shape itself jumps where the pull does."""
    values = []
    for jump in samples.jumps[:FEATURES]:
        here = points_only(jump[None])
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
            values.append((low + high) / 2)
    return np.array(values)


def _pinned(theta: Floats, jumps: Floats) -> npt.NDArray[np.bool_]:
    """Which parameters lie at a jump: least squares could only blur them."""
    w = np.exp(jumps[:, 0])
    places = np.concatenate([np.abs(w - 1), w, 1 / w, 1 / w - 1])
    near: npt.NDArray[np.bool_] = np.any(np.abs(theta[:, None] - places) < 1e-9, axis=1)
    return near


def _polish(
    shape: Shape,
    names: list[str],
    theta: Floats,
    least: Floats,
    samples: SampledPull,
    free: npt.NDArray[np.bool_],
) -> Floats:
    """The parameters after least squares from `theta` in the free ones."""

    def full(x: Floats) -> Floats:
        rows = np.tile(theta, (*x.shape[:-1], 1))
        rows[..., free] = x
        return rows

    def residuals(x: Floats) -> Floats:
        rows = np.clip(_residuals(shape, names, np.atleast_2d(full(x)), samples), -1e3, 1e3)
        return rows[0] if x.ndim == 1 else rows

    def slopes(x: Floats) -> Floats:
        steps = 1e-7 * np.maximum(np.abs(x), 1e-2)
        change: Floats = ((residuals(x + np.diag(steps)) - residuals(x)) / steps[:, None]).T
        return change

    def descend(x: Floats, precision: float, steps: int) -> Any:
        bounds, scale = (least[free], np.inf), np.maximum(np.abs(x), 0.01)
        ends = dict.fromkeys(("ftol", "xtol", "gtol"), precision)
        return least_squares(residuals, x, slopes, bounds, x_scale=scale, max_nfev=steps, **ends)

    solution = descend(theta[free], 1e-3, 10)
    if solution.cost < 1e-3 * samples.pull.size:  # it may be this shape
        solution = descend(solution.x, 1e-15, 30)
    polished = full(solution.x).ravel()
    if _build(shape, names, polished) is None:
        return theta
    both = np.stack([theta, polished])
    better: Floats = both[np.argmin(_misfit(_residuals(shape, names, both, samples)))]
    return better


def _equal_sides(
    shape: Shape, names: list[str], theta: Floats, least: Floats, samples: SampledPull
) -> list[Floats]:
    """The parameters with one side's radius on both sides, and the others fitted to it."""
    others = np.array([name not in ("low", "high") for name in names])
    trials = [np.where(others, theta, theta[side]) for side in (0, 1)]
    if not others.any():
        return trials
    return [_polish(shape, names, trial, least, samples, others) for trial in trials]


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
    default: Shape, names: list[str], theta: Floats, samples: SampledPull, tolerance: float
) -> Shape:
    """The shape with default or short numbers wherever they fit as well."""
    _, start, _ = _coordinates(default)

    def largest(row: Floats) -> float:
        return float(np.abs(_residuals(default, names, row[None], samples)).max())

    reached = largest(theta) if names else 0.0
    allowed = max(2 * reached, 1e-8) if reached < tolerance else reached
    for i in range(len(names)):
        plain = (start[i], 0.0, 1.0)
        for value in (*plain, *(round(theta[i], digits) for digits in (2, 3, 4, 6, 9, 12))):
            trial = theta.copy()
            trial[i] = value
            near = value in plain or abs(value - theta[i]) < tolerance * max(1.0, abs(value))
            if near and _build(default, names, trial) and largest(trial) <= allowed:
                theta = trial
                break
    return _build(default, names, theta) or default


def _difference(shape: Shape, samples: SampledPull) -> Floats:
    with np.errstate(all="ignore"):
        m = shape.multiplier(samples.log_ratio, samples.advantage, samples.context)
        off = np.abs(m - samples.pull) / np.maximum(1.0, np.abs(samples.pull))
    out: Floats = np.nan_to_num(off, nan=np.inf)
    return out


def _same(one: Shape, other: Shape) -> bool:
    """Whether two shapes agree far beyond the samples too, and not just in a limit."""
    if any(0 < abs(value) < 1e-5 or abs(value) > 1e5 for value in numbers(one).values()):
        return False
    x, a = np.meshgrid(np.linspace(-19.0, 19.0, 381), [-3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0])
    wide = points_only(np.column_stack([x.ravel(), a.ravel(), np.full(x.size, -20.0)]))
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
