"""How shapes are best compared with a reference: by simulation, and on the runs in `results/`.

    nice python benchmarks/comparisons.py [--repetitions 4000] [--quick]

Three questions. Which 95 % interval of a difference is narrowest and still covers: paired by seed,
Welch's, or with a variance pooled over two shapes or over all? How often does a study of twelve
equal shapes claim a difference, as it is and with Holm's correction? And how often is a real one
found? Writes `benchmarks/results/comparisons.json` and prints tables: two minutes on one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from coverage import POINTS, populations
from rich.console import Console
from rich.table import Table
from scipy import stats

from klip.studies.arms import arms_of, final, over_training
from klip.studies.bootstrap import Floats, Interval, student
from klip.studies.comparing import CLAIM, holm, welch
from klip.studies.reading import read_study

LEVEL, SEEDS = 0.95, (3, 5, 10, 20)
SHAPES = 11  # compared with a reference
CORRELATIONS = (0.0, 0.5, 0.9)  # of the normal scores behind two shapes' returns at one seed
SPREADS = (1.0, 3.0, 10.0)  # deviation of a shape over that of the reference; ours reach 27
TASKS = (1, 4, 7)
SHIFT = 3.0  # deviations by which the one shape of the last question is better
RESULTS = Path(__file__).parent / "results" / "comparisons.json"
RUNS = Path(__file__).parents[1] / "results"

Row = dict[str, Any]


def returns(
    population: Floats, shape: tuple[int, ...], correlation: float, generator: np.random.Generator
) -> Floats:
    """Scores `[..., arms, seeds]` of a population, arms of one seed being correlated."""
    common = generator.standard_normal((*shape[:-2], 1, shape[-1]))
    own = generator.standard_normal(shape)
    z = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
    ordered = np.sort(population) - population.mean()
    return np.asarray(ordered[np.minimum((stats.norm.cdf(z) * POINTS).astype(int), POINTS - 1)])


# -- which interval -------------------------------------------------------------------------------


def paired(arms: Floats) -> Interval:
    """Student's interval of the differences at each seed, of the first two arms."""
    return student((arms[..., 0, :] - arms[..., 1, :])[..., None, :], LEVEL)


def unpaired(arms: Floats) -> Interval:
    """Welch's interval, of the first two arms."""
    low, high, _ = welch(arms[..., 0, :], arms[..., 1, :], LEVEL)
    return low, high


def pooled(count: int | None) -> Callable[[Floats], Interval]:
    """Student's interval with the mean variance of the first `count` arms, or of all."""

    def interval(arms: Floats) -> Interval:
        n, k = arms.shape[-1], count or arms.shape[-2]
        variance = arms[..., :k, :].var(axis=-1, ddof=1).mean(axis=-1)
        reach = stats.t.ppf((1 + LEVEL) / 2, k * (n - 1)) * np.sqrt(2 * variance / n)
        gap = arms[..., 0, :].mean(axis=-1) - arms[..., 1, :].mean(axis=-1)
        return gap - reach, gap + reach

    return interval


METHODS: dict[str, Callable[[Floats], Interval]] = {
    "paired": paired,
    "Welch": unpaired,
    "pooled over two": pooled(2),
    "pooled over all": pooled(None),
}


def coverages(repetitions: int) -> Iterator[Row]:
    """How often each interval holds the difference 0, and how wide it is beside Welch's."""
    cases = itertools.product(populations().items(), SEEDS, CORRELATIONS, SPREADS)
    for (name, population), seeds, correlation, spread in cases:
        generator = np.random.Generator(np.random.Philox(key=np.array([seeds, 7], dtype="u8")))
        size = (repetitions, SHAPES + 1, seeds)
        arms = returns(population, size, correlation, generator)
        # The first shape scatters most, the reference (the second) least, the others in between.
        arms *= np.array([spread, 1.0, *np.geomspace(1.0, spread, SHAPES - 1)])[:, None]
        ends = {method: interval(arms) for method, interval in METHODS.items()}
        width = {method: float(np.mean(high - low)) for method, (low, high) in ends.items()}
        for method, (low, high) in ends.items():
            yield {
                "population": name, "seeds": seeds, "correlation": correlation, "spread": spread,
                "method": method, "covered": float(np.mean((low <= 0) & (high >= 0))),
                "width": width[method] / width["Welch"],
            }  # fmt: skip


def ours() -> Iterator[Row]:
    """The same widths on the runs in `results/`, over all pairs of shapes that differ."""
    study, tokens = read_study(RUNS / "paper"), read_study(RUNS / "tokens")
    by_task = [study.of(task) for task in study.tasks]
    groups = {
        "PPO, final return": [[[r.final for r in v.runs] for v in task] for task in by_task],
        "PPO, over training": [
            [[r.over_training for r in v.runs] for v in task] for task in by_task
        ],
    }
    arms = arms_of(tokens)
    names = dict.fromkeys(arm.group for arm in arms)
    for what, score in (("final accuracy", final), ("over training", over_training)):
        groups[f"tokens, {what}"] = [
            [[score(r) for r in arm.ended] for arm in arms if arm.group == name] for name in names
        ]
    for what, tables in groups.items():
        correlations, widths = [], []
        for table in tables:
            distinct = [np.array(scores) for scores in dict.fromkeys(map(tuple, table))]
            for x, y in itertools.combinations(distinct, 2):
                correlations.append(np.corrcoef(x, y)[0, 1])
                both = np.stack([x, y])
                ends = [METHODS[m](both) for m in ("paired", "pooled over two", "Welch")]
                widths.append([float(high - low) for low, high in ends])
        width = np.array(widths)
        ratio = width[:, :2] / width[:, 2:]
        yield {
            "runs": what, "pairs": len(widths), "correlation": float(np.mean(correlations)),
            "paired_mean": float(ratio[:, 0].mean()),
            "paired_median": float(np.median(ratio[:, 0])),
            "pooled_mean": float(ratio[:, 1].mean()),
        }  # fmt: skip


# -- how many claims ------------------------------------------------------------------------------


def claims(repetitions: int) -> Iterator[Row]:
    """Shares of null studies that claim anything, and of one better shape that is found."""
    cases = itertools.product(populations().items(), SEEDS, TASKS, SPREADS[:2])
    for (name, population), seeds, tasks, spread in cases:
        generator = np.random.Generator(np.random.Philox(key=np.array([seeds, tasks], dtype="u8")))
        arms = returns(population, (repetitions, tasks, SHAPES + 1, seeds), 0.0, generator)
        arms *= np.geomspace(1.0, spread, SHAPES + 1)[:, None]
        null = p_values(arms)
        arms[:, 0, 1] += SHIFT
        moved = {test: p.reshape(repetitions, -1) for test, p in p_values(arms).items()}
        for test, p in null.items():
            flat = p.reshape(repetitions, -1)
            by_task = holm(p).reshape(repetitions, -1)
            for how, of, found in (
                ("none", flat, moved[test]),
                ("Holm, task by task", by_task, None),
                ("Holm", holm(flat), holm(moved[test])),
            ):
                yield {
                    "population": name, "seeds": seeds, "tasks": tasks, "spread": spread,
                    "test": test, "correction": how,
                    "wrong": float(np.mean((of <= CLAIM).any(axis=-1))),
                    "found": None if found is None else float(np.mean(found[:, 0] <= CLAIM)),
                }  # fmt: skip


def p_values(arms: Floats) -> dict[str, Floats]:
    """Of each shape against the first arm, `[..., shapes]`, unpaired and paired."""
    reference, others = arms[..., :1, :], arms[..., 1:, :]
    gaps = others - reference
    error = np.sqrt(gaps.var(axis=-1, ddof=1) / gaps.shape[-1])
    t = np.abs(gaps.mean(axis=-1)) / np.maximum(error, 1e-300)
    *_, unpaired_p = welch(others, np.broadcast_to(reference, others.shape), LEVEL)
    return {"Welch": unpaired_p, "paired": 2 * stats.t.sf(t, gaps.shape[-1] - 1)}


# -- tables and record ----------------------------------------------------------------------------


def spans(rows: list[Row], keys: tuple[str, ...], value: str, title: str) -> Table:
    """The range over populations of a share, in per cent: a column per number of seeds."""
    shown = Table(title=title)
    for key in keys:
        shown.add_column(key)
    for seeds in SEEDS:
        shown.add_column(f"{seeds} seeds", justify="right")
    for case in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        mine = [row for row in rows if tuple(row[key] for key in keys) == case]
        cells = []
        for seeds in SEEDS:
            known = [100 * r[value] for r in mine if r["seeds"] == seeds and r[value] is not None]
            cells.append(f"{min(known):.1f}-{max(known):.1f}" if known else "")
        if any(cells):
            shown.add_row(*map(str, case), *cells)
    return shown


def write(record: dict[str, Any]) -> None:
    """The record, a line per simulation."""
    parts = []
    for name, rows in record.items():
        short = [
            {key: round(x, 5) if isinstance(x, float) else x for key, x in row.items()}
            for row in rows
        ]
        lines = ",\n".join("  " + json.dumps(row) for row in short)
        parts.append(f'"{name}": [\n{lines}\n]')
    head = f'"level": {LEVEL}, "claim": {CLAIM}, "shapes": {SHAPES}, "shift": {SHIFT}'
    RESULTS.write_text(f"{{{head},\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Simulate, print the tables, and write the record."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--repetitions", type=int, default=4000)
    options.add_argument("--quick", action="store_true", help="400 repetitions; writes nothing")
    chosen = options.parse_args()
    began = time.perf_counter()
    repetitions = 400 if chosen.quick else chosen.repetitions
    intervals, made = list(coverages(repetitions)), list(claims(repetitions))
    real = list(ours())
    console = Console(width=110)
    by_method = ("method", "correlation", "spread")
    console.print(spans(intervals, by_method, "covered", "Coverage of 95 % intervals, in per cent"))
    console.print(spans(intervals, by_method, "width", "Their width, in per cent of Welch's"))
    by_test = ("test", "correction", "tasks", "spread")
    console.print(spans(made, by_test, "wrong", "Null studies that claim something, in per cent"))
    console.print(spans(made, by_test, "found", "A better shape that is found, in per cent"))
    for row in real:
        console.print(row)
    console.print(f"{time.perf_counter() - began:.0f} s")
    if not chosen.quick:
        write({"intervals": intervals, "claims": made, "ours": real})


if __name__ == "__main__":
    main()
