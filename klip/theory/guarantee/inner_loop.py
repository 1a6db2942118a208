"""T3, where the inner loop ends: m/w equals a multiplier lambda on every action, not 0.

Probabilities sum to one, so a state's fixed point has G = m/w = lambda on each action that is
alive. If m reverses strictly beyond 1 - low and 1 + high for every advantage, the total variation
is at most max(high P+, low P-). Otherwise a linear programme finds the worst state: for a given
lambda it has three constraints (masses sum to 1, ratios average to 1, advantages to 0), so
three actions suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import linprog

from klip.shapes import Shape
from klip.theory.guarantee import recheck
from klip.theory.guarantee.ends import two_armed_end, where_it_ends
from klip.theory.guarantee.law import ADVANTAGES, REACH, Law, check, grid, line
from klip.theory.guarantee.verdict import Bandit, Verdict
from klip.theory.views import Floats

CLAIM: Final = "end of the loop"
RARE: Final = 0.01
"""The mass of the positive arm in the bandit of two arms that is printed."""
RARER: Final = 1e-3
ALL: Final = 0.99
"""A total variation beyond this counts as none that is bounded."""
TIGHT: Final = 1e-9
PACE: Final = (0.4, 2000)
"""Rate and steps of the simulation of two arms."""
CELL: Final = 6e-3
"""A little more than two cells of the grid of log-ratios."""
SIZES: Final = tuple(np.geomspace(0.1, 3.0, 12))
WORST: Final = np.array(sorted([-a for a in SIZES] + [0.0] + list(SIZES)))
"""The advantages among which the linear programme looks for the worst state."""


@dataclass(frozen=True)
class Edges:
    """The ratios beyond which m reverses: 1 - low and 1 + high."""

    low: float
    high: float


def inner_loop(shape: Shape, simulated: bool = True) -> Verdict:
    """The verdict on T3; a shape with context is looked at with its typical context.

    With `simulated`, the flow is run on the worst state that the linear programme finds, too.

    >>> from klip.shapes import SPO, Clip
    >>> inner_loop(SPO()).words[:28], inner_loop(Clip()).outcome
    ('TV <= max(0.2 P+, 0.2 P-), a', 'refuted')
    """
    law = Law(shape)
    check(law)
    _, c, _ = line(law.pull)
    arms, ends = two_arms(law, RARE)
    points = grid(law).size * len(ADVANTAGES)
    by_context = bool(shape.needs & {"kl", "old_log_prob"})
    edges = None if by_context else reversal(law, c)
    if edges is not None:
        words = (
            f"TV <= max({edges.high:.4g} P+, {edges.low:.4g} P-), and the two arms at "
            f"P+ = {RARE:g} end at w = {ends:.4g}"
        )
        figures = {"low": edges.low, "high": edges.high, "ratio": ends}
        return Verdict(CLAIM, "holds", words, points, bandit=arms, figures=figures)
    _, rarer = two_arms(law, RARER)
    if (1 - RARER * rarer) < 1 - ALL:
        whole = "all mass goes to the positive one, w = 1/P+"
        most = "hardly any mass stays on the negative one"
        words = f"two arms: {whole if ends == 1 / RARE else most}: w = {ends:.4g} at P+ = {RARE:g}"
        return _runs(law, arms, words, {"ratio": ends})
    killed = None if by_context else vanishing(law, c)
    if killed is not None:
        formula = f"1 + max({killed.high:.4g}, {killed.low:.4g} P-/P+)"
        words = (
            "states that stay wherever overshoot leaves them, since m is 0 beyond the edges; "
            f"two arms run to w = {formula}, {ends:.4g} at P+ = {RARE:g}"
        )
        return _runs(law, arms, words, {"low": killed.low, "high": killed.high, "ratio": ends})
    if by_context:
        words = f"with the true context, two arms at P+ = {RARE:g} end at w = {ends:.4g}"
        return Verdict(CLAIM, "measured", words, bandit=arms, figures={"ratio": ends})
    return _worst_state(law, ends, simulated)


def _runs(law: Law, arms: Bandit, words: str, figures: dict[str, float]) -> Verdict:
    """The refutation by two arms that run away, if both recomputations end where they should."""
    ratio, checked = recheck.runs_away(law.shape, law.context, arms, *PACE)
    figures |= {"simulated": float(f"{ratio:.6g}")}
    if not checked:
        rate, steps = PACE
        words = (
            f"{words} in the limit; w = {figures['simulated']:.4g} after {steps} steps of {rate}"
        )
        return Verdict(CLAIM, "measured", words, bandit=arms, figures=figures)
    return Verdict(CLAIM, "refuted", words, bandit=arms, checked=checked, figures=figures)


def reversal(law: Law, c: float) -> Edges | None:
    """The edges beyond which m - c w strictly turns against A, if they are the same for every A."""
    return _edges(law, c, strict=True)


def vanishing(law: Law, c: float) -> Edges | None:
    """The edges beyond which m - c w is 0, if they are the same for every A."""
    return _edges(law, c, strict=False)


def _edges(law: Law, c: float, strict: bool) -> Edges | None:
    x = grid(law)
    w = np.exp(x)
    found: dict[float, list[float]] = {1.0: [], -1.0: []}
    if strict and np.abs(law.pull(x, np.asarray(0.0)) / w - c).max() > TIGHT * (1 + abs(c)):
        return None
    for a in ADVANTAGES:
        if a == 0:
            continue
        side = 1.0 if a > 0 else -1.0
        signed = side * (law.pull(x, np.asarray(a)) / w - c) / abs(a)
        outward, signed = (x, signed) if a > 0 else (-x[::-1], signed[::-1])
        edge = _turns(outward, signed) if strict else _dies(outward, signed)
        if edge is None:
            return None
        found[side].append(_refined(law, c, side, float(a), edge, strict))
    if max(max(v) - min(v) for v in found.values()) > 1e-6:
        return None
    low, high = 1 - np.exp(-found[-1.0][0]), np.expm1(found[1.0][0])
    return Edges(float(f"{low:.9g}"), float(f"{high:.9g}"))


def _turns(outward: Floats, signed: Floats) -> float | None:
    """Where the pull turns against A for good; None unless it does so once, and with A till then.

    A pull that fades until it underflows has turned; one that drops to 0 has not.
    """
    beyond = signed < -TIGHT
    if not beyond.any():
        return None
    first = int(np.argmax(beyond))
    after, near = signed[first:], outward > outward[first] - CELL
    if not np.all(signed[~near] > TIGHT) or np.any(after > 0):
        return None
    gone = np.flatnonzero(after == 0)
    if gone.size and after[gone[0] - 1] < -1e-12:
        return None
    return float(outward[first])


def _dies(outward: Floats, signed: Floats) -> float | None:
    """Where the pull is gone for good on the side to which A pushes; None unless it is."""
    gone = (np.abs(signed) <= TIGHT) & (outward > 0)
    first = int(np.argmax(gone))
    before = signed[(outward >= 0) & (outward <= outward[first] - CELL)]
    fades = first > 0 and 0 < signed[first - 1] < 1e-6  # towards 0, which it never reaches
    if not gone[first:].all() or not gone.any() or np.any(before <= TIGHT) or fades:
        return None
    return float(outward[first])


def _refined(law: Law, c: float, side: float, a: float, outer: float, strict: bool) -> float:
    """The edge by bisection, as a distance in log-ratio from 1."""
    inner = outer - CELL
    for _ in range(60):
        middle = (inner + outer) / 2
        w = np.exp(side * middle)
        value = side * float(law.pull(np.asarray(side * middle), np.asarray(a)) / w - c) / abs(a)
        if value < (-TIGHT if strict else TIGHT):
            outer = middle
        else:
            inner = middle
    return outer


def two_arms(law: Law, mass: float) -> tuple[Bandit, float]:
    """The two-armed bandit with a positive arm of `mass`, and the ratio at which that arm ends."""
    a = (1.0, -mass / (1 - mass))
    end = two_armed_end(law, mass, a)
    new = min(mass * end, 1.0)
    return Bandit((mass, 1 - mass), a, (new, 1 - new)), end


# -- the worst state -------------------------------------------------------------------------------


def _worst_state(law: Law, ends: float, simulated: bool) -> Verdict:
    """The worst stationary state by linear programmes over lambda, and where it ends in fact."""
    at_one = law.pull(np.zeros_like(WORST), WORST)
    span = np.ptp(at_one)
    levels = np.union1d(
        np.round(at_one, 12), np.linspace(at_one.min() - span / 2, at_one.max(), 25)
    )
    table = _table(law)
    state = max((programme(law, level, table) for level in levels), key=_variation)
    if state is None:
        words = f"no stationary state was found; two arms at P+ = {RARE:g} end at w = {ends:.4g}"
        return Verdict(CLAIM, "measured", words, figures={"ratio": ends})
    words = f"the worst state of 0.1 <= |A| <= 3 has TV {state.variation:.4g} ({state}"
    figures = {"variation": state.variation, "ratio": ends}
    if simulated:
        new = where_it_ends(law, np.array(state.old), np.array(state.advantages))
        tv = 0.5 * float(np.abs(new - np.array(state.old)).sum())
        words, figures = f"{words}; simulated: TV {tv:.4g}", figures | {"simulated": tv}
    return Verdict(CLAIM, "measured", f"{words})", bandit=state, figures=figures)


def _variation(state: Bandit | None) -> float:
    return -1.0 if state is None else state.variation


def programme(law: Law, level: float, table: Floats | None = None) -> Bandit | None:
    """The state of largest total variation that is stationary at lambda = `level`; None if none is.

    maximise sum p (w-1)+   subject to   sum p = 1, sum p w = 1, sum p A = 0, p >= 0

    over columns (w, A) at which the inner loop, coming from w = 1, first meets G = lambda.
    """
    w = stationary_ratio(law, level, _table(law) if table is None else table)
    usable = np.isfinite(w)
    if usable.sum() < 2:
        return None
    w, a = w[usable], WORST[usable]
    rows = np.stack([np.ones_like(w), w, a])
    solved = linprog(-np.maximum(w - 1, 0), A_eq=rows, b_eq=[1.0, 1.0, 0.0], method="highs-ds")
    if solved.status != 0:
        return None
    chosen = solved.x > 1e-12
    p, w, a = solved.x[chosen], w[chosen], a[chosen]
    return Bandit.made(p, a, p * w)


DISTANCES: Final = np.concatenate([np.linspace(0.0, 3.0, 601), np.linspace(3.0, REACH, 301)[1:]])


def _table(law: Law) -> Floats:
    """G of every advantage of `WORST` on either side of w = 1, `[side, advantage, distance]`."""
    x = np.stack([DISTANCES, -DISTANCES])[:, None, :]
    return np.asarray(law.pull(x, WORST[:, None]) / np.exp(x))


def stationary_ratio(law: Law, level: float, table: Floats) -> Floats:
    """The ratio at which each arm first meets G = `level`, going out from w = 1 where it is pulled.

    0 for an arm that is driven out, and infinity for one that nothing holds.
    """
    side = np.where(table[0, :, 0] >= level, 1.0, -1.0)
    outward = side[:, None] * (np.where(side[:, None] > 0, table[0], table[1]) - level)
    gone = outward <= 0
    first = np.argmax(gone, axis=1)
    inner, outer = DISTANCES[np.maximum(first - 1, 0)], DISTANCES[first]
    for _ in range(45):
        middle = (inner + outer) / 2
        x = side * middle
        beyond = side * (law.pull(x, WORST) / np.exp(x) - level) <= 0
        inner, outer = np.where(beyond, inner, middle), np.where(beyond, middle, outer)
    driven = np.where(side > 0, np.inf, 0.0)
    return np.where(gone.any(axis=1), np.exp(side * outer), driven)
