"""Pictures of what happened in training: KL, entropy, samples, controllers; for every shape.

A panel has a task and a metric, with a line for each shape. What happened to the samples is told by
what the shape's multiplier did to them, where the runs have counted that, and else by its band. The
paper's own two, the partition of PPO-Clip and the coefficient, are here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from klip.draw.lines import SHOWN, STEPS, line, of_seeds, shown_at_first
from klip.draw.palette import INK, KILLED, PASSED, looks
from klip.draw.panel import Axis, Fan, Guide, Line, Mark, Panel, Picture
from klip.shapes.names import shape_of
from klip.studies.findings import Findings
from klip.studies.learning import band, overlaid, thinned
from klip.studies.published import published_peak_kill, why_not_compared
from klip.studies.study import Study, Variant
from klip.theory.diagnostics import FATES, PARTS

POINTS: Final = 120
"""The most points of a line: there are many panels."""
FAN: Final = (
    (0, 8, "1–99 %", 0.14),
    (1, 7, "5–95 %", 0.2),
    (2, 6, "10–90 %", 0.26),
    (3, 5, "25–75 %", 0.34),
)
"""Pairs of the nine quantiles of a row of metrics: their places, label and darkness."""


def kl(findings: Findings) -> Picture | None:
    """The closed-form KL(old || new) of every shape."""
    return _of_all(findings, "kl", ("kl",), lambda _: "KL(old ‖ new)")


def entropy(findings: Findings) -> Picture | None:
    """The entropy of every shape's policy."""
    return _of_all(findings, "entropy", ("entropy",), lambda _: "entropy, nats", from_zero=False)


def samples(findings: Findings) -> Picture | None:
    """Which shares of every shape's samples are kept, weakened, zeroed, reversed, strengthened."""
    names = _counted(findings.study, FATES, PARTS)
    return _of_all(findings, "samples", names, lambda name: f"{name}, share of samples")


def mass(findings: Findings) -> Picture | None:
    """The shares of the gradient's mass, sum |wA|, on those samples."""
    names = _counted(findings.study, [f"{fate}_mass" for fate in FATES], ["killed_mass"])
    said = {name: f"{name.removesuffix('_mass')}, share of |wA|" for name in names}
    return _of_all(findings, "mass", names, said.__getitem__)


def controllers(findings: Findings) -> Picture | None:
    """The state of every controller."""
    runs = findings.study.runs
    names = dict.fromkeys(n for run in runs for n in run.metrics if n.startswith("controller."))
    return _of_all(
        findings, "controllers", tuple(names), lambda name: name.removeprefix("controller.")
    )


def _counted(study: Study, names: Sequence[str], else_by: Sequence[str]) -> Sequence[str]:
    """The first names, or the others, or both where some runs have not counted the first."""
    has = [any(name in run.metrics for name in names) for run in study.runs if run.rows]
    return names if has and all(has) else [*names, *else_by] if any(has) else else_by


def _of_all(
    findings: Findings,
    stem: str,
    metrics: Sequence[str],
    label: Callable[[str], str],
    from_zero: bool = True,
) -> Picture | None:
    """A panel for each task and metric that is not 0 everywhere, with a line for each variant."""
    study = findings.study
    look, shown = looks(study.labels), shown_at_first(study)
    floor = 0.0 if from_zero else -float("inf")
    panels = []
    for task in study.tasks:
        for metric in metrics:
            bands = [(v.label, band(v.runs, metric)) for v in study.of(task)]
            known = {name: thinned(b, POINTS) for name, b in bands if b and b.mean.ndim == 1}
            marks: list[Mark] = []
            for place, (name, seeds) in enumerate(known.items()):
                below = overlaid(seeds, list(known.values())[:place])
                drawn = line(name, look[name], seeds, None, name in shown, below, floor)
                # The bands of so many would hide one another.
                marks.append(drawn if len(known) <= SHOWN else replace(drawn, low=None, high=None))
            if any(seeds.mean.any() for seeds in known.values()):
                y = Axis(label(metric), from_zero=from_zero)
                panels.append(Panel(task, STEPS, y, tuple(marks), _title(metric, marks)))
    return Picture(stem, tuple(panels)) if panels else None


def _title(metric: str, marks: Sequence[Mark]) -> str:
    """The metric, and the shape where only one has it: such a panel has no legend."""
    name = "KL" if metric == "kl" else metric.removeprefix("controller.").replace("_", " ")
    alone = [mark.label for mark in marks if isinstance(mark, Line)]
    return f"{name}, {alone[0]}" if len(alone) == 1 else name


def partition(findings: Findings) -> Picture | None:
    """The fractions of PPO-Clip's samples that are killed and that pass, over training."""
    panels = []
    for variant in _each_task(findings.study, clip_runs):
        marks: list[Mark] = []
        for metric, look in (("kill", KILLED), ("pass", PASSED)):
            seeds = band(variant.runs, metric)
            if seeds is not None:
                marks.append(line(metric, look, thinned(seeds), floor=0.0))
        peak = published_peak_kill(variant.task)
        compared = peak is not None and not _apart(variant)
        if compared and peak is not None:
            marks.append(Guide(peak, "published peak of kill", look=KILLED))
        y = Axis("fraction of samples", from_zero=True)
        note = _peak(variant, peak if compared else None)
        panels.append(Panel(variant.task, STEPS, y, tuple(marks), variant.label, note))
    return Picture("partition", tuple(panels)) if panels else None


def _peak(variant: Variant, published: float | None) -> str:
    kill = band(variant.runs, "kill")
    if kill is None:
        return ""
    theirs = "" if published is None else f"; published: {published:.1%}"
    return f"Kill peaks at {kill.mean.max():.1%}{theirs}. {of_seeds(len(variant.runs))}."


def beta(findings: Findings) -> Picture | None:
    """Quantiles of the coefficient over training: of the per-sample runs, and of own shapes."""
    panels = []
    for variant in _of_interest(findings.study):
        seeds = band(variant.runs, "beta")
        if seeds is None or seeds.mean.ndim != 2 or seeds.mean.shape[1] != 9:
            continue
        seeds = thinned(seeds)
        x, q = seeds.steps, seeds.mean
        marks: list[Mark] = [Fan(name, x, q[:, i], q[:, j], alpha) for i, j, name, alpha in FAN]
        marks.append(Line("median", INK, x, q[:, 4]))
        note = (
            f"From pale to dark: 1–99 %, 5–95 %, 10–90 %, 25–75 %. {of_seeds(len(variant.runs))}."
        )
        panels.append(
            Panel(variant.task, STEPS, Axis("coefficient β"), tuple(marks), variant.label, note)
        )
    return Picture("beta", tuple(panels)) if panels else None


def clip_runs(study: Study, task: str) -> Variant | None:
    """The PPO-Clip runs of a task, of which the paper shows the partition."""
    return _chosen(study, task, "clip", "kill")


def per_sample_runs(study: Study, task: str) -> Variant | None:
    """The per-sample runs of a task, of which the paper shows the coefficient."""
    return _chosen(study, task, "per-sample", "beta")


def _each_task(study: Study, choose: Callable[[Study, str], Variant | None]) -> Iterator[Variant]:
    return (v for task in study.tasks if (v := choose(study, task)) is not None)


def _of_interest(study: Study) -> Iterator[Variant]:
    """The variants whose coefficient is drawn, task by task."""
    for task in study.tasks:
        per_sample = per_sample_runs(study, task)
        if per_sample is not None:
            yield per_sample
        yield from (v for v in study.of(task) if v.own)


def _chosen(study: Study, task: str, name: str, metric: str) -> Variant | None:
    """The paper's own variant if it is there, else the first of that shape."""
    members = [v for v in study.of(task) if _name(v) == name and band(v.runs, metric) is not None]
    return min(members, key=lambda v: bool(_apart(v)), default=None)


def _apart(variant: Variant) -> str:
    return why_not_compared(variant.task, variant.shape, variant.settings)


def _name(variant: Variant) -> str:
    shape = shape_of(variant.shape)
    return variant.shape if shape is None else shape.name
