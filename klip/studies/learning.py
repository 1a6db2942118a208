"""A metric over training, mean and deviation over seeds: what every curve of a report draws.

Never smoothed and never filled forward: the value at an iteration is that iteration's alone, and
seeds without one there (no episode ended, or the run is not that far) are not counted there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from klip.studies.study import Column, Run

MOST_POINTS: Final = 500
"""Beyond this many a line has more points than a screen has pixels for it."""


@dataclass(frozen=True, eq=False)
class Band:
    """Mean and population deviation over seeds, iteration by iteration."""

    steps: Column
    """`[K]`"""
    mean: Column
    """`[K]`, or `[K, Q]` for quantiles"""
    std: Column
    seeds: Column
    """`[K]`: how many seeds have a value there"""


def band(runs: Sequence[Run], metric: str) -> Band | None:
    """The runs of one variant, which share their steps; None if none of them has the metric."""
    known = [run for run in runs if metric in run.metrics and run.rows]
    if not known:
        return None
    longest = max(known, key=lambda run: run.rows)
    tail = longest.metrics[metric].shape[1:]
    same = [run for run in known if run.metrics[metric].shape[1:] == tail]
    values = np.full((len(same), longest.rows, *tail), np.nan)
    for i, run in enumerate(same):
        values[i, : run.rows] = run.metrics[metric]
    there = ~np.isnan(values)
    count = there.sum(axis=0)
    safe = np.maximum(count, 1)
    mean = np.where(there, values, 0.0).sum(axis=0) / safe
    std = np.sqrt(np.where(there, (values - mean) ** 2, 0.0).sum(axis=0) / safe)
    # Equal values have no deviation, though a mean of floats may miss them by a bit.
    equal = np.nanmax(np.where(there, values, -np.inf), axis=0) == np.nanmin(
        np.where(there, values, np.inf), axis=0
    )
    std = np.where(equal, 0.0, std)
    seeds = count if count.ndim == 1 else count.max(axis=1)
    seen = seeds > 0
    if not seen.any():
        return None
    return Band(longest.metrics["step"][seen], mean[seen], std[seen], seeds[seen].astype(float))


def thinned(band: Band, most: int = MOST_POINTS) -> Band:
    """Every k-th point and the last, so that at most `most` are left."""
    size = len(band.steps)
    if size <= most:
        return band
    keep = np.unique(np.append(np.arange(0, size, -(-size // (most - 1))), size - 1))
    return Band(band.steps[keep], band.mean[keep], band.std[keep], band.seeds[keep])


def overlaid(band: Band, others: Sequence[Band]) -> int:
    """How many of the others lie exactly under it."""
    return sum(
        band.mean.shape == other.mean.shape and np.array_equal(band.mean, other.mean)
        for other in others
    )
