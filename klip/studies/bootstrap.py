"""Resampling runs within each task, and the intervals that are read from it.

Scores are `[..., tasks, runs]`: whatever stands before those two axes is a batch, so that a
simulation over thousands of data sets (`benchmarks/coverage.py`) runs the code that a report runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from klip.errors import KlipError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Statistic = Callable[[Floats], Floats]
"""`[..., tasks, runs]` to `[...]`."""
Interval = tuple[Floats, Floats]
"""Low and high ends, each `[...]`."""

TIE = 1e-12  # of the largest score: a resample that permutes the sample sums in another order


def check_level(level: float) -> None:
    """Raise unless `level` is a probability; a percentage is none."""
    if not 0 < level < 1:
        raise KlipError(f"level is {level:g}; give a probability such as 0.95")


def draws(shape: tuple[int, ...], resamples: int, seed: int, stream: int = 0) -> Indices:
    """index[b, t, i] ~ U{0, ..., runs - 1}: which run stands at place i of task t in resample b.

    Runs are drawn within their task (that is the stratification): tasks are fixed, seeds are not.
    Counter-based (Philox), so `(seed, stream)` decides every draw.

    >>> draws((2, 3), resamples=1000, seed=0).shape  # of scores [2 tasks, 3 runs]
    (1000, 2, 3)
    """
    if resamples < 1:
        raise KlipError(f"resamples is {resamples}; give at least 1, better 2000")
    if not 0 <= seed < 2**64:
        raise KlipError(f"seed is {seed}; give a whole number from 0 to 2**64 - 1")
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, stream], dtype="u8")))
    return generator.integers(shape[-1], size=(resamples, *shape))


def counts(index: Indices) -> Floats:
    """count[b, t, i]: how often run i of task t is in resample b.

    >>> counts(np.array([[[0, 2, 2]]]))
    array([[[1., 0., 2.]]])
    """
    runs = index.shape[-1]
    rows = np.arange(index.size // runs).reshape(*index.shape[:-1], 1)
    return (
        np.bincount((rows * runs + index).ravel(), minlength=index.size)
        .reshape(index.shape)
        .astype(float)
    )


def replicate(values: Floats, statistic: Statistic, index: Indices) -> Floats:
    """theta*[..., b] = statistic of the b-th resample of values `[..., tasks, runs]`."""
    return statistic(values[..., np.arange(values.shape[-2])[:, None], index])


def average(values: Floats) -> Floats:
    """(1 / TN) sum_t sum_i x_ti: with as many runs in each task, the mean of the tasks' means."""
    return np.asarray(values.mean(axis=(-2, -1)))


def interquartile_mean(values: Floats) -> Floats:
    """(1 / (M - 2c)) sum_{k=c+1}^{M-c} x_(k), c = floor(M / 4), over all M = TN scores together.

    The convention of rliable and of `scipy.stats.trim_mean(x, 0.25)`: whole scores are cut, and
    tasks are pooled. So below four scores nothing is cut and the IQM is the mean.

    >>> float(interquartile_mean(np.array([[1.0, 2.0, 3.0, 100.0]])))  # (2 + 3) / 2
    2.5
    """
    pooled = np.sort(values.reshape(*values.shape[:-2], -1), axis=-1)
    cut = pooled.shape[-1] // 4
    return np.asarray(pooled[..., cut : pooled.shape[-1] - cut].mean(axis=-1))


def improvement(first: Floats, second: Floats) -> Floats:
    """wins[..., t, i, j] = 1 if x_ti > y_tj, 1/2 if they are equal, 0 otherwise.

    >>> improvement(np.array([[1.0, 2.0]]), np.array([[1.0]]))
    array([[[0.5],
            [1. ]]])
    """
    x, y = first[..., :, None], second[..., None, :]
    return 0.5 * ((x > y).astype(float) + (x >= y))


def replicate_improvement(wins: Floats, first: Indices, second: Indices) -> Floats:
    """theta*[..., b] = (1 / T) sum_t (1 / NM) sum_ij wins[t, first[b, t, i], second[b, t, j]]."""
    left, right = counts(first), counts(second)
    total: Floats = np.zeros(())
    for t in range(wins.shape[-3]):
        total = total + ((left[:, t] @ wins[..., t, :, :]) * right[:, t]).sum(axis=-1)
    return total / np.prod(wins.shape[-3:])


def _quantile(ordered: Floats, q: Floats) -> Floats:
    """The q-quantile of each row, one q per row, linear between order statistics."""
    place = np.clip(q, 0, 1) * (ordered.shape[-1] - 1)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, ordered.shape[-1] - 1)
    low = np.take_along_axis(ordered, below[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(ordered, above[..., None], axis=-1)[..., 0]
    return np.asarray(low + (place - below) * (high - low))


def percentile(replicates: Floats, level: float) -> Interval:
    """[Q(a/2), Q(1 - a/2)] of theta*, a = 1 - level, from replicates `[..., resamples]`.

    >>> low, high = percentile(np.arange(101.0), level=0.9)
    >>> round(float(low), 9), round(float(high), 9)
    (5.0, 95.0)
    """
    tail = (1 - level) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail], axis=-1)
    return low, high


def expanded(replicates: Floats, level: float, tasks: int, runs: int) -> Interval:
    """[Q(a'/2), Q(1 - a'/2)] of theta*, a'/2 = Phi(-t_nu sqrt(N / (N - 1))), nu = T (N - 1).

    Hesterberg's percentile interval (2015) for small samples. Resampled runs scatter by
    sqrt((N - 1) / N) too little, and their scatter is itself uncertain: the percentiles are moved
    outward by as much as would make the interval of a normal mean Student's.

    >>> replicates = np.linspace(-1, 1, 10001)
    >>> low, _ = expanded(replicates, level=0.95, tasks=7, runs=3)  # Phi(-2.145 * 1.225) = 0.0043
    >>> round((float(low) + 1) / 2, 4)
    0.0043
    """
    check_level(level)
    reach = stats.t.ppf((1 + level) / 2, tasks * (runs - 1)) * np.sqrt(runs / (runs - 1))
    return percentile(replicates, float(1 - 2 * stats.norm.cdf(-reach)))


def expanded_p(replicates: Floats, null: float, tasks: int, runs: int) -> Floats:
    """1 minus the level at which an end of the `expanded` interval just reaches `null`.

    >>> spread = np.linspace(-1, 1, 10001)
    >>> low, _ = expanded(spread, level=0.95, tasks=7, runs=3)
    >>> round(float(expanded_p(spread, float(low), tasks=7, runs=3)), 2)
    0.05
    """
    least = 1 / (replicates.shape[-1] + 1)  # no tail is known better than that
    below, above = (np.mean(side, axis=-1) for side in (replicates <= null, replicates >= null))
    tail = np.clip(np.minimum(below, above), least, 0.5)
    reach = -stats.norm.ppf(tail) / np.sqrt(runs / (runs - 1))
    return np.asarray(2 * stats.t.sf(reach, tasks * (runs - 1)))


def bca(values: Floats, statistic: Statistic, index: Indices, level: float) -> Interval:
    """[Q(p(z_{a/2})), Q(p(z_{1-a/2}))] of theta*, p(z) = Phi(z0 + (z0 + z) / (1 - g (z0 + z))).

    Bias-corrected and accelerated (Efron 1987), for one task: values are `[..., 1, runs]`.
    z0 = Phi^-1(P(theta* < theta) + P(theta* = theta) / 2) is the bias of the median, and
    g = sum_i d_i^3 / (6 (sum_i d_i^2)^1.5) the acceleration, d_i being how far the statistic
    without run i lies below the mean of all such.

    >>> sample = np.array([[1.0, 2.0, 3.0, 4.0, 15.0]])
    >>> index = draws(sample.shape, resamples=2000, seed=0)
    >>> low, high = bca(sample, average, index, level=0.95)
    >>> plain_low, plain_high = percentile(replicate(sample, average, index), level=0.95)
    >>> bool(low > plain_low and high > plain_high)  # a long right tail moves both ends right
    True
    """
    check_level(level)
    runs = values.shape[-1]
    theta = statistic(values)[..., None]
    ordered = np.sort(replicate(values, statistic, index), axis=-1)
    near = TIE * np.max(np.abs(ordered), axis=-1, keepdims=True)
    below = np.mean(ordered < theta - near, axis=-1)
    above = np.mean(ordered > theta + near, axis=-1)
    half = 0.5 / ordered.shape[-1]  # a share of 0 or 1 has no normal quantile
    z0 = stats.norm.ppf(np.clip((1 + below - above) / 2, half, 1 - half))
    others = np.nonzero(~np.eye(runs, dtype=bool))[1].reshape(runs, 1, runs - 1)
    without = replicate(values, statistic, others)
    d = without.mean(axis=-1, keepdims=True) - without
    spread = np.sum(d**2, axis=-1) ** 1.5
    g = np.sum(d**3, axis=-1) / np.where(spread > 0, 6 * spread, 1)

    def end(z: float) -> Floats:
        return _quantile(ordered, stats.norm.cdf(z0 + (z0 + z) / (1 - g * (z0 + z))))

    z = float(stats.norm.ppf((1 + level) / 2))
    return end(-z), end(z)


def student(values: Floats, level: float) -> Interval:
    """m -+ t_nu se, se^2 = sum_t v_t, v_t = s_t^2 / (N T^2), nu = (sum v_t)^2 / sum v_t^2/(N - 1).

    Student's interval of the mean where there is one task (nu = N - 1); of the mean over tasks
    otherwise, with the degrees of freedom of Welch and Satterthwaite. s_t has ddof=1.

    >>> low, high = student(np.array([[1.0, 2.0, 3.0]]), level=0.95)  # 2 -+ 4.3027 / sqrt(3)
    >>> round(float(low), 4), round(float(high), 4)
    (-0.4841, 4.4841)
    """
    check_level(level)
    tasks, runs = values.shape[-2:]
    v = values.var(axis=-1, ddof=1) / runs / tasks**2
    middle = average(values)
    reach = half_width(v, np.full(tasks, runs - 1.0), level)
    return middle - reach, middle + reach


def half_width(v: Floats, freedom: Floats, level: float) -> Any:
    """t_nu sqrt(sum v) over the last axis of v, nu being `satterthwaite`'s."""
    total, nu = satterthwaite(v, freedom)
    return stats.t.ppf((1 + level) / 2, nu) * np.sqrt(total)


def satterthwaite(v: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """sum v and nu = (sum v)^2 / sum(v^2 / freedom), over the last axis of v; nu is 1 where v is 0.

    >>> total, nu = satterthwaite(np.array([1.0, 1.0]), np.array([4.0, 4.0]))
    >>> float(total), float(nu)
    (2.0, 8.0)
    """
    total, squares = v.sum(axis=-1), (v**2 / freedom).sum(axis=-1)
    known = squares > 0
    return total, np.where(known, total**2 / np.where(known, squares, 1), 1.0)
