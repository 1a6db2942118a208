"""Shapes beside a reference: Welch's interval, and Holm's correction for many comparisons.

`benchmarks/comparisons.py` measured why, and `benchmarks/README.md` has the tables. A seed gives
all shapes the same weights and noise, and yet final returns are hardly correlated over seeds, so
pairing them halves the degrees of freedom and gains nothing. A variance pooled over shapes would
be narrower still, and is wrong where shapes scatter unequally, as ours do.

Of many comparisons some leave 0 by chance, so claims rest on p-values that Holm corrects for all
comparisons of a report. That claims all that simultaneous (Bonferroni's) intervals would, and
more, whatever the comparisons have to do with each other. Intervals stay those of one comparison,
whose coverage is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from scipy import stats

from klip.studies.bootstrap import Floats, half_width, satterthwaite
from klip.studies.scores import Estimate

CLAIM: Final = 0.05
"""A difference is shown where its corrected p-value is at most this."""


def welch(first: Floats, second: Floats, level: float) -> tuple[Floats, Floats, Floats]:
    """m1 - m2 -+ t_nu sqrt(s1^2 / n1 + s2^2 / n2), and the two-sided p-value of no difference.

    Runs are along the last axis, at least two on either side; whatever stands before is a batch.
    The p-value is NaN where neither side scatters.

    >>> low, high, p = welch(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]), 0.95)
    >>> round(float(low), 3), round(float(high), 3), round(float(p), 4)
    (-5.267, -0.733, 0.0213)
    """
    sizes = np.array([first.shape[-1], second.shape[-1]])
    gap = first.mean(axis=-1) - second.mean(axis=-1)
    v = np.stack([first.var(axis=-1, ddof=1), second.var(axis=-1, ddof=1)], axis=-1) / sizes
    total, nu = satterthwaite(v, sizes - 1.0)
    error = np.sqrt(total)
    t = np.divide(np.abs(gap), error, out=np.full(np.shape(gap), np.nan), where=error > 0)
    reach = half_width(v, sizes - 1.0, level)
    return gap - reach, gap + reach, np.asarray(2 * stats.t.sf(t, nu))


def holm(p: Floats) -> Floats:
    """max over j <= i of min(1, (k - j + 1) p_(j)), for p-values `[..., k]` in ascending order.

    Holm 1979: if whatever is at most 0.05 is claimed, the chance that any claim is wrong is at
    most 5 %, however the k comparisons depend on each other.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, axis=-1)
    left = np.arange(p.shape[-1], 0, -1)
    steps = np.minimum(np.take_along_axis(p, order, axis=-1) * left, 1.0)
    corrected = np.empty_like(steps)
    np.put_along_axis(corrected, order, np.maximum.accumulate(steps, axis=-1), axis=-1)
    return corrected


def corrected(estimates: Sequence[Estimate]) -> list[Estimate]:
    """The same comparisons, those that have a p-value with the one that Holm corrects for all."""
    tested = [i for i, e in enumerate(estimates) if e.p is not None]
    by_place = dict(zip(tested, holm(np.array([estimates[i].p for i in tested])), strict=True))
    return [
        replace(e, p_holm=float(by_place[i]), family=len(tested)) if i in by_place else e
        for i, e in enumerate(estimates)
    ]
