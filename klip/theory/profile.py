"""The profile of a trust region: not whether it passes, but which properties it has.

Unless a property says otherwise, it is measured at A = +1 and A = -1, over w from 0.01 to 100.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from klip.shapes import (
    REFERENCE_BAND,
    Clip,
    Context,
    ImportanceSampling,
    Region,
    Shape,
    derivative,
    parse,
    with_numbers,
)
from klip.theory.partition import edges_of, split
from klip.theory.views import (
    Anchor,
    Equilibrium,
    Floats,
    Pull,
    anchor,
    equilibrium,
    first_zero,
    integral,
    jumps,
    pull_of,
    raised_by,
    reference_context,
    tangent_slopes,
)

NEAR, FAR = np.log(0.01), np.log(100.0)
SIGNS = (1.0, -1.0)
ADVANTAGES = (1.0, -1.0, 0.3, -0.3, 2.0, -2.0)
EQUILIBRIUM_AT = (1.0, -1.0, 0.3, 2.0)
TIGHT = 1e-7  # relative; a recovered pull carries its loss's own rounding


@dataclass(frozen=True)
class Jump:
    """A discontinuity of m."""

    ratio: float
    advantage: float
    size: float


@dataclass(frozen=True)
class Place:
    """A point at which something happens to m."""

    advantage: float
    ratio: float


def _property(meaning: str) -> Any:
    return field(metadata={"meaning": meaning})


@dataclass(frozen=True)
class Profile:
    """The properties of one trust region."""

    anchor: Anchor = _property("what m is at w = 1: exact A, gauge A + c, scale c*A, or broken")
    restoring: bool = _property(
        "beta (w-1) <= 0: the coefficient never pushes outwards; at |A| = 0.3, 1 and 2"
    )
    drift_nonnegative: bool = _property(
        "D >= 0 modulo scale and gauge: J is never above its tangent; at |A| = 0.3, 1 and 2"
    )
    sign: Literal["keeps", "zero", "reverses"] = _property(
        "whether m keeps the sign of A, vanishes somewhere, or turns against it (rollback)"
    )
    sign_changes: tuple[Place, ...] = _property(
        "where m first vanishes or turns, going out from w = 1"
    )
    sup_positive: float = _property("sup |m| at A = +1")
    sup_negative: float = _property("sup |m| at A = -1")
    bounded_positive: bool = _property(
        "whether that supremum stays finite as w goes to 0 and to infinity"
    )
    bounded_negative: bool = _property("the same at A = -1")
    max_jump: float = _property("largest discontinuity of m")
    jumps: tuple[Jump, ...] = _property("every discontinuity of m")
    kinks: tuple[Place, ...] = _property("where m is continuous and its slope is not")
    redescending_above: bool = _property("m -> 0 as w -> infinity, at A = +1")
    redescending_below: bool = _property("m/w -> 0 as w -> 0, at A = -1")
    equilibrium: dict[str, Equilibrium] = _property("w* by advantage")
    homogeneous: bool = _property(
        "m(w, cA) = c m(w, A): its parameters do not depend on how advantages are scaled"
    )
    zero_at_zero: bool = _property("m(w, 0) = 0: a sample without advantage does not pull")
    pass_fidelity: bool = _property("m = wA on the pass side: what leads back is left alone")
    limits: dict[str, bool] | None = _property(
        "for a shape with a softness: does softness 0 give PPO-Clip, infinity the unconstrained"
    )
    finite: dict[str, bool] = _property("no NaN and no infinity to log-ratio +-50, by dtype")
    conformance: float | None = _property(
        "largest relative difference of m from autodiff of the published objective, if any"
    )

    @staticmethod
    def meanings() -> dict[str, str]:
        """What each property says."""
        return {f.name: f.metadata["meaning"] for f in dataclasses.fields(Profile)}

    def as_dict(self) -> dict[str, Any]:
        """The profile as plain data, ready for JSON."""
        return dataclasses.asdict(self)


def profile(subject: str | Region | Pull, context: Mapping[str, Any] | None = None) -> Profile:
    """The properties of a shape, or of any pull m(log_ratio, advantage).

    >>> clip = profile(Clip())
    >>> clip.anchor.outcome, clip.restoring, clip.max_jump, clip.equilibrium["1"]
    ('exact', True, 1.2, 1.2)

    Args:
        subject: a shape or its spelling, a controller (as it starts), or a pull
        context: numbers for context fields by name, such as {"age": 4.0}; those that the shape
            needs and that are not given have typical values

    Returns:
        each property by its name, and all as plain data by `as_dict()`

    """
    region = parse(subject) if isinstance(subject, str) else subject
    if not isinstance(region, Region):
        return profile_of_pull(region)
    with raised_by(region):
        return measured(pull_of(region.initial, context), region.initial, context)


def profile_of_pull(pull: Pull, error: float = 0.0) -> Profile:
    """The properties of a pull; `error` is its relative error, if it is computed in few digits."""
    return measured(pull, None, None, error=error)


def measured(
    pull: Pull,
    shape: Shape | None,
    context: Mapping[str, Any] | None = None,
    dtypes: tuple[str, ...] = ("float32", "bfloat16"),
    error: float = 0.0,
) -> Profile:
    """The properties of a pull, and of the shape that it is of, if any.

    `dtypes` are those besides float64 in which the shape should stay finite; JAX compiles for
    each, which takes seconds. `error` is the relative error of the pull.
    """
    tight = max(TIGHT, error)
    breaks = {a: jumps(pull, a, NEAR, FAR, tight) for a in SIGNS}
    bends = {a: [] if error else _kinks(pull, a, breaks[a]) for a in SIGNS}
    edges = [x for a in SIGNS for x, _ in breaks[a]] + [x for a in SIGNS for x in bends[a]]
    grid = np.unique(np.concatenate([np.linspace(NEAR, FAR, 4001), *_around(edges)]))
    m = {a: pull(grid, np.asarray(a)) for a in SIGNS}
    all_jumps = tuple(
        Jump(_round(np.exp(x)), a, _round(abs(size))) for a in SIGNS for x, size in breaks[a]
    )
    sign, changes = _sign(pull, grid, m)
    tail = {a: np.abs(pull(np.array([-20.0, -10.0, 10.0, 20.0]), np.asarray(a))) for a in SIGNS}
    return Profile(
        anchor=_anchor(pull, tight),
        restoring=all(_restoring(pull, grid, a, tight) for a in ADVANTAGES),
        drift_nonnegative=all(_drift_nonnegative(pull, grid, a, tight) for a in ADVANTAGES),
        sign=sign,
        sign_changes=changes,
        sup_positive=_round(np.abs(m[1.0]).max()),
        sup_negative=_round(np.abs(m[-1.0]).max()),
        bounded_positive=_bounded(tail[1.0]),
        bounded_negative=_bounded(tail[-1.0]),
        max_jump=max((j.size for j in all_jumps), default=0.0),
        jumps=all_jumps,
        kinks=tuple(Place(a, _round(np.exp(x), 5)) for a in SIGNS for x in bends[a]),
        redescending_above=bool(tail[1.0][-1] < 1e-3),
        redescending_below=bool(tail[-1.0][0] * np.exp(20.0) < 1e-3),
        equilibrium={f"{a:g}": equilibrium(pull, a) for a in EQUILIBRIUM_AT},
        homogeneous=_homogeneous(pull, grid, m, tight),
        zero_at_zero=bool(np.all(np.abs(pull(grid, np.asarray(0.0))) <= tight)),
        pass_fidelity=all(_pass_fidelity(shape, grid, m[a], a, context, tight) for a in SIGNS),
        limits=None if shape is None else _limits(shape, grid, context),
        finite=_finite(pull, shape, context, dtypes),
        conformance=None if shape is None else _conformance(shape, grid, context),
    )


def _round(x: Any, digits: int = 10) -> float:
    return float(f"{float(x):.{digits}g}")


def _around(places: list[float]) -> list[Floats]:
    """Grid points close to each place on either side, so that one-sided limits show."""
    return [np.asarray(places) + shift for shift in (-1e-5, -1e-12, 1e-12, 1e-5)]


def _anchor(pull: Pull, tight: float) -> Anchor:
    here = anchor(pull, tight)
    return Anchor(here.outcome, _round(here.constant))


def _restoring(pull: Pull, grid: Floats, a: float, tight: float) -> bool:
    m, unconstrained = pull(grid, np.asarray(a)), np.exp(grid) * a
    outward = (m - unconstrained) * np.sign(grid)
    return bool(np.all(outward <= tight * (np.abs(m) + np.abs(unconstrained))))


def _drift_nonnegative(pull: Pull, grid: Floats, a: float, tight: float) -> bool:
    slope = tangent_slopes(pull, np.array([a]), tight)[0]
    unconstrained = np.expm1(grid) * slope
    drift = unconstrained - integral(pull, grid, a)
    return bool(np.all(drift >= -tight * (1 + np.abs(unconstrained))))


def _sign(
    pull: Pull, grid: Floats, m: dict[float, Floats]
) -> tuple[Literal["keeps", "zero", "reverses"], tuple[Place, ...]]:
    reverses = any(np.any(m[a] * a < -1e-14 * np.exp(grid)) for a in SIGNS)
    changes = []
    for a in SIGNS:
        for side in SIGNS:
            distance = first_zero(lambda x, a=a, side=side: a * pull(side * x, np.asarray(a)), FAR)  # type: ignore[misc]
            if distance is not None:
                changes.append(Place(a, _round(np.exp(side * distance))))
    return ("reverses" if reverses else "zero" if changes else "keeps"), tuple(
        dict.fromkeys(changes)
    )


def _bounded(tail: Floats) -> bool:
    """Whether |m| no longer grows between |log w| = 10 and 20."""
    below, nearer_below, nearer_above, above = tail
    return bool(below <= 1.05 * nearer_below + 0.1 and above <= 1.05 * nearer_above + 0.1)


def _kinks(pull: Pull, a: float, breaks: list[tuple[float, float]]) -> list[float]:
    """Log-ratios where the slope jumps, by halving cells towards the larger change of slope."""
    grid = np.linspace(NEAR, FAR, 2002)
    left, right = grid[:-1], grid[1:]
    for place, _ in breaks:
        clear = (right < place - 1e-9) | (left > place + 1e-9)
        left, right = left[clear], right[clear]

    def bend(start: Floats, end: Floats) -> tuple[Floats, Floats]:
        step = (end - start) / 4
        x = np.stack([start, start + step, end - step, end])
        at = pull(x, np.asarray(a))
        slopes = (at[1] - at[0]) / step, (at[3] - at[2]) / step
        scale = 1 + np.abs(slopes[0]) + np.abs(slopes[1])
        return np.abs(slopes[1] - slopes[0]), scale

    for _ in range(9):
        middle = (left + right) / 2
        lower, upper = bend(left, middle)[0], bend(middle, right)[0]
        across = bend((left + middle) / 2, (middle + right) / 2)[0]
        best = np.argmax(np.stack([lower, across, upper]), axis=0)
        starts = np.stack([left, (left + middle) / 2, middle])
        ends = np.stack([middle, (middle + right) / 2, right])
        rows = np.arange(best.size)
        left, right = starts[best, rows], ends[best, rows]
    change, scale = bend(left, right)
    places: list[float] = []
    for place in (left + right)[change > 1e-2 * scale] / 2:
        if not places or place - places[-1] > 1e-3:
            places.append(float(place))
    return places


def _homogeneous(pull: Pull, grid: Floats, m: dict[float, Floats], tight: float) -> bool:
    return all(
        np.allclose(pull(grid, np.asarray(c * a)), c * m[a], rtol=tight, atol=tight)
        for a in SIGNS
        for c in (0.5, 3.0)
    )


def _edges(
    shape: Shape, grid: Floats, a: float, context: Mapping[str, Any] | None
) -> tuple[Any, Any]:
    return edges_of(shape, reference_context(shape, grid, np.full_like(grid, a), context), grid)


def _pass_fidelity(
    shape: Shape | None,
    grid: Floats,
    m: Floats,
    a: float,
    context: Mapping[str, Any] | None,
    tight: float,
) -> bool:
    edges = REFERENCE_BAND if shape is None else _edges(shape, grid, a, context)
    passing = split(np.exp(grid), np.full_like(grid, a), *edges).passing
    return bool(np.allclose(m[passing], np.exp(grid[passing]) * a, rtol=tight, atol=0))


def _limits(
    shape: Shape, grid: Floats, context: Mapping[str, Any] | None
) -> dict[str, bool] | None:
    soft = [f.name for f in dataclasses.fields(shape) if f.metadata.get("softness")]
    if not soft:
        return None
    bottom, top = _edges(shape, grid, 1.0, context)
    ends = {
        "sharp": (1e-9, Clip(low=1 - bottom, high=top - 1)),
        "wide": (1e9, ImportanceSampling()),
    }
    return {
        end: all(
            np.allclose(
                pull_of(with_numbers(shape, dict.fromkeys(soft, width)))(grid, np.asarray(a)),
                pull_of(limit)(grid, np.asarray(a)),
                rtol=1e-6,
                atol=1e-6,
            )
            for a in SIGNS
        )
        for end, (width, limit) in ends.items()
    }


def _finite(
    pull: Pull, shape: Shape | None, context: Mapping[str, Any] | None, dtypes: tuple[str, ...]
) -> dict[str, bool]:
    x, a = (v.ravel() for v in np.meshgrid(np.linspace(-50, 50, 101), [-2.0, -1.0, 0.0, 1.0, 2.0]))
    by_dtype = {"float64": bool(np.all(np.isfinite(pull(x, a))))}
    if shape is not None and dtypes:
        import jax.numpy as jnp

        known = reference_context(shape, x, a, context)
        for dtype in dtypes:
            given = {n: jnp.asarray(getattr(known, n), dtype=dtype) for n in known.given}
            m = shape.multiplier(
                jnp.asarray(x, dtype=dtype), jnp.asarray(a, dtype=dtype), Context(**given)
            )
            by_dtype[dtype] = bool(jnp.all(jnp.isfinite(m)))
    return by_dtype


def _conformance(shape: Shape, grid: Floats, context: Mapping[str, Any] | None) -> float | None:
    if not shape.published:
        return None
    worst = 0.0
    for a in SIGNS:
        advantage = np.full_like(grid, a)
        known = reference_context(shape, grid, advantage, context)
        slope = derivative(lambda x, a=advantage, k=known: shape.objective(x, a, k), grid)  # type: ignore[misc]
        m = shape.multiplier(grid, advantage, known)
        worst = max(worst, float(np.max(np.abs(slope - m) / (1 + np.abs(m)))))
    return worst
