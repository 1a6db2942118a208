"""All that a report is made of: runs with their metrics, as one value.

    folder of runs ── read_study ──┐
                                   ├─> Study ── find ──> Findings ──> tables, figures, page
    packed folder ─── unpack ──────┘

Everything downstream reads a `Study` and nothing else, so it cannot tell where one came from.
Nothing of a run is executed: a shape or task that is somebody's code is only named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klip.engine.job import iterations_of
from klip.runs import final_return
from klip.runs.completions import Completion
from klip.shapes.names import brief
from klip.studies.published import PAPER, default_settings, settings_differ

Column = NDArray[np.float64]
"""`[rows]`, or `[rows, K]` for quantiles; NaN where a row has no value."""

ENDED = ("done", "diverged", "failed", "damaged")


@dataclass(frozen=True, eq=False)
class Run:
    """One run: its config, how it went, and its metrics as columns."""

    path: str
    """Relative to the folder that was read."""
    id: str
    config: Mapping[str, Any]
    status: str
    """running, stopped, done, diverged, failed or damaged"""
    reason: str
    machines: tuple[Mapping[str, Any], ...]
    history: tuple[str, ...]
    notes: tuple[str, ...]
    digest: str
    """Of all arrays and metrics: equal where two runs trained to the same bytes."""
    metrics: Mapping[str, Column] = field(repr=False)
    samples: tuple[Completion, ...] = field(default=(), repr=False)
    """Completions that a token run kept to be looked at."""

    @property
    def task(self) -> str:
        """What it was trained on; a Gymnasium id for PPO."""
        return str(self.config["task"])

    @property
    def shape(self) -> str:
        """Its trust region, spelled in full."""
        return str(self.config["shape"])

    @property
    def seed(self) -> int:
        """The seed of everything random in it."""
        return int(self.config["seed"])

    @property
    def settings(self) -> dict[str, Any]:
        """The rest of its config; what it does not name is at its default."""
        own = ("task", "shape", "seed", "code")
        whole = {**default_settings(), **self.config}
        return {key: value for key, value in whole.items() if key not in own}

    @property
    def code(self) -> str:
        """A digest of the file that defines its shape, where that is somebody's."""
        return str(self.config.get("code", ""))

    @property
    def rows(self) -> int:
        """Iterations with metrics."""
        return len(self.metrics["step"]) if "step" in self.metrics else 0

    @property
    def iterations(self) -> int:
        """The number of iterations that it will have in all."""
        return iterations_of(self.config)

    @cached_property
    def final(self) -> float | None:
        """The final return in the paper's definition; None unless it is done."""
        if self.status != "done" or not {"step", "return_mean"} <= self.metrics.keys():
            return None
        pairs = zip(self.metrics["step"], self.metrics["return_mean"], strict=True)
        return final_return(
            [{"step": s, "return_mean": None if np.isnan(r) else r} for s, r in pairs]
        )


@dataclass(frozen=True, eq=False)
class Variant:
    """The runs of one task that differ in nothing but their seed."""

    task: str
    shape: str
    settings: Mapping[str, Any]
    label: str
    """The shape in brief, with the settings in which variants of its task differ."""
    runs: tuple[Run, ...]
    """By seed."""

    @property
    def scored(self) -> tuple[Run, ...]:
        """The runs that have a final return."""
        return tuple(run for run in self.runs if run.final is not None)

    @property
    def scores(self) -> dict[int, float | None]:
        """Final return by seed, None where it diverged; runs that are not done are left out."""
        ended = (run for run in self.runs if run.final is not None or run.status == "diverged")
        return {run.seed: run.final for run in ended}

    def count(self, *status: str) -> int:
        """How many runs have one of these statuses."""
        return sum(run.status in status for run in self.runs)


@dataclass(frozen=True, eq=False)
class Study:
    """Runs in order of task, shape and seed, and what could not be read."""

    runs: tuple[Run, ...]
    trouble: tuple[str, ...] = ()
    """Folders that are runs by their names and could not be read, and why."""

    @property
    def tasks(self) -> list[str]:
        """Their names, in order."""
        return list(dict.fromkeys(run.task for run in self.runs))

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """All runs, grouped; tasks in order, the paper's shapes before others."""
        groups: dict[tuple[str, str, str, str], list[Run]] = defaultdict(list)
        for run in self.runs:
            groups[run.task, run.shape, run.code, repr(sorted(run.settings.items()))].append(run)
        variants = []
        for task in self.tasks:
            members = [runs for key, runs in groups.items() if key[0] == task]
            differing = _differing([runs[0].settings for runs in members])
            edited = _edited([runs[0] for runs in members])
            variants += [_variant(runs, differing, edited) for runs in members]
        return tuple(sorted(variants, key=lambda v: (v.task, _rank(v.shape), v.label)))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The label of every variant once: shapes with their own numbers first, then the rest."""
        every = dict.fromkeys(variant.label for variant in self.variants)
        usual = [label for label in every if "(" not in label]
        return tuple(dict.fromkeys([*usual, *every]))

    def of(self, task: str) -> list[Variant]:
        """The variants of one task."""
        return [v for v in self.variants if v.task == task]

    @property
    def ended(self) -> bool:
        """Whether no run will change by itself any more."""
        return all(run.status in ENDED for run in self.runs)


def plain(value: Any) -> str:
    """A setting's value as a person writes it.

    >>> plain(1000000), plain(0.0003), plain([64, 64])
    ('1,000,000', '0.0003', '64-64')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    return "-".join(map(plain, value)) if isinstance(value, (list, tuple)) else str(value)


def _variant(runs: Sequence[Run], differing: Sequence[str], edited: set[str]) -> Variant:
    first = runs[0]
    # A setting that is the paper's need not be named.
    unusual = settings_differ(first.task, first.settings)
    marks = [f"{n} {plain(first.settings.get(n))}" for n in differing if n in unusual]
    if first.shape in edited:
        marks.append(f"code {first.code}")
    label = ", ".join([brief(first.shape), *marks])
    return Variant(first.task, first.shape, first.settings, label, tuple(runs))


def _edited(runs: Sequence[Run]) -> set[str]:
    """Shapes whose file was changed between runs."""
    codes = {(run.shape, run.code) for run in runs}
    return {shape for shape, code in codes if any(s == shape and c != code for s, c in codes)}


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for config in settings for name in config)
    return [n for n in names if len({repr(config.get(n)) for config in settings}) > 1]


def _rank(shape: str) -> tuple[int, str]:
    known = [*PAPER.values()]
    return (known.index(shape) if shape in known else len(known), brief(shape))


def ordered(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Runs by task, shape and seed."""
    return tuple(sorted(runs, key=lambda run: (run.task, run.shape, run.seed, run.id)))
