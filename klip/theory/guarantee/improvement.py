"""T1, improvement: J below its tangent at w = 1, so whatever raises it raises the return.

With m(1, A) = a A + c and a > 0 (scale a, gauge c), the condition is

    D(w, A) = (w - 1)(a A + c) - (J(w, A) - J(1, A)) >= 0     for all w and A.

Where it fails by g at (w0, A0), that sample is put on an arm of mass p0, and two arms of advantage
+-alpha move so that the return falls by a share of p0 g / a: the objective still rises.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from klip.shapes import Shape
from klip.theory.guarantee import recheck
from klip.theory.guarantee.law import ADVANTAGES, REACH, Law, each, follows_the_state, grid, line
from klip.theory.guarantee.verdict import Bandit, Verdict
from klip.theory.views import Floats, jumps

CLAIM: Final = "improvement"
TIGHT: Final = 1e-10
"""Of w |A|: what rounding may do to the integral of a tangent that is met exactly."""
STRAIGHT: Final = 1e-8
"""How far m(1, A) may be from a line, relative to its largest."""
MASSES: Final = (0.002, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
SHARES: Final = (0.25, 0.5, 0.7, 0.85)
TRIED: Final = 40
"""How many bandits are rounded and computed again before the search gives up."""


@dataclass(frozen=True)
class Gap:
    """Where the tangent fails: J lies `above` it."""

    ratio: float
    advantage: float
    above: float


def improvement(shape: Shape) -> Verdict:
    """The verdict on T1, over every context that the shape may meet.

    >>> from klip.shapes import SPO, DualClip
    >>> improvement(SPO()).outcome, improvement(DualClip()).outcome
    ('holds', 'refuted')
    """
    points, lines = 0, []
    for law in each(shape):
        a, c, residual = line(law.pull)
        lines.append((a, c))
        if residual > STRAIGHT or a <= 0:
            return _refuted(law, _first_order(law), a, "its anchor m(1, A) is no line a A + c")
        looked, gaps = tangent(law, a, c)
        points += looked
        if gaps:
            near = max(gaps, key=lambda gap: gap.above / (1 + gap.ratio + gap.advantage**2) ** 2)
            where = f"w = {near.ratio:.4g}, A = {near.advantage:g}"
            why = f"J is above its tangent by {near.above:.3g} at {where}"
            return _refuted(law, _second(law, a, gaps), a, why)
    if follows_the_state(shape):
        words = "its weight of the state's KL depends on the sample, which no tangent sees"
        return Verdict(CLAIM, "measured", words, points)
    return Verdict(
        CLAIM, "holds", _kind(lines), points, figures={"a": lines[0][0], "c": lines[0][1]}
    )


def _kind(lines: list[tuple[float, float]]) -> str:
    (a, c), several = lines[0], len(set(lines)) > 1
    parts = [f"scale {a:.6g}"] if a != 1 else []
    parts += [f"gauge {c:.6g}"] if c else []
    if several:
        parts.append("the scale follows the context")
    return ", ".join(parts)


def tangent(law: Law, a: float, c: float) -> tuple[int, list[Gap]]:
    """How many points were looked at, and where J lies above the line of slope a A + c."""
    points, gaps = 0, []
    base = grid(law)
    for advantage in ADVANTAGES:
        slope = a * advantage + c
        x = _with_jumps(law, base, advantage, slope)
        below, scale = _deficit(law, x, advantage, slope)
        points += x.size
        above = -below - TIGHT * scale
        by_hand = above * (np.abs(x) <= 2.5)  # a reader can follow these
        for i in _peaks(above, above / np.exp(x), above / np.square(1 + np.exp(x)), by_hand,
                        by_hand / np.exp(x), above * (np.abs(x) <= 1)):  # fmt: skip
            gaps.append(Gap(float(np.exp(x[i])), advantage, float(-below[i])))
    return points, gaps


def _with_jumps(law: Law, x: Floats, advantage: float, slope: float) -> Floats:
    """The grid with both sides of each jump of m.

    They are sought in m - slope w: against a steep wA, a jump can hide in the slope of its cell.
    """

    def bare(at: Floats, a: Floats) -> Floats:
        return np.asarray(law.pull(at, a) - slope * np.exp(at))

    ends = (-REACH, -5.0, min(5.0, law.top), law.top)
    found = [
        place
        for start, end in itertools.pairwise(ends)
        if end > start
        for place, _ in jumps(bare, advantage, start, end)
    ]
    beside = [place + side for place in found for side in (-2e-12, 2e-12)]
    return np.unique(np.concatenate([x, beside, [0.0]]))


def _deficit(law: Law, x: Floats, advantage: float, slope: float) -> tuple[Floats, Floats]:
    """D at each log-ratio, and the size that its rounding error is relative to.

    The difference slope*w - m is integrated as it stands. Where a tangent is met exactly it is 0,
    and its quadrature has positive weights: D cannot turn negative by anything but rounding.
    """
    nodes, weights = np.polynomial.legendre.leggauss(4)
    half = np.diff(x)[:, None] / 2
    at = (x[:-1, None] + x[1:, None]) / 2 + half * nodes
    w, m = np.exp(at), law.pull(at, np.asarray(advantage))
    pieces = (half * weights * (slope * w - m)).sum(axis=1)
    sizes = (half * weights * (abs(slope) * w + np.abs(m))).sum(axis=1)
    zero = int(np.searchsorted(x, 0.0))
    total, size = (np.concatenate([[0.0], np.cumsum(y)]) for y in (pieces, sizes))
    return total - total[zero], 1e-3 + np.abs(size - size[zero])


def _peaks(*scores: Floats) -> set[int]:
    return {int(np.argmax(score)) for score in scores if score.max() > 0}


# -- from a gap to a bandit ------------------------------------------------------------------------


def _refuted(law: Law, bandits: Iterator[Bandit], a: float, why: str) -> Verdict:
    """The first bandit that both recomputations confirm."""
    for bandit in itertools.islice(bandits, TRIED):
        checked = recheck.improvement(law.shape, law.context, bandit)
        if checked is not None:
            gain, by = checked
            shown = Bandit(bandit.old, bandit.advantages, bandit.new, gain)
            words = (
                f"a bandit of {len(shown.old)} arms: {shown}: objective {gain:+.4g}, "
                f"return {shown.change:+.4g} ({why})"
            )
            return Verdict(CLAIM, "refuted", words, bandit=shown, checked=by, figures={"a": a})
    return Verdict(CLAIM, "measured", f"{why}; no bandit was found on which the return falls")


def _second(law: Law, a: float, gaps: list[Gap]) -> Iterator[Bandit]:
    """Bandits of three arms from the places where the tangent fails, the plainest effect first."""
    fixed = law.probability
    masses = MASSES if fixed is None else (fixed,)
    rows = [
        (gap, mass, share, alpha)
        for gap in gaps
        for mass in (*masses, *([float(f"{0.4 / gap.ratio:.2g}")] if fixed is None else []))
        for share in SHARES
        for alpha in dict.fromkeys((abs(gap.advantage), 1.0, 3 * abs(gap.advantage)))
        if alpha > 0 and mass * gap.ratio < 1
    ]
    made = [bandit for row in rows if (bandit := _bandit(*row, a)) is not None]
    yield from _ranked(law, made)


def _bandit(gap: Gap, mass: float, share: float, size: float, a: float) -> Bandit | None:
    """The witness of the converse, in decimals that add up exactly; None if it has no room."""
    p0, w0, a0 = (
        Fraction(str(mass)),
        _short(gap.ratio, 3),
        _short(gap.advantage),
    )
    alpha, fall = _short(size), _short(share * mass * gap.above / a, 2)
    p1 = (1 - p0 - p0 * a0 / alpha) / 2
    moved = p0 * (w0 - 1)
    # the two arms make up for the mass that moved, and leave the return at -fall
    up = (-moved + (-fall - moved * a0) / alpha) / 2
    old = (p0, p1, 1 - p0 - p1)
    new = (p0 * w0, p1 + up, 1 - p0 * w0 - p1 - up)
    if not all(0 < x < 1 for x in (*old, *new)) or fall <= 0:
        return None
    return Bandit.made(old, (a0, alpha, -alpha), new)


def _short(x: float, digits: int = 6) -> Fraction:
    return Fraction(f"{x:.{digits}g}")


def _first_order(law: Law) -> Iterator[Bandit]:
    """Bandits of three arms on which a small move raises J and lowers the return."""
    values = [a for a in ADVANTAGES if 0.3 <= abs(a) <= 3] + [0.0]
    made = []
    for chosen in itertools.combinations(values, 3):
        a = np.array(chosen)
        if a.min() >= 0 or a.max() <= 0:
            continue
        p = _balanced(a)
        g = law.of_actions(np.zeros(3), a, p)
        rows = np.stack([p, p * a, p * g])
        if abs(np.linalg.det(rows)) < 1e-12:
            move = -p * a if (p * a * g).sum() < 0 else None
        else:
            move = np.linalg.solve(rows, np.array([0.0, -1.0, np.abs(g).max()]))
        if move is None:
            continue
        for size in (0.9, 0.5, 0.2, 0.05, 0.01, 0.001):
            w = 1 + size * move / np.abs(move).max()
            new = np.round(p * w, 6)
            made.append(Bandit.made(p, a, np.append(new[:2], 1 - new[:2].sum())))
    yield from _ranked(law, made)


def _balanced(a: Floats) -> Floats:
    """Probabilities of three arms under which the advantages have mean 0."""
    low, high = int(np.argmin(a)), int(np.argmax(a))
    other = 3 - low - high
    p = np.zeros(3)
    p[other] = 0.2
    rest = 0.8 * a[high] + 0.2 * a[other]
    p[low] = rest / (a[high] - a[low])
    p[high] = 0.8 - p[low]
    return p


def _ranked(law: Law, made: list[Bandit]) -> Iterator[Bandit]:
    """The bandits on which J rises and the return falls, the largest of the two effects first."""
    if not made:
        return
    old, a, new = (np.array([getattr(b, n) for b in made]) for n in ("old", "advantages", "new"))
    valid = (old > 0).all(axis=1) & (new > 0).all(axis=1)
    x = np.log(np.where(new > 0, new, 1) / np.where(old > 0, old, 1))
    gain = np.zeros(len(made))
    nodes = (np.arange(256) + 0.5) / 256
    for start in range(0, len(made), 64):  # a block fits the cache
        rows = slice(start, start + 64)
        along = x[rows, :, None] * nodes
        m = np.moveaxis(law.of_actions(np.moveaxis(along, 2, 0), a[rows], old[rows]), 0, 2)
        gain[rows] = (old[rows] * x[rows] * m.mean(axis=2)).sum(axis=1)
    fall = -(new * a).sum(axis=1)
    size = np.abs(a).max(axis=1)
    plain = np.where(size == 1, 2.0, 1.0)  # advantages of 1 are the easiest to follow
    seen = np.minimum(old.min(axis=1), new.min(axis=1)) >= 1e-3
    plain *= np.where(seen, 1.0, 1e-3)  # and so are probabilities that one can see
    score = np.where(valid, plain * np.minimum(gain, fall) / size, -1.0)
    for i in np.argsort(-score):
        if score[i] <= 0:
            return
        yield made[i]
