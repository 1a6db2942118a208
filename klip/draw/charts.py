"""What the page's charts draw, as plain data: the page's script makes Plotly figures of it.

Numbers are rounded to six digits and thinned to what a screen can show; never smoothed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from klip.draw.figures import FAN, clip_runs, is_log, per_sample_runs
from klip.draw.palette import dash, on_another, shown_at_first, slots
from klip.studies.across import Across, PooledShape, below
from klip.studies.learning import Band, band, overlaid, thinned
from klip.studies.published import (
    algorithm,
    published_curve,
    published_peak_kill,
    why_not_compared,
)
from klip.studies.study import Study, Variant
from klip.studies.tables import Final as FinalReturns
from klip.studies.tables import Sweep

Chart = dict[str, Any]


def learning_chart(study: Study, task: str) -> Chart | None:
    """Episode return of every variant of a task, and the published curves below them."""
    colours = slots(study)
    series: list[dict[str, Any]] = []
    drawn: list[Band] = []
    members = study.of(task)
    shown = shown_at_first(study)
    for variant in members:
        found = band(variant.runs, "return_mean")
        if found is None:
            continue
        found, slot = thinned(found), colours[variant.label]
        below = overlaid(found, drawn)
        drawn.append(found)
        at_first = variant.label in shown
        series += _published(variant, slot, at_first)
        line = _line(variant.label, slot, found, band=not below)
        line["dash"] = "{}px,{}px".format(*on_another(below)) if below else dash(slot)
        series.append({**line, "shown": at_first})
    if not drawn:
        return None
    return {"kind": "lines", "y": "episode return", "file": f"learning-{task}", "series": series}


def partition_chart(study: Study, task: str) -> tuple[Chart, Variant] | None:
    """Kill and pass fractions of PPO-Clip."""
    variant = clip_runs(study, task)
    if variant is None:
        return None
    series = []
    for metric in ("kill", "pass"):
        found = band(variant.runs, metric)
        if found is not None:
            line = _line(metric, metric, thinned(found))
            line["low"] = [max(low, 0) for low in line.get("low", ())]  # no fraction is below 0
            series.append({**line, "dash": "solid", "shown": True})
    chart: Chart = {"kind": "lines", "y": "fraction of samples", "zero": True,
                    "file": f"partition-{task}", "series": series}  # fmt: skip
    peak = published_peak_kill(task)
    if peak is not None and not why_not_compared(task, variant.shape, variant.settings):
        chart["level"] = {"y": peak, "text": f"published peak {peak:.1%}"}
    return chart, variant


def beta_chart(study: Study, task: str) -> tuple[Chart, Variant] | None:
    """Quantiles of the per-sample coefficient, averaged over seeds."""
    variant = per_sample_runs(study, task)
    found = band(variant.runs, "beta") if variant is not None else None
    if variant is None or found is None or found.mean.ndim != 2 or found.mean.shape[1] != 9:
        return None
    found = thinned(found)
    fans = [
        {"label": name, "low": _rounded(found.mean[:, low]), "high": _rounded(found.mean[:, high])}
        for low, high, name, _ in FAN
    ]
    return {
        "kind": "fan", "y": "coefficient β", "file": f"beta-{task}", "x": _steps(found.steps),
        "median": _rounded(found.mean[:, 4]), "fans": fans,
    }, variant  # fmt: skip


def sweep_chart(sweep: Sweep) -> Chart:
    """Final return against a knob: mean, interval, and each seed."""
    points = []
    for value, row in sweep.points:
        assert row.mean is not None
        points.append({
            "x": value, "y": _round(row.mean.estimate), "low": _round(row.mean.low),
            "high": _round(row.mean.high), "n": row.mean.n,
            "seeds": _rounded(run.final for run in row.variant.scored),
        })  # fmt: skip
    return {
        "kind": "sweep", "x": sweep.knob, "y": "final return", "log": is_log(sweep),
        "file": f"sweep-{sweep.task}-{sweep.shape}-{sweep.knob}", "points": points,
    }  # fmt: skip


def profile_chart(found: Across) -> Chart:
    """The share of runs above each threshold, of every pooled shape."""
    series: list[dict[str, Any]] = []
    drawn: list[PooledShape] = []
    for row in found.shapes:
        p, lies_on = row.profile, below(row, drawn)
        drawn.append(row)
        line: dict[str, Any] = {
            "label": row.label, "slot": row.slot, "shown": row.shown, "x": _rounded(p.taus),
            "y": _rounded(p.fraction), "n": f"{p.tasks} × {p.n} runs",
            "dash": "{}px,{}px".format(*on_another(lies_on)) if lies_on else dash(row.slot),
        }  # fmt: skip
        if p.low is not None and p.high is not None and not lies_on:
            line |= {"low": _rounded(p.low), "high": _rounded(p.high)}
        series.append(line)
    return {"kind": "lines", "along": "normalised score τ", "y": "share of runs above τ",
            "steps": True, "zero": True, "file": "across-tasks", "series": series}  # fmt: skip


def pooled_whiskers(found: Across) -> list[dict[str, float]]:
    """Where IQMs and their intervals lie on a common scale from 0 to 100."""
    ends = [
        (e.estimate if e.low is None else e.low, e.estimate if e.high is None else e.high)
        for e in (row.iqm for row in found.shapes)
    ]
    return [
        on_scale(row.iqm.low, row.iqm.estimate, row.iqm.high, *_hull(ends)) for row in found.shapes
    ]


def whiskers(rows: Sequence[FinalReturns]) -> list[dict[str, float] | None]:
    """Where means and intervals lie on a common scale from 0 to 100."""
    ends = [
        (r.mean.low if r.mean.low is not None else r.mean.estimate,
         r.mean.high if r.mean.high is not None else r.mean.estimate)
        for r in rows if r.mean is not None
    ]  # fmt: skip
    if not ends:
        return [None for _ in rows]
    return [
        None if r.mean is None else on_scale(r.mean.low, r.mean.estimate, r.mean.high, *_hull(ends))
        for r in rows
    ]


def on_scale(
    low: float | None, middle: float, high: float | None, least: float, most: float
) -> dict[str, float]:
    """An interval in percent of the width between `least` and `most`."""
    width = (most - least) or 1.0

    def percent(value: float) -> float:
        return round(min(max((value - least) / width, 0.0), 1.0) * 100, 2)

    left, right = (percent(middle if end is None else end) for end in (low, high))
    return {"left": left, "width": round(right - left, 2), "middle": percent(middle)}


def _hull(ends: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(low for low, _ in ends), max(high for _, high in ends)


def _line(label: str, slot: int | str, found: Band, band: bool = True) -> dict[str, Any]:
    line: dict[str, Any] = {
        "label": label, "slot": slot, "x": _steps(found.steps), "y": _rounded(found.mean),
        "n": _counts(found),
    }  # fmt: skip
    if band and found.seeds.max() > 1:
        line["low"] = _rounded(found.mean - found.std)
        line["high"] = _rounded(found.mean + found.std)
    return line


def _published(variant: Variant, slot: int, shown: bool) -> list[dict[str, Any]]:
    key = algorithm(variant.shape)
    if key is None or why_not_compared(variant.task, variant.shape, variant.settings):
        return []
    curve = published_curve(variant.task, key)
    return [{"label": variant.label, "slot": slot, "published": True, "shown": shown,
             "x": _steps(curve.steps), "y": _rounded(curve.mean), "dash": "solid"}]  # fmt: skip


def _counts(found: Band) -> int | list[int]:
    """How many seeds, once if it is the same everywhere."""
    counts = [int(n) for n in found.seeds]
    return counts[0] if len(set(counts)) == 1 else counts


def _rounded(values: Iterable[Any]) -> list[float | int | None]:
    return [_round(value) for value in values]


def _round(value: float | None) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _steps(values: Iterable[Any]) -> list[int]:
    return [int(value) for value in values]
