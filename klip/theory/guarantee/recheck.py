"""Refutations computed again, by code that shares nothing with the search that found them.

A bandit's objective is the integral of m along the straight way from the old policy to the new, by
plain NumPy on the shape itself; where `exact` knows the shape, it is enclosed in fractions too. So
are the steps of an inner loop, and the way to its end, where `slopes` knows the shape. Where there
are no fractions, `second` computes it in another way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import numpy as np

from klip.shapes import Shape
from klip.theory.guarantee import second
from klip.theory.guarantee.enclosure import Bounds, exp_of, log_of, outwards, plus, scaled
from klip.theory.guarantee.exact import gain as exact_gain
from klip.theory.guarantee.reader import multiplier
from klip.theory.guarantee.slopes import slope
from klip.theory.guarantee.verdict import Bandit

SIMULATION: Final = "simulation"
FRACTIONS: Final = "exact fractions"
SLACK: Final = 1e-9
"""By how much a bandit's sums may miss 1 and 0."""
FALLEN: Final = 1e-6
"""A return that fell by less may be rounding."""
AGREE: Final = 1e-3
"""Within which share two recomputations are the same."""
NEAR: Final = 0.05
"""How far off a simulation may end, as a share: its last step leaps over the edge."""
CLOSE: Final = Fraction(1, 10**6)
"""How near the fractions go to an end, as a share: its own decimals are rounded."""
CELLS: Final = 2000
"""Intervals that are halved on the way to an end, at most."""
WIDE: Final = Fraction(1, 10**3)
FAR: Final = 19
"""Log-ratios within this are those that the library knows: it lets them saturate at 20."""


def improvement(
    shape: Shape, context: Mapping[str, float], bandit: Bandit
) -> tuple[float, tuple[str, ...]] | None:
    """The objective's gain and what confirmed it, if it rises while the return falls; else None."""
    if not _adds_up(bandit) or not bandit.change < 0:
        return None
    coarse, fine = (simulated_gain(shape, context, bandit, n) for n in (20_000, 50_000))
    if not (math.isfinite(fine) and fine > 3 * abs(fine - coarse) and fine > 1e-12):
        return None
    enclosed = fractions_gain(shape, bandit)
    if enclosed is None:
        other = second.gain(shape, context, bandit)
        same = math.isclose(other, fine, rel_tol=AGREE, abs_tol=1e-9) and other > 0
        return (fine, (SIMULATION, second.QUADRATURE)) if same else None
    low, high = enclosed
    if low <= 0 or not float(low) - 1e-6 <= fine <= float(high) + 1e-6:
        return None
    return float(low + high) / 2, (FRACTIONS, SIMULATION)


def _adds_up(bandit: Bandit) -> bool:
    """Whether both policies are distributions and the advantages have mean 0 under the old."""
    old, new = math.fsum(bandit.old), math.fsum(bandit.new)
    mean = math.fsum(p * a for p, a in zip(bandit.old, bandit.advantages, strict=True))
    positive = min(*bandit.old, *bandit.new) > 0
    return positive and max(abs(old - 1), abs(new - 1), abs(mean)) <= SLACK


def simulated_gain(shape: Shape, context: Mapping[str, float], bandit: Bandit, steps: int) -> float:
    """The rise of the objective: sum over arms of p times the integral of m / w along the way."""
    p, q, a = (np.array(row) for row in (bandit.old, bandit.new, bandit.advantages))
    way = (np.arange(steps) + 0.5) / steps
    w = 1 + way[:, None] * (q / p - 1)
    effective = multiplier(shape, context, np.log(w), a, p) / w
    return float((effective.mean(axis=0) * (q - p)).sum())


def fractions_gain(shape: Shape, bandit: Bandit) -> tuple[Fraction, Fraction] | None:
    """Bounds of the rise in exact arithmetic; None if the shape's formula is not known to `exact`.

    The printed decimals are the numbers: each is read as the fraction that it spells.
    """
    old, new, advantages = (
        [Fraction(repr(x)) for x in row] for row in (bandit.old, bandit.new, bandit.advantages)
    )
    low = high = Fraction(0)
    for p, q, a in zip(old, new, advantages, strict=True):
        bounds = exact_gain(shape, q / p, a)
        if bounds is None:
            return None
        low, high = low + p * bounds[0], high + p * bounds[1]
    return low, high


def any_step(
    shape: Shape, context: Mapping[str, float], bandit: Bandit, rate: float, steps: int
) -> tuple[str, ...]:
    """What confirmed that the return falls in so many steps, to the new policy; empty if not."""
    again = two_arms(shape, context, bandit, rate, steps)
    change = math.fsum(q * a for q, a in zip(again, bandit.advantages, strict=True))
    arrived = np.allclose(again, bandit.new, rtol=1e-6, atol=1e-9)
    if not (_adds_up(bandit) and arrived and change < -FALLEN):
        return ()
    enclosed = enclosed_change(shape, bandit, rate, steps)
    if enclosed is None or enclosed[0] < 0 <= enclosed[1]:
        first = second.by_odds(shape, context, bandit, rate, steps)
        same = math.isclose(first, bandit.new[0], rel_tol=AGREE, abs_tol=1e-6)
        return (SIMULATION, second.ODDS) if same else ()
    return (FRACTIONS, SIMULATION) if enclosed[1] < 0 else ()


def runs_away(
    shape: Shape, context: Mapping[str, float], bandit: Bandit, rate: float, steps: int
) -> tuple[float, tuple[str, ...]]:
    """Where a simulation leaves the first arm's ratio, and what confirmed that it ends at the new.

    Nothing did, if the simulation or the fractions say otherwise.
    """
    again = two_arms(shape, context, bandit, rate, steps)
    ratio = again[0] / bandit.old[0]
    led = is_led_to(shape, bandit)
    if abs(again[0] / bandit.new[0] - 1) >= NEAR or led is False:
        return ratio, ()
    if led is not None:
        return ratio, (FRACTIONS, SIMULATION)
    return ratio, (SIMULATION, second.WAY) if second.leads(shape, context, bandit) else ()


def enclosed_change(
    shape: Shape, bandit: Bandit, rate: float, steps: int
) -> tuple[Fraction, Fraction] | None:
    """Bounds of the change of the return after steps of exponentiated gradient.

    None if the shape's formula is not known to `slopes`, or where bounds grow too wide to say it.
    """
    p, a = ([Fraction(repr(x)) for x in row] for row in (bandit.old, bandit.advantages))
    pace = Fraction(repr(rate))
    x = [(Fraction(0), Fraction(0)) for _ in p]
    for _ in range(steps):
        if any(high - low > WIDE or max(-low, high) > FAR for low, high in x):
            return None
        pulls = [slope(shape, exp_of(each), of) for each, of in zip(x, a, strict=True)]
        known = [pull for pull in pulls if pull is not None]
        if len(known) < len(p):
            return None
        x = [outwards(*plus(each, scaled(pace, pull))) for each, pull in zip(x, known, strict=True)]
        peak = max(high for _, high in x)
        parts = [
            scaled(old, exp_of((x0 - peak, x1 - peak))) for old, (x0, x1) in zip(p, x, strict=True)
        ]
        norm = log_of(functools.reduce(plus, parts))
        x = [(low - peak - norm[1], high - peak - norm[0]) for low, high in x]
    low = high = Fraction(0)
    for old, of, each in zip(p, a, x, strict=True):
        moved = scaled(old * of, plus(exp_of(each), (Fraction(-1), Fraction(-1))))
        low, high = low + moved[0], high + moved[1]
    return low, high


def is_led_to(shape: Shape, bandit: Bandit) -> bool | None:
    """Whether G is larger on the first of two arms all the way to the new policy, and no farther.

    None if the shape's formula is not known to `slopes`.
    """
    p, a = ([Fraction(repr(x)) for x in row] for row in (bandit.old, bandit.advantages))
    end = Fraction(repr(bandit.new[0])) / p[0]

    def ahead(low: Fraction, high: Fraction) -> Bounds | None:
        """Bounds of the difference of the two, while the first arm's ratio is in between."""
        other = ((1 - p[0] * high) / p[1], (1 - p[0] * low) / p[1])
        first, second = slope(shape, (low, high), a[0]), slope(shape, other, a[1])
        if first is None or second is None:
            return None
        return first[0] - second[1], first[1] - second[0]

    todo, cells = [(Fraction(1), end * (1 - CLOSE))], 0
    while todo:
        low, high = todo.pop()
        found = ahead(low, high)
        if found is None:
            return None
        if found[0] > 0:
            continue
        cells += 1
        if found[1] <= 0 or cells > CELLS:
            return False
        middle = (low + high) / 2
        todo += [(low, middle), (middle, high)]
    beyond = end * (1 + CLOSE)
    if beyond * p[0] >= 1:
        return True
    found = ahead(beyond, beyond)
    return found is not None and found[1] <= 0


def two_arms(
    shape: Shape, context: Mapping[str, float], bandit: Bandit, rate: float, steps: int
) -> list[float]:
    """The new policy after steps of exponentiated gradient: pi <- pi exp(rate m/w) / Z."""
    p, a = np.array(bandit.old), np.array(bandit.advantages)
    log_w = np.zeros(len(p))
    with np.errstate(all="ignore"):  # a ratio that vanishes on the way is no number, and no proof
        for _ in range(steps):
            m = multiplier(shape, context, log_w[None], a, p)[0]
            log_w = log_w + rate * m / np.exp(np.clip(log_w, -20, 20))  # as the library's ratio
            peak = log_w.max()
            log_w = log_w - peak - np.log((p * np.exp(log_w - peak)).sum())
    return [float(x) for x in p * np.exp(log_w)]


def fallen(
    shape: Shape, about: Mapping[str, Any], change: float, rate: float, steps: int
) -> tuple[str, ...]:
    """What confirmed that the return of an MDP moves by `change`, which is a fall; empty if not."""
    both = (mdp(shape, about, rate, steps), second.mdp(shape, about, rate, steps))
    same = all(math.isclose(x, change, rel_tol=AGREE, abs_tol=1e-7) for x in both)
    return (SIMULATION, second.AUTODIFF) if same and max(both) < -FALLEN else ()


def mdp(shape: Shape, about: Mapping[str, Any], rate: float, steps: int) -> float:
    """The change of the return of one MDP with shared parameters, state by state and by iteration.

    It is (1 - discount) times the difference, in units of the advantages' spread.
    """
    discount, sweeps = 0.95, 800
    moves, rewards, logits, features = (
        np.array(about[name]) for name in ("transitions", "rewards", "logits", "features")
    )

    def policy(theta: Any) -> Any:
        raw = logits + features @ theta
        e = np.exp(raw - raw.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def values(pi: Any) -> Any:
        v = np.zeros(len(pi))
        for _ in range(sweeps):
            v = (pi * (rewards + discount * moves @ v)).sum(axis=1)
        return v

    old = policy(np.zeros(features.shape[-1]))
    v = values(old)
    visits, row = np.zeros(len(old)), np.full(len(old), 1 / len(old))
    for _ in range(sweeps):
        visits, row = (
            visits + (1 - discount) * row,
            discount * np.einsum("s,sa,sat->t", row, old, moves),
        )
    raw = rewards + discount * moves @ v - v[:, None]
    spread = math.sqrt(float((visits[:, None] * old * raw**2).sum()))
    theta = np.zeros(features.shape[-1])
    for _ in range(steps):
        pi = policy(theta)
        gradient = np.zeros_like(theta)
        for s in range(len(old)):
            log_w = np.log(pi[s] / old[s])[None]
            m = multiplier(shape, {}, log_w, raw[s] / spread, old[s])[0]
            score = features[s] - pi[s] @ features[s]
            gradient += visits[s] * ((old[s] * m) @ score)
        theta = theta + rate * gradient
    return float((1 - discount) * (values(policy(theta)).mean() - v.mean()) / spread)
