"""Pictures of old samples: what happened to those of each age, and what a lag or a replay costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from klip.draw.lines import STEPS, line, of_seeds, shown_at_first
from klip.draw.palette import PLAIN, Look, looks, mixed
from klip.draw.panel import Axis, Line, Mark, Panel, Picture, Whisker
from klip.studies.ages import by_age, old_variants
from klip.studies.findings import Findings
from klip.studies.learning import SeedBand, thinned
from klip.studies.study import Variant
from klip.studies.tables import FinalReturns

POINTS: Final = 120
"""The most points of a line: there are many panels."""
METRICS: Final = {
    "zeroed": "zeroed, share of the samples of an age",
    "pull": "share of the gradient",
    "ess": "effective sample size, share",
}
"""What is drawn by age, and what its axis says."""


def ages(findings: Findings) -> Picture | None:
    """A line for each age, from dark (young) to pale (old), in a panel for each variant and metric.

    Variants whose samples are all of one age, as with a lag alone, share a panel for each metric,
    with a line for each of them.
    """
    study = findings.study
    look, shown = looks(study.labels), shown_at_first(study)
    panels: list[Panel] = []
    for task in study.tasks:
        old = [v for v in old_variants(study, task) if v.label in shown]
        alone = [v for v in old if len(by_age(v, "samples")) == 1]
        panels += _of_one_age(task, alone, look)
        for variant in old:
            if variant not in alone:
                panels += _of_ages(variant)
    return Picture("ages", tuple(panels)) if panels else None


def _of_one_age(task: str, variants: list[Variant], look: Mapping[str, Look]) -> Iterator[Panel]:
    """Panels of variants whose samples are all of one age; the gradient is all theirs."""
    for metric in ("zeroed", "ess"):
        marks: list[Mark] = []
        for variant in variants:
            marks += [
                _line(variant.label, look[variant.label], seeds)
                for seeds in by_age(variant, metric).values()
            ]
        if marks:
            y = Axis(METRICS[metric], from_zero=True)
            yield Panel(task, STEPS, y, tuple(marks), f"{metric}, samples of one age")


def _of_ages(variant: Variant) -> Iterator[Panel]:
    for metric, label in METRICS.items():
        found = by_age(variant, metric)
        shades = dict(zip(found, _shades(len(found)), strict=True))
        marks = tuple(_line(f"age {age}", shades[age], seeds) for age, seeds in found.items())
        if marks:
            y = Axis(label, from_zero=True)
            yield Panel(variant.task, STEPS, y, marks, f"{metric}, {variant.label}")


def _line(label: str, look: Look, seeds: SeedBand) -> Mark:
    return line(label, look, thinned(seeds, POINTS), floor=0.0)


def _shades(count: int) -> list[Look]:
    """Looks from dark to pale on a light ground, and the other way round on a dark one."""
    return [
        Look(mixed(PLAIN.light, "#FFFFFF", share), mixed(PLAIN.dark, "#15171A", share))
        for share in map(float, np.linspace(0.0, 0.7, count))
    ]


KNOBS: Final = {"lag": "lag, iterations", "replay": "replay, rollouts"}
"""Settings that make samples old, and how their axes are called."""
SPREAD: Final = 0.5
"""The part of the way to the next value over which the lines at one value are spread out."""


def staleness(findings: Findings) -> Picture | None:
    """Final return against lag and against replay, with 95 % intervals: a line for each method."""
    look = looks(findings.study.labels)
    panels = [
        panel
        for task in findings.study.tasks
        for knob in KNOBS
        if (panel := _against(knob, task, findings.of(task), look)) is not None
    ]
    return Picture("staleness", tuple(panels), 2, (4.6, 3.2)) if panels else None


def _against(
    knob: str, task: str, rows: Sequence[FinalReturns], look: Mapping[str, Look]
) -> Panel | None:
    """The panel of one setting; None where no method has two values of it."""
    methods: dict[str, dict[int, FinalReturns]] = {}
    for row in rows:
        value, other = (int(row.variant.settings.get(k, 0)) for k in (knob, _other(knob)))
        if other == _least(_other(knob)):
            name = row.variant.label.replace(f", {knob} {value}", "")
            methods.setdefault(name, {})[value] = row
    methods = {name: dict(sorted(of.items())) for name, of in methods.items() if len(of) > 1}
    values = sorted({value for of in methods.values() for value in of})
    if not methods:
        return None
    marks: list[Mark] = []
    for place, (name, of) in enumerate(methods.items()):
        shift = SPREAD * ((place + 0.5) / len(methods) - 0.5)
        own = look.get(name, look[next(iter(of.values())).variant.label])
        known = [(values.index(v) + shift, row.mean) for v, row in of.items() if row.mean]
        x, y = np.array([at for at, _ in known]), np.array([e.estimate for _, e in known])
        marks.append(Line(name, own, x, y))
        for at, e in known:
            about = of_seeds(e.n)
            marks.append(Whisker(name, at, e.estimate, e.low, e.high, own, about, upright=True))
    ticks = tuple((float(i), str(value)) for i, value in enumerate(values))
    note = _diverged(knob, methods)
    return Panel(task, Axis(KNOBS[knob], ticks), Axis("final return"), tuple(marks), knob, note)


def _other(knob: str) -> str:
    return "replay" if knob == "lag" else "lag"


def _least(knob: str) -> int:
    return 0 if knob == "lag" else 1


def _diverged(knob: str, methods: Mapping[str, Mapping[int, FinalReturns]]) -> str:
    lost = [
        f"{name} at {knob} {value}: {count} of {len(row.variant.runs)}"
        for name, of in methods.items()
        for value, row in of.items()
        if (count := row.variant.count("diverged"))
    ]
    return f"Diverged, and not in the means: {'; '.join(lost)}." if lost else ""
