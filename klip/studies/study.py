"""All that a report is made of: runs with their metrics, as one value.

    folder of runs ── read_study ──┐
                                   ├─> Study ── find ──> Findings ──> tables, figures, page
    packed folder ─── unpack ──────┘

Everything downstream reads a `Study` and nothing else, so it cannot tell where one came from.
Nothing of a run is executed: a shape or task that is somebody's code is only named.
"""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klip.engine.job import iterations_of
from klip.engine.labels import CODE, labels
from klip.engine.labels import plain as plain
from klip.ppo.config import settings_in
from klip.runs import final_return
from klip.runs.completions import Completion
from klip.runs.portraits import Portrait
from klip.shapes.names import brief, family
from klip.studies.published import PAPER

Column = NDArray[np.float64]
"""`[rows]`, or `[rows, K]` for quantiles; NaN where a row has no value."""

ENDED = ("done", "diverged", "failed", "damaged")


@dataclass(frozen=True, eq=False)
class Run:
    """One run: its config, how it went, and its metrics as columns."""

    path: str
    """Relative to the folder that was read."""
    id: str
    config: Mapping[str, Any] = field(repr=False)
    status: str
    """running, stopped, done, diverged, failed or damaged"""
    reason: str
    machines: tuple[Mapping[str, Any], ...] = field(repr=False)
    history: tuple[str, ...] = field(repr=False)
    notes: tuple[str, ...]
    digest: str = field(repr=False)
    """Of all arrays and metrics: equal where two runs trained to the same bytes."""
    metrics: Mapping[str, Column] = field(repr=False)
    samples: tuple[Completion, ...] = field(default=(), repr=False)
    """Completions that a token run kept to be looked at."""
    portrait: Portrait | None = field(default=None, repr=False)
    """How its shape looks, sampled when it began; None where that was not kept."""

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
        return settings_in(self.config)

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

    @cached_property
    def over_training(self) -> float | None:
        """The area under its learning curve, per step; None unless it has a final return."""
        if self.final is None:
            return None
        return area_per_step(self.metrics["step"], self.metrics["return_mean"])


@dataclass(frozen=True, eq=False)
class Variant:
    """The runs of one task that differ in nothing but their seed."""

    task: str
    shape: str
    settings: Mapping[str, Any] = field(repr=False)
    label: str
    """The shape in brief, with the settings in which variants of its task differ."""
    runs: tuple[Run, ...] = field(repr=False)
    """By seed."""

    @property
    def own(self) -> bool:
        """Whether its shape is somebody's own code."""
        return ":" in self.shape

    @property
    def portrait(self) -> Portrait | None:
        """How its shape looks, if one of its runs has kept that."""
        return next((run.portrait for run in self.runs if run.portrait is not None), None)

    @property
    def scored(self) -> tuple[Run, ...]:
        """The runs that have a final return."""
        return tuple(run for run in self.runs if run.final is not None)

    @property
    def scores(self) -> dict[int, float | None]:
        """Final return by seed, None where it diverged; runs that are not done are left out."""
        ended = (run for run in self.runs if run.final is not None or run.status == "diverged")
        return {run.seed: run.final for run in ended}

    @property
    def over_training(self) -> dict[int, float | None]:
        """Mean return over training by seed, of the same runs."""
        return {run.seed: run.over_training for run in self.runs if run.seed in self.scores}

    def count(self, *status: str) -> int:
        """How many runs have one of these statuses."""
        return sum(run.status in status for run in self.runs)


@dataclass(frozen=True, eq=False)
class Study:
    """Runs in order of task, shape and seed, and what could not be read."""

    runs: tuple[Run, ...]
    trouble: tuple[str, ...] = ()
    """Folders that are runs by their names and could not be read, and why."""
    choices: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """What leagues have frozen there: files by name, as they were written."""

    @property
    def tasks(self) -> list[str]:
        """Their names, in order."""
        return list(dict.fromkeys(run.task for run in self.runs))

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """All runs, grouped; tasks in order, and in each what a plan asks about first.

        That is PPO-Clip, as the reference; shapes of somebody's own; others that are not the
        paper's; the paper's.
        """
        groups: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
        for run in self.runs:
            codes = tuple(str(run.config.get(name, "")) for name in CODE)
            groups[run.task, run.shape, codes, repr(sorted(run.settings.items()))].append(run)
        firsts = [runs[0] for runs in groups.values()]
        variants = [
            Variant(first.task, first.shape, first.settings, label, tuple(runs))
            for first, label, runs in zip(
                firsts, labels([run.config for run in firsts]), groups.values(), strict=True
            )
        ]
        return tuple(sorted(variants, key=lambda v: (v.task, _rank(v.shape), natural(v.label))))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The label of every variant once, in the order of the variants.

        A known shape with its usual numbers comes before one with others, as in a sweep, and with
        its usual settings before others.
        """
        own = [v.label for v in self.variants if v.own]
        every = [v.label for v in self.variants]
        usual = [label for label in every if "(" not in label]
        usual = [label for label in usual if ", " not in label] + usual
        reference = [v.label for v in self.variants if v.shape == PAPER["ppo_clip"]]
        return tuple(dict.fromkeys([*reference[:1], *own, *usual, *every]))

    def of(self, task: str) -> list[Variant]:
        """The variants of one task."""
        return [v for v in self.variants if v.task == task]

    def at_first(self, task: str) -> float | None:
        """Mean return of a task's runs, each in its first iteration in which an episode ended."""
        none = np.empty(0)
        columns = [r.metrics.get("return_mean", none) for r in self.runs if r.task == task]
        firsts = [float(x) for column in columns for x in column[~np.isnan(column)][:1]]
        return float(np.mean(firsts)) if firsts else None

    @property
    def ended(self) -> bool:
        """Whether no run will change by itself any more."""
        return all(run.status in ENDED for run in self.runs)

    def _repr_html_(self) -> str:
        """What a notebook shows: a row per task and shape, or per arm."""
        # asked for by name: this room does not draw
        text: str = importlib.import_module("klip.draw.notebook").study_table(self)
        return text


def area_per_step(steps: Column, values: Column) -> float | None:
    """The area under a curve over its length, by trapezia: its mean over training.

    It reaches from the first value to the last. Points without a value in between lie on the
    straight line between their neighbours; None where no point has a value.

    >>> area_per_step(np.array([0.0, 1.0, 2.0, 4.0]), np.array([np.nan, 2.0, np.nan, 8.0]))
    5.0
    """
    there = ~np.isnan(values)
    x, y = steps[there], values[there]
    if len(x) < 2:
        return float(y[0]) if len(y) else None
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def natural(text: str) -> list[str | float]:
    """A key by which words go by the alphabet, and the numbers among them by their size.

    >>> sorted(["kl(b=10.0)", "kl(b=3.0)", "kl-k3(b=1.0)"], key=natural)
    ['kl(b=3.0)', 'kl(b=10.0)', 'kl-k3(b=1.0)']
    """
    parts = re.split(r"((?<![\w.])-?\d+(?:\.\d*)?(?:e[-+]?\d+)?)", text)
    return [float(part) if i % 2 else part for i, part in enumerate(parts)]


def _rank(shape: str) -> tuple[int, int, list[str | float]]:
    known, families = [*PAPER.values()], {family(text) for text in PAPER.values()}
    place = known.index(shape) if shape in known else len(known)
    if place == 0:
        return 0, 0, []
    asked = 1 if ":" in shape else 2 if family(shape) not in families else 3
    return asked, place, natural(brief(shape))


def ordered(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Runs by task, shape and seed."""
    return tuple(sorted(runs, key=lambda run: (run.task, run.shape, run.seed, run.id)))
