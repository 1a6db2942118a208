"""PPO-Clip, its weight-space form and its per-sample form are one algorithm: read from the bytes.

Their runs with one seed and one config must end with the same parameters, optimiser, statistics
and metrics, byte for byte. Nothing is taken for granted: digests are of what lies in the folders.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from klip.shapes.names import brief, shape_of
from klip.studies.published import settings_differ
from klip.studies.study import Run, Study, plain

FORMS: Final[tuple[str, ...]] = ("clip", "per-sample", "clip-phi")
"""The three forms of one gradient, each computed by its own route."""

Verdict = Literal["identical", "differs", "open"]


@dataclass(frozen=True)
class Comparison:
    """The forms of PPO-Clip at one task, one band, one set of settings and one seed."""

    task: str
    about: str
    """The band, and settings that are not the paper's."""
    seed: int
    runs: Mapping[str, Run]
    """By the form's name; at least two."""
    verdict: Verdict
    detail: str
    """Why it is open, or where the difference begins."""


def comparisons(study: Study) -> list[Comparison]:
    """Every seed for which at least two of the forms were run."""
    groups: dict[tuple[str, str, str], dict[int, dict[str, Run]]] = defaultdict(dict)
    for run in study.runs:
        shape = shape_of(run.shape)
        if shape is not None and shape.name in FORMS and str(shape) == run.shape:
            band = ", ".join(f"{k}={v}" for k, v in shape.parameters.items())
            key = run.task, band, repr(sorted(run.settings.items()))
            groups[key].setdefault(run.seed, {})[shape.name] = run
    compared = []
    for (task, band, _), seeds in groups.items():
        for seed, runs in sorted(seeds.items()):
            if len(runs) > 1:
                members = {form: runs[form] for form in FORMS if form in runs}
                compared.append(_compare(task, band, seed, members))
    return compared


def also_identical(study: Study) -> list[tuple[str, str, int]]:
    """Other shapes that trained to the same bytes: task, their labels, and at how many seeds."""
    twins: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for run in study.runs:
        if run.digest and run.rows:
            twins[run.task, run.seed, run.digest].append(run.shape)
    count: Counter[tuple[str, str]] = Counter()
    for (task, _, _), shapes in twins.items():
        kinds = [shape_of(shape) for shape in shapes]
        forms = all(kind is not None and kind.name in FORMS for kind in kinds)
        if len(shapes) > 1 and not forms:
            count[task, " = ".join(sorted(map(brief, shapes)))] += 1
    return [(task, labels, seeds) for (task, labels), seeds in sorted(count.items())]


def _compare(task: str, band: str, seed: int, runs: Mapping[str, Run]) -> Comparison:
    settings = settings_differ(task, next(iter(runs.values())).settings)
    about = ", ".join([band, *(f"{name} {plain(value)}" for name, (value, _) in settings.items())])
    verdict, detail = _verdict(runs)
    return Comparison(task, about, seed, runs, verdict, detail)


def _verdict(runs: Mapping[str, Run]) -> tuple[Verdict, str]:
    (first, reference), *others = runs.items()
    parted = [
        text for form, run in others if (text := _difference(first, reference, form, run)) != ""
    ]
    if parted:
        return "differs", "; ".join(parted)
    behind = {form: run for form, run in runs.items() if run.status not in ("done", "diverged")}
    lengths = {run.rows for run in runs.values()}
    if behind or len(lengths) > 1:
        states = ", ".join(f"{form} {run.status} at {run.rows}" for form, run in behind.items())
        common = min(lengths)
        alike = f"the metrics of {common} iterations are equal so far" if common else "no metrics"
        return "open", f"{states}; {alike}" if states else alike
    digests = {run.digest for run in runs.values()}
    if digests == {""}:
        return "open", "no arrays to compare"
    return "identical", ""


def _difference(first: str, a: Run, second: str, b: Run) -> str:
    """How two runs differ, in words, or nothing; open runs are compared where both have rows."""
    common = min(a.rows, b.rows)
    for i, names in _parting(a, b, common):
        values = [f"{name} {_value(a, name, i)} against {_value(b, name, i)}" for name in names[:2]]
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        return f"{second} parts from {first} at iteration {i + 1}: {', '.join(values)}{more}"
    both_ended = a.status == b.status == "done" or (a.rows == b.rows and a.status == b.status)
    if both_ended and a.digest != b.digest:
        if a.rows != b.rows:
            return f"{first} has {a.rows} iterations and {second} {b.rows}"
        return f"{second} has the metrics of {first}, but not its parameters and statistics"
    if {a.status, b.status} == {"done", "diverged"}:
        return f"{first} is {a.status} and {second} is {b.status}"
    return ""


def _parting(a: Run, b: Run, common: int) -> Sequence[tuple[int, list[str]]]:
    """The first iteration at which metrics differ, with their names; empty if none does."""
    where: dict[int, list[str]] = defaultdict(list)
    for name in sorted(a.metrics.keys() & b.metrics.keys()):
        x, y = a.metrics[name][:common], b.metrics[name][:common]
        if x.shape != y.shape:
            where[0].append(name)
            continue
        unequal = (x != y) & ~(np.isnan(x) & np.isnan(y))
        rows = unequal.reshape(common, -1).any(axis=1)
        if rows.any():
            where[int(rows.argmax())].append(name)
    return [min(where.items())] if where else []


def _value(run: Run, name: str, i: int) -> str:
    value = run.metrics[name][i]
    return f"{value:.6g}" if np.ndim(value) == 0 else "..."
