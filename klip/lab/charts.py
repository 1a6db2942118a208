"""What the page's charts draw, as plain data in the form that the report's script takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from klip.draw.palette import dash
from klip.lab.results import Arm, average
from klip.studies.learning import Band, band, thinned
from klip.studies.study import Column

Chart = dict[str, Any]
ALONG = "completions sampled"


def over_training(
    arms: Sequence[Arm], slots: Mapping[str, int], metric: str, y: str, file: str
) -> Chart:
    """A metric against completions: mean over seeds, and a band of one deviation."""
    series = []
    for arm in arms:
        found = band(arm.ended, metric)
        if found is not None:
            found = _with_start(arm, found) if metric in ("held_out", "greedy") else found
            series.append(_line(arm.name, slots[arm.name], thinned(found)))
    return {"kind": "lines", "along": ALONG, "y": y, "zero": True, "file": file, "series": series}


def by_age(arms: Sequence[Arm], slots: Mapping[str, int], metric: str, y: str, file: str) -> Chart:
    """A metric of each age, averaged over training: mean over seeds, band of one deviation."""
    series = []
    for arm in arms:
        rows = [_means(run.metrics[metric]) for run in arm.ended]
        if not rows:
            continue
        values = np.stack(rows)
        ages = np.arange(values.shape[1], dtype=float)
        made = Band(ages, values.mean(0), values.std(0), np.full(len(ages), float(len(rows))))
        series.append(_line(arm.name, slots[arm.name], made))
    return {"kind": "lines", "along": "age, in iterations", "y": y, "zero": True, "file": file,
            "series": series}  # fmt: skip


def age_shares(arms: Sequence[Arm]) -> list[float]:
    """The share of tokens of each age, over all updates of all runs."""
    rows = [run.metrics["age_share"].mean(axis=0) for arm in arms for run in arm.ended]
    return [float(x) for x in np.mean(rows, axis=0)] if rows else []


def span_shares(arm: Arm) -> dict[str, float | None]:
    """Kill and pass in the answer and in the reasoning, over training and seeds."""
    names = [f"{span}_{part}" for part in ("kill", "pass") for span in ("answer", "reasoning")]
    found = {name: arm.estimate(average(name)) for name in names}
    return {name: None if e is None else e.estimate for name, e in found.items()}


def _means(values: Column) -> Column:
    """Of each column, over the rows that have a value; NaN where none has."""
    there = ~np.isnan(values)
    count = there.sum(axis=0)
    total = np.where(there, values, 0.0).sum(axis=0)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _with_start(arm: Arm, found: Band) -> Band:
    """The curve with the warm-up as its first point."""
    first = np.array([run.metrics["start_held_out"][0] for run in arm.ended])
    return Band(
        np.concatenate([[0.0], found.steps]),
        np.concatenate([[first.mean()], found.mean]),
        np.concatenate([[first.std()], found.std]),
        np.concatenate([[float(len(first))], found.seeds]),
    )


def _line(label: str, slot: int, found: Band) -> dict[str, Any]:
    counts = [int(n) for n in found.seeds]
    line: dict[str, Any] = {
        "label": label, "slot": slot, "x": [int(x) for x in found.steps], "y": _short(found.mean),
        "n": counts[0] if len(set(counts)) == 1 else counts, "dash": dash(slot), "shown": True,
    }  # fmt: skip
    if max(counts) > 1:
        line["low"] = _short(np.maximum(found.mean - found.std, 0.0))
        line["high"] = _short(found.mean + found.std)
    return line


def _short(values: Iterable[Any]) -> list[float | None]:
    return [None if np.isnan(x) else float(f"{x:.5g}") for x in values]
