"""A metric over training, mean and deviation over seeds: what every curve of a report draws.

    y_k = mean of the x_j that exist, |j - k| <= h,    2 h + 1 iterations: a share of training

A curve may be smoothed by this running mean, run by run, before seeds are averaged. Nothing is
filled forward: a seed without a value (no episode ended, or the run is not that far) is not
counted there. Smoothed, it is counted where an iteration in the window has a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from klip.studies.study import Column, Run

MOST_POINTS: Final = 500
"""The most points of a line: a screen has no pixels for more."""
SMOOTHING: Final = 0.05
"""The share of training over which learning curves are averaged."""


@dataclass(frozen=True, eq=False)
class SeedBand:
    """Mean and population deviation over seeds, iteration by iteration."""

    steps: Column
    """`[K]`"""
    mean: Column
    """`[K]`, or `[K, Q]` for quantiles; NaN where no seed has one of several values"""
    std: Column
    seeds: Column
    """`[K]`: how many seeds have a value there"""

    def at(self, places: Column) -> SeedBand:
        """The band at some of its points, given by their places."""
        return SeedBand(self.steps[places], self.mean[places], self.std[places], self.seeds[places])


def band(runs: Sequence[Run], metric: str, smoothing: float = 0.0) -> SeedBand | None:
    """The band of runs that share their steps; None if none of them has the metric.

    Args:
        runs: the runs of one variant
        metric: name of a column of their metrics
        smoothing: share of training over which each run's curve is averaged first

    """
    known = [run for run in runs if metric in run.metrics and run.rows]
    if not known:
        return None
    longest = max(known, key=lambda run: run.rows)
    tail = longest.metrics[metric].shape[1:]
    same = [run for run in known if run.metrics[metric].shape[1:] == tail]
    values = np.full((len(same), longest.rows, *tail), np.nan)
    for i, run in enumerate(same):
        column = run.metrics[metric]
        smooth = smoothing > 0 and column.ndim == 1
        values[i, : run.rows] = (
            running_mean(column, window(run.iterations, smoothing)) if smooth else column
        )
    there = ~np.isnan(values)
    count = there.sum(axis=0)
    safe = np.maximum(count, 1)
    mean = np.where(count > 0, np.where(there, values, 0.0).sum(axis=0) / safe, np.nan)
    std = np.sqrt(np.where(there, (values - mean) ** 2, 0.0).sum(axis=0) / safe)
    # Equal values have no deviation, though a mean of floats may miss them by a bit.
    equal = np.nanmax(np.where(there, values, -np.inf), axis=0) == np.nanmin(
        np.where(there, values, np.inf), axis=0
    )
    std = np.where(equal, 0.0, std)
    seeds = count if count.ndim == 1 else count.max(axis=1)
    known_at = seeds > 0
    if not known_at.any():
        return None
    steps = longest.metrics["step"]
    return SeedBand(steps, mean, std, seeds.astype(float)).at(known_at)


def window(iterations: int, share: float = SMOOTHING) -> int:
    """How many iterations a running mean takes in: an odd number near this share of them.

    >>> window(488), window(20)
    (25, 1)
    """
    return 2 * (round(share * iterations) // 2) + 1


def running_mean(values: Column, width: int) -> Column:
    """The mean over the `width` places around each that have a value; NaN where none has.

    >>> running_mean(np.array([0.0, 3.0, np.nan, 5.0]), 3)
    array([1.5, 1.5, 4. , 5. ])
    """
    if width == 1 or not len(values):
        return values
    width = min(width, 2 * len(values) + 1)  # of a run of which little is there yet
    there = ~np.isnan(values)
    half, ones = width // 2, np.ones(width)
    total, count = (
        np.convolve(x, ones)[half : half + len(values)]
        for x in (np.where(there, values, 0.0), there.astype(float))
    )
    return np.asarray(np.where(count > 0.5, total / np.maximum(count, 1.0), np.nan))


def thinned(band: SeedBand, most: int = MOST_POINTS) -> SeedBand:
    """Every k-th point and the last, so that at most `most` are left."""
    size = len(band.steps)
    if size <= most:
        return band
    step = -(-size // (most - 1))
    return band.at(np.unique(np.append(np.arange(0, size, step), size - 1)))


def overlaid(band: SeedBand, others: Sequence[SeedBand]) -> int:
    """How many of the others lie exactly under it."""
    return sum(
        band.mean.shape == other.mean.shape and np.array_equal(band.mean, other.mean)
        for other in others
    )
