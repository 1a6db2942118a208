"""Views of a shape: its drift, its objective's value, and where its pull vanishes.

Everything here works on a *pull*: m as a function of log-ratio and advantage, on NumPy arrays in
float64. A shape's pull is `pull_of(shape)`; a foreign loss has one too.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from klip.errors import KlipError
from klip.shapes import CONTEXT_FIELDS, Context, Shape

Floats = NDArray[np.float64]
Pull = Callable[[Floats, Floats], Floats]
Equilibrium = float | Literal["none", "decays"]

OURS = Path(__file__).resolve().parents[1]
FAR = 20.0  # an equilibrium is searched up to this |log-ratio|
VANISHED = 1e-3  # a pull below this share of the advantage counts as decayed


@dataclass(frozen=True)
class Anchor:
    """What m is at w = 1, where it should be A."""

    outcome: Literal["exact", "gauge", "scale", "broken"]
    """exact: A; gauge: A + c (no pull in expectation); scale: c*A; broken: anything else"""
    constant: float
    """the c of a gauge or a scale; 1 if exact, 0 if broken"""

    @property
    def flipped(self) -> bool:
        """Whether m has the opposite sign of A."""
        return self.outcome == "scale" and self.constant < 0


def anchor(pull: Pull, tolerance: float) -> Anchor:
    """Whether m(1, A) is A, A + c, c*A or something else, to `tolerance` of max(1, |m|).

    >>> from klip.shapes import PSPO, KLk1
    >>> [anchor(pull_of(shape), 1e-7).outcome for shape in (PSPO(alpha=0.1), KLk1())]
    ['scale', 'gauge']
    """
    a = np.array([-2.0, -1.0, -0.5, -0.3, 0.3, 0.5, 1.0, 2.0])
    m = pull(np.zeros_like(a), a)
    offset, scale = m - a, float(np.sum(m * a) / np.sum(a * a))

    def small(x: Floats) -> bool:
        return bool(np.all(np.abs(x) <= tolerance * np.maximum(1.0, np.abs(m))))

    if not np.all(np.isfinite(m)):
        return Anchor("broken", 0.0)
    if small(offset):
        return Anchor("exact", 1.0)
    if small(offset - offset.mean()):
        return Anchor("gauge", float(offset.mean()))
    if scale and small(m - scale * a):
        return Anchor("scale", scale)
    return Anchor("broken", 0.0)


def tangent_slopes(pull: Pull, advantages: Floats, tolerance: float) -> Floats:
    """m(1, A) at each advantage where it is a line a A + c with a > 0, else A itself.

    This is the anchor modulo scale and gauge: neither changes what an update prefers.

    >>> from klip.shapes import PSPO, KLk1
    >>> [tangent_slopes(pull_of(s), np.array([2.0]), 1e-7).round(6) for s in (PSPO(), KLk1())]
    [array([1.8]), array([3.])]
    """
    known = np.array([-2.0, -1.0, -0.5, -0.3, 0.3, 0.5, 1.0, 2.0])
    m = pull(np.zeros_like(known), known)
    scale, gauge = np.polyfit(known, m, 1) if np.all(np.isfinite(m)) else (0.0, 0.0)
    straight = np.abs(m - scale * known - gauge) <= tolerance * np.maximum(1.0, np.abs(m))
    return scale * advantages + gauge if scale > 0 and straight.all() else advantages


def reference_context(
    shape: Shape,
    log_ratio: Floats,
    advantage: Floats,
    overrides: Mapping[str, Any] | None = None,
) -> Context:
    """A plausible context for every field that `shape` needs, so that it can be looked at.

    The state's KL is (log w)^2 / 2, which the ratio alone suggests; the old probability is 1/2; the
    sample is fresh and in the middle of its sequence; sampler, start and reference are the old
    policy, so that the whole batch counts. `overrides` replaces these with numbers or arrays by
    field name.
    """
    plausible: dict[str, Any] = {
        "old_log_prob": np.log(0.5),
        "kl": np.square(log_ratio) / 2,
        "entropy": 1.0,
        "position": 50.0,
        "length": 101.0,
        "age": 0.0,
        "mask": 1.0,
        "sequence": 0,
        "group": 0,
        "behaviour_log_ratio": 0.0,
        "proximal_log_ratio": 0.0,
        "reference_log_ratio": log_ratio,
        "reward": advantage,
        "step": 0.0,
        "progress": 0.0,
        "effective_size": 1.0,
        "deviation": 0.0,
        "second_moment": 0.0,
    }
    overrides = overrides or {}
    for name in overrides:
        if name not in CONTEXT_FIELDS:
            raise KlipError(f"no context has a field '{name}'; there are {', '.join(plausible)}")
    return Context(**{name: overrides.get(name, plausible[name]) for name in shape.needs})


@contextlib.contextmanager
def raised_by(subject: object) -> Iterator[None]:
    """Turn what a user's shape or loss raises into a line that names it.

    >>> with raised_by("mine.py:Mine(scale=0.3)"):
    ...     1 / 0
    Traceback (most recent call last):
    klip.errors.KlipError: mine.py:Mine(scale=0.3) raises ZeroDivisionError: division by zero ...
    """
    try:
        yield
    except KlipError:
        raise
    except Exception as error:
        words = " ".join(str(error).split())[:300]
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [f for f in frames if OURS not in Path(f.filename).resolve().parents]
        where = f" ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})" if theirs else ""
        raise KlipError(
            f"{subject} raises {type(error).__name__}: {words}{where}; mend its code"
        ) from error


def pull_of(shape: Shape, context: Mapping[str, Any] | None = None) -> Pull:
    """A shape's multiplier as a function of log-ratio and advantage alone.

    `context` overrides fields of `reference_context`.
    """

    def pull(log_ratio: Floats, advantage: Floats) -> Floats:
        log_ratio, advantage = np.broadcast_arrays(
            np.asarray(log_ratio, dtype=np.float64), np.asarray(advantage, dtype=np.float64)
        )
        known = reference_context(shape, log_ratio, advantage, context)
        m = shape.multiplier(log_ratio, advantage, known)
        if m is None:
            raise KlipError(f"{shape} returns None for its multiplier; return an array")
        return np.asarray(m, dtype=np.float64)

    return pull


def jumps(
    pull: Pull, advantage: float, start: float, end: float, least: float = 1e-7
) -> list[tuple[float, float]]:
    """The (log-ratio, size) of every discontinuity of `least` of m between two log-ratios.

    Each cell of a grid is divided towards its larger change; a change that is left in the end is a
    jump. Cells are not halved, nor divided to the last bit: a shape may have a value of its own in
    the middle of a jump, as sgn(w - 1) has at w = 1, and one jump would look like two.
    """
    grid = np.linspace(start, end, 2002)
    left, right = grid[:-1], grid[1:]
    a = np.asarray(advantage)
    at_left, at_right = pull(left, a), pull(right, a)
    floor = least * (1 + np.abs(at_left) + np.abs(at_right))
    keep = np.abs(at_right - at_left) > floor
    left, right, at_left, at_right = left[keep], right[keep], at_left[keep], at_right[keep]
    for _ in range(60):
        middle = left + 0.47 * (right - left)
        at_middle = pull(middle, a)
        go_left = np.abs(at_middle - at_left) >= np.abs(at_right - at_middle)
        left, right = np.where(go_left, left, middle), np.where(go_left, middle, right)
        at_left = np.where(go_left, at_left, at_middle)
        at_right = np.where(go_left, at_middle, at_right)
        keep = np.abs(at_right - at_left) > least * (1 + np.abs(at_left) + np.abs(at_right))
        left, right, at_left, at_right = left[keep], right[keep], at_left[keep], at_right[keep]
        if not left.size or (right - left).max() <= 1e-13:
            break
    return [
        (float(place), float(size))
        for place, size in zip((left + right) / 2, at_right - at_left, strict=True)
    ]


def integral(pull: Pull, log_ratio: Floats, advantage: float) -> Floats:
    """The integral of m over log w from 0 to each of `log_ratio`, in its shape."""
    ends = np.asarray(log_ratio, dtype=np.float64).ravel()
    start, end = min(0.0, ends.min()), max(0.0, ends.max())
    if start == end:
        return np.zeros(np.shape(log_ratio))
    breaks = [place for place, _ in jumps(pull, advantage, start, end)]
    knots = np.unique(np.concatenate([np.linspace(start, end, 257), breaks, ends, [0.0]]))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = np.diff(knots)[:, None] / 2
    x = (knots[:-1, None] + knots[1:, None]) / 2 + half * nodes
    pieces = (half * weights * pull(x, np.asarray(advantage))).sum(axis=1)
    total = np.concatenate([[0.0], np.cumsum(pieces)])
    total -= total[np.searchsorted(knots, 0.0)]
    return total[np.searchsorted(knots, ends)].reshape(np.shape(log_ratio))


def objective_value(
    shape: Shape, log_ratio: Floats, advantage: Floats, context: Mapping[str, Any] | None = None
) -> Floats:
    """J(w, A) = A + the integral of m over log w: the objective that has this gradient.

    Any function of one variable has an integral, so every shape has an objective. PPO-Clip's is
    the `min`. Log-ratios and advantages are arrays that broadcast to one another, and the
    result has their common shape; `context` is as in `reference_context`.

    >>> from klip.shapes import Clip
    >>> objective_value(Clip(), np.log([1.1, 1.5]), np.array([1.0, 1.0])).round(6)
    array([1.1, 1.2])
    """
    pull = pull_of(shape, context)
    return _by_advantage(lambda x, a: a + integral(pull, x, a), log_ratio, advantage)


def drift(
    shape: Shape, log_ratio: Floats, advantage: Floats, context: Mapping[str, Any] | None = None
) -> Floats:
    """D(w, A) = wA - J: what the shape subtracts from the unconstrained surrogate.

    The arguments are those of `objective_value`.

    >>> from klip.shapes import Clip
    >>> drift(Clip(), np.log([1.1, 1.5]), np.array([1.0, 1.0])).round(6) + 0.0
    array([0. , 0.3])
    """
    value = objective_value(shape, log_ratio, advantage, context)
    return np.asarray(np.exp(log_ratio) * advantage - value)


def _by_advantage(
    view: Callable[[Floats, float], Floats], log_ratio: Floats, advantage: Floats
) -> Floats:
    """`view` applied for each distinct advantage, in the arrays' common shape."""
    x, a = np.broadcast_arrays(
        np.asarray(log_ratio, dtype=np.float64), np.asarray(advantage, dtype=np.float64)
    )
    out = np.empty(x.shape)
    for value in np.unique(a):
        chosen = a == value
        out[chosen] = view(x[chosen], float(value))
    return out


def equilibrium(subject: Shape | Pull, advantage: float) -> Equilibrium:
    """w*: the first ratio, on the side to which the advantage pushes, at which the pull is gone.

    It is "decays" if the pull only fades away, and "none" if it does not. On the lower
    side the pull is measured by m/w, since w itself goes to 0 there. `advantage` must not be 0.

    >>> from klip.shapes import Clip, KLReverseK3, ImportanceSampling
    >>> [equilibrium(s, 1.0) for s in (Clip(), KLReverseK3(), ImportanceSampling())]
    [1.2, 2.718281828459, 'none']
    """
    pull = pull_of(subject) if isinstance(subject, Shape) else subject
    if advantage == 0:
        raise KlipError("an equilibrium needs an advantage other than 0: 0 pushes nowhere")
    side = np.sign(advantage)

    def outward(distance: Floats) -> Floats:
        return np.asarray(side * pull(side * distance, np.asarray(advantage)))

    distance = first_zero(outward, FAR)
    if distance is None:
        last = outward(np.asarray(FAR)) * (1.0 if side > 0 else np.exp(FAR))
        return "decays" if last < VANISHED * abs(advantage) else "none"
    return float(np.round(np.exp(side * distance), 12))


def first_zero(function: Callable[[Floats], Floats], limit: float) -> float | None:
    """The smallest x in [0, limit] at which `function` is no longer positive, or None.

    A function that fades until it underflows has none: it is tiny already just before.
    """
    grid = np.linspace(0.0, limit, 4001)
    gone = np.flatnonzero(function(grid) <= 0)
    if not gone.size:
        return None
    left, right = grid[max(gone[0] - 1, 0)], grid[gone[0]]
    for _ in range(60):
        middle = (left + right) / 2
        if function(np.asarray(middle)) <= 0:
            right = middle
        else:
            left = middle
    faded = right > 0 and function(np.asarray(right * (1 - 1e-3))) < 1e-12
    return None if faded else float(right)
