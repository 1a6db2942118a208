"""Where a state's inner loop ends: on two arms by a root, on more by the flow itself."""

from __future__ import annotations

from typing import Final

import numpy as np

from klip.theory.guarantee.law import Law
from klip.theory.views import Floats

PACES: Final = ((0.02, 5000), (0.002, 1500))
"""Rates and steps: small ones, since a clip stays where a leap takes it, and smaller ones in the
end, since a loop that slides along a jump chatters."""
STEEP: Final = 2.0
"""The longest step of a log-ratio: what is stiff far from its end need not leap over it."""


def two_armed_end(law: Law, mass: float, advantages: tuple[float, float]) -> float:
    """The ratio of the first arm, of `mass` and positive advantage, where the flow from 1 ends.

    Its ratio decides the other's, so the flow moves on a line: it ends where G is the same on both,
    or where the other arm has no mass left.

    >>> from klip.shapes import Clip
    >>> round(two_armed_end(Law(Clip()), 0.01, (1.0, -1 / 99)), 4)
    20.8
    """
    old, a = np.array([mass, 1 - mass]), np.array(advantages)

    def pull(w: Floats) -> Floats:
        both = np.stack([w, np.maximum((1 - mass * w) / (1 - mass), 1e-300)], axis=-1)
        g = law.of_actions(np.log(both), a, old) / both
        return np.asarray(g[..., 0] - g[..., 1])

    top = 1 / mass * (1 - 1e-9)
    grid = np.exp(np.linspace(0.0, np.log(top), 20_001))
    gone = pull(grid) <= 1e-12
    if not gone.any():
        return 1 / mass
    first = int(np.argmax(gone))
    inner, outer = grid[max(first - 1, 0)], grid[first]
    for _ in range(60):
        middle = (inner + outer) / 2
        if pull(np.array([middle]))[0] <= 1e-12:
            outer = middle
        else:
            inner = middle
    return float(outer)


def where_it_ends(law: Law, old: Floats, advantages: Floats) -> Floats:
    """The policy at the end of the flow d log w = G - mean of G, from the old policy; `[actions]`.

    >>> from klip.shapes import SPO
    >>> new = where_it_ends(Law(SPO(eps=0.2)), np.array([0.25, 0.75]), np.array([3.0, -1.0]))
    >>> new.round(3)
    array([0.31, 0.69])
    """
    x = np.zeros_like(old)
    for rate, steps in PACES:
        for _ in range(steps):
            w = np.exp(x)
            g = law.of_actions(x, advantages, old) / w
            move = rate * (g - (old * w * g).sum())
            x = np.clip(x + np.clip(move, -STEEP, STEEP), -40.0, 40.0)
            x = x - np.log((old * np.exp(x)).sum())
    return np.asarray(old * np.exp(x))
