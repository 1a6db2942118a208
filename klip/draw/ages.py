"""Pictures of old samples: what happened to those of each age, and what a lag or a replay costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from klip.draw.lines import STEPS, beside, estimates, line, shown_at_first
from klip.draw.palette import PLAIN, Look, looks, looks_of, mixed
from klip.draw.panel import Axis, Mark, Panel, Picture
from klip.studies.ages import by_age, old_variants
from klip.studies.findings import Findings
from klip.studies.learning import SeedBand, thinned
from klip.studies.methods import FRESH, Method, methods
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


def staleness(findings: Findings) -> Picture | None:
    """Final return against lag and against replay, with 95 % intervals: a line for each method."""
    every = [
        (knob, findings.of(task), found)
        for task in findings.study.tasks
        for knob in KNOBS
        if (found := methods(findings.study.of(task), knob))
    ]
    names = [method.name for _, _, found in every for method in found]
    look = looks_of(names, findings.study.labels)
    panels = tuple(_against(knob, rows, found, look) for knob, rows, found in every)
    return Picture("staleness", panels, 2, (4.6, 3.2)) if panels else None


def _against(
    knob: str, rows: Sequence[FinalReturns], found: Sequence[Method], look: Mapping[str, Look]
) -> Panel:
    """The panel of one setting."""
    mean, task = {row.variant: row.mean for row in rows}, rows[0].variant.task
    points = [_points(method, knob) for method in found]
    values = sorted({value for of in points for value in of})
    marks: list[Mark] = []
    for place, (method, of) in enumerate(zip(found, points, strict=True)):
        shift = beside(place, len(found))
        known = [(values.index(v) + shift, e) for v, each in of.items() if (e := mean[each])]
        marks += estimates(method.name, look[method.name], known)
    ticks = tuple((float(i), str(value)) for i, value in enumerate(values))
    note = " ".join(filter(None, _notes(knob, found)))
    return Panel(task, Axis(KNOBS[knob], ticks), Axis("final return"), tuple(marks), knob, note)


def _points(method: Method, knob: str) -> dict[int, Variant]:
    """What a method's line goes through, by the value of the setting."""
    begins = {} if method.begins is None else {FRESH[knob]: method.begins}
    return {**begins, **method.at}


def _notes(knob: str, found: Sequence[Method]) -> Iterator[str]:
    """What a line does not say: where it begins, which numbers it has, and what diverged."""
    same: dict[str, list[str]] = {}
    for method in found:
        if method.begins is not None:
            same.setdefault(method.begins.label, []).append(method.name)
    for label, names in same.items():
        yield f"With fresh samples, these begin as {label}: {'; '.join(names)}."
    for method in found:
        yield method.unsaid(knob)
    lost = [
        f"{method.name} at {knob} {value}: {count} of {len(variant.runs)}"
        for method in found
        for value, variant in method.at.items()
        if (count := variant.count("diverged"))
    ]
    yield f"Diverged, and not in the means: {'; '.join(lost)}." if lost else ""
