"""How often a 95 % interval over seeds holds the truth: by simulation, for 3, 5, 10 and 20 seeds.

    nice python benchmarks/coverage.py [--repetitions 2000] [--quick]

A population is an array of scores whose mean and IQM are therefore known exactly. Again and again
seeds are drawn from it, an interval is made by the code that reports use, and one counts how often
the truth lies within. Writes `benchmarks/results/coverage.json` and prints the table: four minutes
on one core. A share of 2000 is uncertain by half a point.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from klip.studies.bootstrap import (
    Floats,
    Interval,
    Statistic,
    average,
    bca,
    draws,
    expanded,
    improvement,
    interquartile_mean,
    percentile,
    replicate,
    replicate_improvement,
    student,
)

LEVEL, RESAMPLES, SEEDS, TASKS = 0.95, 2000, (3, 5, 10, 20), 7
POINTS = 200_000  # of a population
CHUNK = 2e7  # scores that are resampled at once
THRESHOLD = 1.5  # of the profile: the level of the middle task
SHIFT = 0.5  # deviations by which the one side of a comparison is the better
RESULTS = Path(__file__).parent / "results" / "coverage.json"


def populations() -> dict[str, Floats]:
    """Scores `[POINTS]` with a standard deviation of 1 (nearly, where tails are heavy)."""

    def grid(points: int) -> Floats:
        return np.asarray((np.arange(points) + 0.5) / points)

    failing = POINTS // 5  # one seed in five learns next to nothing
    failed, learned = stats.norm.ppf(grid(failing)), stats.norm.ppf(grid(POINTS - failing))
    named = {
        "normal": stats.norm.ppf(grid(POINTS)),
        "lognormal": np.exp(stats.norm.ppf(grid(POINTS))),
        "bimodal": np.concatenate([0.1 + 0.05 * failed, 1.0 + 0.15 * learned]),
        "student t3": stats.t.ppf(grid(POINTS), 3),
    }
    return {name: values / values.std() for name, values in named.items()}


def task_populations(population: Floats, tasks: int) -> Floats:
    """`[tasks, POINTS]`: tasks differ in level (3 deviations in all) and in spread (threefold)."""
    if tasks == 1:
        return population[None]
    level, spread = np.linspace(0, 3, tasks), np.linspace(0.5, 1.5, tasks)
    return level[:, None] + spread[:, None] * population


Method = Callable[[Floats], Interval]


def resampled(statistic: Statistic, wider: bool) -> Method:
    """The bootstrap interval of a statistic, with percentiles as they are or expanded."""

    def interval(values: Floats) -> Interval:
        tasks, runs = values.shape[-2:]
        replicates = replicate(values, statistic, draws((tasks, runs), RESAMPLES, seed=0))
        if wider:
            return expanded(replicates, LEVEL, tasks, runs)
        return percentile(replicates, LEVEL)

    return interval


def bias_corrected(values: Floats) -> Interval:
    """The BCa interval of the mean."""
    return bca(values, average, draws(values.shape[-2:], RESAMPLES, seed=0), LEVEL)


def better(wider: bool) -> Method:
    """The interval of the probability of improvement; its two sides are halves of the runs."""

    def interval(values: Floats) -> Interval:
        tasks, runs = values.shape[-2], values.shape[-1] // 2
        wins = improvement(values[..., :runs], values[..., runs:])
        picked = (draws((tasks, runs), RESAMPLES, seed=0, stream=side) for side in (0, 1))
        replicates = replicate_improvement(wins, *picked)
        if wider:
            return expanded(replicates, LEVEL, 2 * tasks, runs)
        return percentile(replicates, LEVEL)

    return interval


def above_threshold(values: Floats) -> Floats:
    """A point of the performance profile."""
    return np.asarray((values > THRESHOLD).mean(axis=(-2, -1)))


def chance(of_tasks: Floats) -> Floats:
    """The probability that a draw plus SHIFT spreads is above another draw."""
    ordered = np.sort(of_tasks, axis=-1)
    ends = [
        [np.searchsorted(p, p + SHIFT * p.std(), side) for side in ("left", "right")]
        for p in ordered
    ]
    return np.asarray(np.mean(ends) / ordered.shape[-1])


class Case(NamedTuple):
    """An interval to try: its statistic, how many tasks it pools, and how it is computed."""

    statistic: str
    method: str
    tasks: int
    interval: Method


STATISTICS: dict[str, Statistic] = {
    "mean": average,
    "iqm": interquartile_mean,
    "profile": above_threshold,
    "improvement": chance,
}
CASES = (
    Case("mean", "t", 1, lambda values: student(values, LEVEL)),
    Case("mean", "percentile", 1, resampled(average, wider=False)),
    Case("mean", "expanded", 1, resampled(average, wider=True)),
    Case("mean", "bca", 1, bias_corrected),
    Case("mean", "t", TASKS, lambda values: student(values, LEVEL)),
    Case("mean", "percentile", TASKS, resampled(average, wider=False)),
    Case("iqm", "percentile", 1, resampled(interquartile_mean, wider=False)),
    Case("iqm", "expanded", 1, resampled(interquartile_mean, wider=True)),
    Case("iqm", "percentile", TASKS, resampled(interquartile_mean, wider=False)),
    Case("iqm", "expanded", TASKS, resampled(interquartile_mean, wider=True)),
    Case("profile", "percentile", TASKS, resampled(above_threshold, wider=False)),
    Case("profile", "expanded", TASKS, resampled(above_threshold, wider=True)),
    Case("improvement", "percentile", 1, better(wider=False)),
    Case("improvement", "expanded", 1, better(wider=True)),
    Case("improvement", "percentile", TASKS, better(wider=False)),
    Case("improvement", "expanded", TASKS, better(wider=True)),
)


class Coverage(NamedTuple):
    """The shares of intervals that hold the truth, that lie below it and that lie above it."""

    statistic: str
    method: str
    tasks: int
    population: str
    seeds: int
    repetitions: int
    covered: float
    error: float
    truth_above: float
    truth_below: float
    mean_width: float


def simulate(case: Case, name: str, population: Floats, seeds: int, repetitions: int) -> Coverage:
    """Draw seeds and make the interval, `repetitions` times; how often it holds the truth."""
    of_tasks = task_populations(population, case.tasks)
    truth = float(STATISTICS[case.statistic](of_tasks))
    generator = np.random.Generator(np.random.Philox(key=np.array([seeds, case.tasks], dtype="u8")))
    sides = 2 if case.statistic == "improvement" else 1
    chunk = max(1, int(CHUNK / (RESAMPLES * case.tasks * seeds)))
    lows, highs = [], []
    for start in range(0, repetitions, chunk):
        size = (min(chunk, repetitions - start), case.tasks, sides * seeds)
        picked = generator.integers(population.size, size=size)
        values = of_tasks[np.arange(case.tasks)[:, None], picked]
        if sides == 2:
            values[..., :seeds] += SHIFT * of_tasks.std(axis=-1)[:, None]
        # A report's resamples depend on its seed alone: here every repetition has the same ones.
        low, high = case.interval(values)
        lows.append(low)
        highs.append(high)
    low, high = np.concatenate(lows), np.concatenate(highs)
    # A hair of tolerance: shares are sums of floats, and an end that is the truth holds it.
    above, below = float(np.mean(truth > high + 1e-9)), float(np.mean(truth < low - 1e-9))
    covered = 1 - above - below
    error = float(np.sqrt(covered * (1 - covered) / repetitions))
    return Coverage(
        case.statistic, case.method, case.tasks, name, seeds, repetitions,
        covered, error, above, below, float(np.mean(high - low)),
    )  # fmt: skip


def everything(repetitions: int) -> Iterator[Coverage]:
    """All cases, populations and numbers of seeds."""
    for case in CASES:
        for name, population in populations().items():
            for seeds in SEEDS:
                yield simulate(case, name, population, seeds, repetitions)


def table(coverages: list[Coverage]) -> Table:
    """Coverage in per cent: a row per interval and population, a column per number of seeds."""
    shown = Table(title=f"Coverage of {LEVEL:.0%} intervals, in per cent")
    for heading in ("statistic", "method", "tasks", "population"):
        shown.add_column(heading)
    for seeds in SEEDS:
        shown.add_column(f"{seeds} seeds", justify="right")
    cells = {row[:5]: row.covered for row in coverages}
    for key in dict.fromkeys(row[:4] for row in coverages):
        shown.add_row(*map(str, key), *(f"{100 * cells[(*key, n)]:.1f}" for n in SEEDS))
    return shown


def write(coverages: list[Coverage]) -> None:
    """The record, a line per simulation."""
    rows = [
        {key: round(x, 6) if isinstance(x, float) else x for key, x in row._asdict().items()}
        for row in coverages
    ]
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    head = f'"level": {LEVEL}, "resamples": {RESAMPLES}'
    RESULTS.write_text(f'{{{head}, "coverage": [\n{lines}\n]}}\n', encoding="utf-8")


def main() -> None:
    """Simulate, print the table, and write the record."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--repetitions", type=int, default=2000)
    options.add_argument("--quick", action="store_true", help="400 repetitions; writes nothing")
    chosen = options.parse_args()
    began = time.perf_counter()
    coverages = list(everything(400 if chosen.quick else chosen.repetitions))
    console = Console(width=100)
    console.print(table(coverages))
    console.print(f"{time.perf_counter() - began:.0f} s")
    if not chosen.quick:
        write(coverages)


if __name__ == "__main__":
    main()
