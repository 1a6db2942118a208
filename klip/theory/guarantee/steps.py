"""T2, any step size: m keeps the sign of A, so the inner loop never turns against the advantage.

If (m - c w) A >= 0 everywhere, exponentiated gradient pi <- pi exp(rate m/w) / Z keeps every ratio
of a positive arm at or above every ratio of a negative one, and E_new[A] >= 0 at any rate, after
any number of steps. Where the sign fails, two arms are sought on which the return falls.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from klip.shapes import Shape
from klip.theory.guarantee import recheck
from klip.theory.guarantee.law import ADVANTAGES, Law, each, grid, line
from klip.theory.guarantee.verdict import Bandit, Verdict
from klip.theory.views import Floats

CLAIM: Final = "any step size"
TIGHT: Final = 1e-9
RATES: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
MASSES: Final = (0.5, 0.2, 0.8, 0.1, 0.9, 0.05, 0.95, 0.01, 0.99)
SIZES: Final = (1.0, 0.3, 3.0, 10.0)
STEPS: Final = 60
FALLEN: Final = 1e-5
"""Of the largest advantage: a return that fell by less is not told from one that stays."""


def any_step(shape: Shape) -> Verdict:
    """The verdict on T2, over every context that the shape may meet.

    >>> from klip.shapes import Clip, SPO
    >>> any_step(Clip()).outcome, any_step(SPO()).outcome
    ('holds', 'refuted')
    """
    points = 0
    for law in each(shape):
        looked, place = against(law)
        points += looked
        if place is not None:
            w, a = place
            return _fallen(law, f"m turns against A at w = {w:.4g}, A = {a:g}", place)
    return Verdict(CLAIM, "holds", "", points)


def against(law: Law) -> tuple[int, tuple[float, float] | None]:
    """How many points were looked at, and the (w, A) nearest to w = 1 at which the sign fails."""
    x, a = grid(law), np.asarray(ADVANTAGES)[:, None]
    w = np.exp(x)
    c = line(law.pull)[1]
    m = law.pull(x, a)
    wrong = (m - c * w) * np.sign(a) < -TIGHT * (np.abs(m) + abs(c) * w + np.abs(a) * w)
    if not wrong.any():
        return wrong.size, None
    distance = np.where(wrong, np.abs(x) + 1e-3 * np.abs(np.abs(a) - 1), np.inf)
    row, column = np.unravel_index(int(np.argmin(distance)), wrong.shape)
    return wrong.size, (float(w[column]), float(ADVANTAGES[row]))


def _fallen(law: Law, why: str, place: tuple[float, float]) -> Verdict:
    """The verdict where the sign fails: a bandit of two arms if there is one that falls."""
    figures = {"w": place[0], "A": place[1]}
    best: tuple[tuple[str, ...], Bandit, float, int] | None = None
    for found in _hunt(law):
        checked = recheck.any_step(law.shape, law.context, *found)
        if checked and (best is None or recheck.FRACTIONS in checked):
            best = (checked, *found)
        if recheck.FRACTIONS in checked:
            break
    if best is not None:
        checked, bandit, rate, steps = best
        words = (
            f"two arms: {bandit} after {steps} step{'s' if steps > 1 else ''} of rate "
            f"{rate:g}: return {bandit.change:+.4g} ({why})"
        )
        figures |= {"rate": rate, "steps": steps}
        return Verdict(CLAIM, "refuted", words, bandit=bandit, checked=checked, figures=figures)
    tried = len(RATES) * len(MASSES) * len(SIZES)
    words = f"{why}; of {tried} bandits of two arms, none fell within {STEPS} steps"
    return Verdict(CLAIM, "measured", words, figures=figures)


def _hunt(law: Law) -> list[tuple[Bandit, float, int]]:
    """Two-armed bandits whose return falls, with rate and steps; the smallest rate first."""
    rate, mass, size = np.meshgrid(RATES, MASSES, SIZES, indexing="ij")
    p = np.stack([mass, 1 - mass], axis=-1)
    balance = np.stack([1 - mass, -mass], axis=-1)
    a = size[..., None] * balance / np.abs(balance).max(axis=-1, keepdims=True)
    x = np.zeros_like(p)
    first = np.zeros(rate.shape, dtype=int)
    found: dict[tuple[int, ...], tuple[Bandit, float, int]] = {}
    with np.errstate(all="ignore"):
        for step in range(1, STEPS + 1):
            x = _stepped(law, x, a, p, rate[..., None])
            new = p * np.exp(x)
            change = (new * a).sum(axis=-1)
            fell = (change < -FALLEN * size) & (first == 0) & np.isfinite(x).all(axis=-1)
            fell &= (new > 1e-9).all(axis=-1)
            first[fell] = step
            for i in zip(*np.nonzero(fell), strict=True):
                found[i] = (Bandit.made(p[i], a[i], new[i]), float(rate[i]), step)
            live = np.asarray(np.isfinite(x).all(axis=-1))
            x = np.where(live[..., None], x, 0.0)
            rate = np.where(live, rate, 0.0)
    # an advantage of 1, then a small rate: the easiest to follow
    order = sorted(found, key=lambda i: (found[i][2] > 20, i[2], i[0], i[1]))
    return [found[i] for i in order][:20]


def _stepped(law: Law, x: Floats, a: Floats, p: Floats, rate: Floats) -> Floats:
    """Log-ratios after a step of exponentiated gradient; probabilities sum to one again."""
    x = x + rate * law.of_actions(x, a, p) / np.exp(np.clip(x, -20, 20))
    peak = x.max(axis=-1, keepdims=True)
    return np.asarray(x - peak - np.log((p * np.exp(x - peak)).sum(axis=-1, keepdims=True)))
