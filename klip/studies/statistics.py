"""Statistics over seeds, never over episodes: an estimate, how sure it is, and from how many runs.

Which interval, and why. `benchmarks/coverage.py` measured how often a nominal 95 % interval holds
the truth (`benchmarks/results/coverage.json`), and the defaults follow from it:

- The mean takes Student's t. From 3 seeds of normal scores it covers 95 %, the percentile bootstrap
  74 % and BCa 71 %; from 5 seeds 95, 85 and 85. No interval saves the mean where scores are skewed
  or some seeds fail: from 3 to 10 seeds t covers 82 to 89 % there, the others less.
- IQM, profiles and the probability of improvement take the stratified bootstrap with expanded
  percentiles. For the IQM over 7 tasks, they cover 90 to 94 % from 3 seeds and 92 to 94 % from 5;
  plain percentiles 83 to 86 and 87 to 90. From 20 seeds on either will do. Plain ones are what
  rliable prints: ask for `method="percentile"` to set numbers beside published ones.
- Two shapes are compared by Welch's t, and claims rest on p-values that Holm corrects for all
  comparisons of a report: `klip/studies/comparing.py` says why.
- No interval is good for one task with 3 seeds, where no bootstrap of mean or IQM covers more than
  75 % (show the mean and its t), nor for profiles from 3 seeds, which cover 73 to 91 %.

Runs have no order: scores are sorted when they come in, so no result depends on it. Everywhere,
`method` is the kind of interval, `level` the probability with which it should hold the truth, and
`resamples` and `seed` are those of the bootstrap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from klip.errors import KlipError
from klip.studies.bootstrap import (
    Floats,
    Interval,
    average,
    bca,
    check_level,
    counts,
    draws,
    expanded,
    expanded_p,
    half_width,
    improvement,
    interquartile_mean,
    percentile,
    replicate,
    replicate_improvement,
    student,
)
from klip.studies.comparing import welch
from klip.studies.scores import ONE_RUN, Estimate, Paired, ScoreProfile, Scores, Summary

RESAMPLES = 10_000
Method = Literal["t", "percentile", "expanded", "bca"]
NAMES = {
    "t": "Student t",
    "percentile": "percentile bootstrap",
    "expanded": "expanded-percentile bootstrap",
    "bca": "BCa bootstrap",
}
EQUAL = "no width: runs do not differ"
SETTLED = "no width: every resample gives the same"
NO_SCATTER = "no width: neither side scatters"


def summarise(scores: Scores) -> Summary:
    """Mean, sqrt(sum (x - m)^2 / n), sqrt(sum (x - m)^2 / (n - 1)) and IQM of one task's runs.

    >>> print(summarise(Scores.of([1.0, 2.0, 3.0, 4.0, 100.0, None])))
    mean 22, std 39.01, IQM 3, 5 runs, 1 more diverged
    """
    grid = scores.grid
    if len(grid) > 1:
        raise KlipError(f"{len(grid)} tasks have no common deviation; summarise one task at a time")
    return Summary(
        _exact(average(grid), grid),
        0.0 if _equal(grid) else float(grid.std()),
        None if scores.n == 1 else 0.0 if _equal(grid) else float(grid.std(ddof=1)),
        _exact(interquartile_mean(grid), grid),
        scores.n,
        scores.diverged,
        scores.counted,
    )


def mean(
    scores: Scores,
    method: Method = "t",
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """(1 / T) sum_t (1 / N) sum_i x_ti, with Student's interval unless `method` is another.

    >>> print(mean(Scores.of([1.0, 2.0, 3.0])))
    2 [-0.4841, 4.484], 0.95 Student t, 3 runs
    >>> print(mean(Scores.of([2.0])))
    2, 1 run (an interval cannot be known from one run)
    """
    grid = scores.grid
    check_level(level)
    if method == "bca" and len(grid) > 1:
        raise KlipError(f"bca is for one task, not {len(grid)}; choose t, percentile or expanded")
    if scores.n == 1 or _equal(grid):
        ends = None
    elif method == "t":
        ends = student(grid, level)
    else:
        index = draws(grid.shape, resamples, seed)
        if method == "bca":
            ends = bca(grid, average, index, level)
        else:
            ends = _ends(replicate(grid, average, index), method, level, len(grid), scores.n)
    return _estimate(scores, _exact(average(grid), grid), ends, method, level)


def iqm(
    scores: Scores,
    method: Method = "expanded",
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The mean of the middle half of all T N scores, with a stratified bootstrap interval.

    It cuts floor(T N / 4) scores at either end, the tasks pooled, as rliable and
    `scipy.stats.trim_mean(x, 0.25)` do. So normalise first; below four scores it is the mean.

    >>> print(iqm(Scores.of([1.0, 2.0, 3.0, 4.0, 100.0])))  # (2 + 3 + 4) / 3
    3 [1, 100], 0.95 expanded-percentile bootstrap, 5 runs
    """
    grid = scores.grid
    check_level(level)
    ends = None
    if scores.n > 1 and not _equal(grid):
        samples = replicate(grid, interquartile_mean, draws(grid.shape, resamples, seed))
        ends = _ends(samples, method, level, len(grid), scores.n)
    return _estimate(scores, _exact(interquartile_mean(grid), grid), ends, method, level)


def performance_profile(
    scores: Scores,
    taus: ArrayLike,
    method: Method = "expanded",
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> ScoreProfile:
    """F(tau) = (1 / TN) sum_t sum_i [x_ti > tau], with a stratified bootstrap band at each tau.

    Where all runs are above tau, or none is, the band has no width: resampling invents no runs.

    >>> performance_profile(Scores.of([1.0, 2.0, 3.0, 4.0]), taus=[0.0, 2.0, 4.0]).fraction
    array([1. , 0.5, 0. ])
    """
    grid, at = scores.grid, np.atleast_1d(np.asarray(taus, dtype=float))
    check_level(level)
    if at.ndim != 1 or at.size == 0 or not np.isfinite(at).all():
        raise KlipError(f"taus are {at.tolist()}; give a list of thresholds, all of them finite")
    above = (grid.reshape(-1, 1) > at).astype(float)
    low = high = None
    if scores.n > 1:
        weight = counts(draws(grid.shape, resamples, seed)).reshape(resamples, -1) / grid.size
        low, high = _ends((weight @ above).T, method, level, len(grid), scores.n)
    return ScoreProfile(
        at, above.mean(axis=0), low, high, scores.n, NAMES[method], level,
        len(grid), scores.diverged, scores.counted,
    )  # fmt: skip


def probability_of_improvement(
    first: Scores,
    second: Scores,
    method: Method = "expanded",
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """(1 / T) sum_t P(X_t > Y_t) + P(X_t = Y_t) / 2: how likely a run of the first is the better.

    rliable's definition, with its stratified bootstrap: runs of both are resampled in each task.

    >>> print(probability_of_improvement(Scores.of([2.0, 3.0]), Scores.of([1.0, 2.0])).estimate)
    0.875
    """
    x, y = first.grid, second.grid
    check_level(level)
    if len(x) != len(y) or (first.tasks and second.tasks and first.tasks != second.tasks):
        raise KlipError(
            f"the first has {_names(first)} and the second {_names(second)}; "
            "stack the same tasks in both"
        )
    wins = improvement(x, y)
    fewer, ends, p = min(first.n, second.n), None, None
    if fewer > 1:
        picked = draws(x.shape, resamples, seed), draws(y.shape, resamples, seed, stream=1)
        samples = replicate_improvement(wins, *picked)
        ends = _ends(samples, method, level, 2 * len(x), fewer)
        p = float(expanded_p(samples, 0.5, 2 * len(x), fewer))
    low, high = _floats(ends)
    return Estimate(
        float(wins.mean()), low, high, first.n, NAMES[method], level, len(x), second.n,
        first.diverged + second.diverged, first.counted + second.counted,
        ONE_RUN if ends is None else SETTLED if ends[0] == ends[1] else "", p,
    )  # fmt: skip


def difference(first: Scores, second: Scores, level: float = 0.95) -> Estimate:
    """m1 - m2 -+ t_nu sqrt(s1^2 / n1 + s2^2 / n2): Welch's interval over the seeds of either side.

    >>> print(difference(Scores.of([1.0, 2.0, 3.0]), Scores.of([4.0, 5.0, 6.0])))
    -3 [-5.267, -0.733], 0.95 Welch t, p 0.021, 3 runs against 3
    """
    x, y = first.grid, second.grid
    check_level(level)
    if max(len(x), len(y)) > 1:
        raise KlipError("a difference is of one task; give its scores, not those of several")
    gap = _exact(average(x), x) - _exact(average(y), y)
    ends, p, remark = None, None, ONE_RUN
    if min(first.n, second.n) > 1:
        low, high, chance = welch(x[0], y[0], level)
        ends, remark = (low, high), ""
        if _equal(x) and _equal(y):
            ends, remark = (np.asarray(gap), np.asarray(gap)), NO_SCATTER
        else:
            p = float(chance)
    bottom, top = _floats(ends)
    return Estimate(
        gap, bottom,
        top, first.n, "Welch t", level, 1, second.n, first.diverged + second.diverged,
        first.counted + second.counted, remark, p,
    )  # fmt: skip


def paired_difference(
    first: Mapping[int, float | None],
    second: Mapping[int, float | None],
    method: Method = "t",
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Paired:
    """(1 / n) sum_s (x_s - y_s) over the seeds s of both; from seed to score, None if it diverged.

    For scores that a seed makes alike, as runs that share a warm-up are; else `difference` is
    narrower. Seeds that cannot be paired are named.

    >>> print(paired_difference({0: 3.0, 1: 5.0, 2: 7.0}, {0: 1.0, 1: 4.0, 3: 0.0}))
    1.5 [-4.853, 7.853], 0.95 Student t, p 0.2, 2 pairs; only in the first: seed 2; only in the \
second: seed 3
    """
    both = sorted(first.keys() & second.keys())
    pairs = {
        s: (x, y) for s in both if (x := first[s]) is not None and (y := second[s]) is not None
    }
    if not pairs:
        raise KlipError(
            f"no seed has a score in both: the first has seeds {sorted(first)}, the second "
            f"{sorted(second)}; train both with the same seeds"
        )
    for s, pair in pairs.items():
        if not np.isfinite(pair).all():
            raise KlipError(f"the scores of seed {s} are {pair}; a diverged run has None")
    values = np.array([x - y for x, y in pairs.values()])
    apart = mean(Scores(values), method, level, resamples, seed)
    identical = not values.any()
    if identical and len(pairs) > 1:
        apart = replace(apart, remark="no width: all pairs are identical")
    elif apart.remark == EQUAL:
        apart = replace(apart, remark="no width: all differences are equal")
    elif len(pairs) > 1:
        apart = replace(apart, p=float(stats.ttest_1samp(values, 0.0).pvalue))
    return Paired(
        apart,
        tuple(sorted(first.keys() - second.keys())),
        tuple(sorted(second.keys() - first.keys())),
        tuple(s for s in both if s not in pairs),
        identical,
    )


def against_published(
    scores: Scores, published_mean: float, published_std: float, n: int, level: float = 0.95
) -> Estimate:
    """m1 - m2 -+ t_nu sqrt(s1^2 / n1 + sd^2 / (n - 1)): ours minus a published mean and std of n.

    Welch's interval from a table. The published std is the population's (ddof=0), so its
    sample variance over n is sd^2 / (n - 1); nu is Welch and Satterthwaite's.

    >>> print(against_published(Scores.of([1.0, 2.0, 3.0]), 2.0, 0.0, n=5))
    0 [-2.484, 2.484], 0.95 Welch t, 3 runs against 5
    """
    grid = scores.grid
    check_level(level)
    if len(grid) > 1:
        raise KlipError(
            f"a published mean is of one task; give its scores, not those of {len(grid)}"
        )
    if not np.isfinite(published_mean) or not np.isfinite(published_std) or published_std < 0:
        raise KlipError(
            f"the published mean is {published_mean:g} and its std {published_std:g}; "
            "give finite numbers, and a std of at least 0"
        )
    if n < 1:
        raise KlipError(f"the published mean is of n = {n} runs; give how many there were")
    difference = _exact(average(grid), grid) - published_mean
    ends, remark = None, ONE_RUN
    if min(scores.n, n) > 1:
        ours = 0.0 if _equal(grid) else float(grid.var(ddof=1)) / scores.n
        v, freedom = np.array([ours, published_std**2 / (n - 1)]), np.array([scores.n, n]) - 1.0
        reach = half_width(v, freedom, level)
        ends = np.asarray(difference - reach), np.asarray(difference + reach)
        remark = "" if reach > 0 else NO_SCATTER
    low, high = _floats(ends)
    return Estimate(
        difference, low, high, scores.n, "Welch t", level, 1, n,
        scores.diverged, scores.counted, remark,
    )  # fmt: skip


def _ends(samples: Floats, method: Method, level: float, tasks: int, runs: int) -> Interval:
    if method == "percentile":
        return percentile(samples, level)
    if method == "expanded":
        return expanded(samples, level, tasks, runs)
    raise KlipError(f"method is {method}; choose percentile or expanded here")


def _estimate(
    scores: Scores, estimate: float, ends: Interval | None, method: Method, level: float
) -> Estimate:
    remark = ""
    if scores.n == 1:
        remark = ONE_RUN
    elif ends is None:
        ends, remark = (np.asarray(estimate), np.asarray(estimate)), EQUAL
    elif ends[0] == ends[1]:
        remark = SETTLED
    low, high = _floats(ends)
    return Estimate(
        estimate, low, high, scores.n, NAMES[method], level, len(scores.grid), None,
        scores.diverged, scores.counted, remark,
    )  # fmt: skip


def _equal(grid: Floats) -> bool:
    """Whether the runs of every task score alike; they are sorted, so the ends tell."""
    return bool((grid[:, 0] == grid[:, -1]).all())


def _exact(estimate: Floats, grid: Floats) -> float:
    """Equal scores average to themselves, which a sum of floats may miss by a bit."""
    return float(grid[0, 0]) if grid.min() == grid.max() else float(estimate)


def _floats(ends: Interval | None) -> tuple[float, float] | tuple[None, None]:
    return (None, None) if ends is None else (float(ends[0]), float(ends[1]))


def _names(scores: Scores) -> str:
    return (
        ", ".join(scores.tasks)
        if scores.tasks
        else "1 task"
        if len(scores.grid) == 1
        else f"{len(scores.grid)} tasks"
    )
