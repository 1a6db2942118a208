"""What the paper shows, of our runs: figures for paper and slides, as PDF, SVG and PNG.

Bytes depend on the study alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from klip.draw.palette import colour, dash, on_another, shown_at_first, slots
from klip.draw.show import show
from klip.draw.style import KILL, NEUTRAL, PASS, POSITIVE, figure, save, styled
from klip.shapes import Controller, Shape
from klip.studies.across import PooledShape, across, below
from klip.studies.identities import comparisons
from klip.studies.learning import Band, band, overlaid, thinned
from klip.studies.published import algorithm, published_curve, published_peak_kill, why_not_compared
from klip.studies.study import Study, Variant, shape_of
from klip.studies.tables import Sweep, finals, sweeps

FORMATS: Final = ("pdf", "svg", "png")
FAN: Final = (
    (0, 8, "1–99 %", 0.14),
    (1, 7, "5–95 %", 0.2),
    (2, 6, "10–90 %", 0.26),
    (3, 5, "25–75 %", 0.34),
)
"""Pairs of the nine quantiles that a row of metrics has, what they are, and how dark they are."""
_DASH: Final[dict[str, Any]] = {
    "solid": "-",
    "dot": ":",
    "dashdot": "-.",
    "longdashdot": (0, (8, 2, 1, 2)),
}


def learning_curves(study: Study) -> Figure | None:
    """Episode return: mean over seeds, with a band of one population deviation; published below."""
    shown = shown_at_first(study)
    return _curves(study, {t: [v for v in study.of(t) if v.label in shown] for t in study.tasks})


def identity(study: Study) -> Figure | None:
    """PPO-Clip and its other forms alone, on each task where at least two of them were run."""
    forms = {id(run) for c in comparisons(study) for run in c.runs.values()}
    return _curves(
        study,
        {t: [v for v in study.of(t) if id(v.runs[0]) in forms] for t in study.tasks},
    )


def _curves(study: Study, chosen: dict[str, list[Variant]]) -> Figure | None:
    chosen = {task: members for task, members in chosen.items() if _any(members, "return_mean")}
    if not chosen:
        return None
    colours = slots(study)
    fig, axes = _grid(len(chosen))
    for ax, (task, members) in zip(axes, chosen.items(), strict=True):
        drawn: list[Band] = []
        for variant in members:
            found = band(variant.runs, "return_mean")
            if found is None:
                continue
            found, slot = thinned(found), colours[variant.label]
            below = overlaid(found, drawn)
            _published_line(ax, variant, colour(slot))
            style: Any = (0, _points(below)) if below else _DASH[dash(slot)]
            with styled():
                ax.plot(found.steps, found.mean, color=colour(slot), lw=1.4, ls=style,
                        label=variant.label)  # fmt: skip
                if not below:
                    _band(ax, found, colour(slot))
            drawn.append(found)
        _finish(ax, task, "episode return")
    return _with_legend(fig)


def partition(study: Study) -> Figure | None:
    """The fractions of PPO-Clip's samples that are killed and that pass, over training."""
    chosen = [v for task in study.tasks if (v := clip_runs(study, task)) is not None]
    if not chosen:
        return None
    fig, axes = _grid(len(chosen))
    for ax, variant in zip(axes, chosen, strict=True):
        for metric, shade, label in (("kill", KILL, "kill"), ("pass", PASS, "pass")):
            found = band(variant.runs, metric)
            if found is not None:
                with styled():
                    ax.plot(found.steps, found.mean, color=shade, lw=1.4, label=label)
                    _band(ax, found, shade)
        peak = published_peak_kill(variant.task)
        if peak is not None and not _apart(variant):
            with styled():
                ax.axhline(peak, color=KILL, lw=0.8, ls=":", label="published peak of kill")
        ax.set_ylim(bottom=0)
        _finish(ax, f"{variant.task}, {variant.label}", "fraction of samples")
    return _with_legend(fig)


def beta(study: Study) -> Figure | None:
    """Quantiles of the per-sample coefficient over training, of the per-sample runs."""
    chosen = [v for task in study.tasks if (v := per_sample_runs(study, task)) is not None]
    if not chosen:
        return None
    fig, axes = _grid(len(chosen))
    for ax, variant in zip(axes, chosen, strict=True):
        found = band(variant.runs, "beta")
        assert found is not None
        with styled():
            for low, high, name, alpha in FAN:
                ax.fill_between(found.steps, found.mean[:, low], found.mean[:, high],
                                color=POSITIVE, alpha=alpha, lw=0,
                                label=name)  # fmt: skip
            ax.plot(found.steps, found.mean[:, 4], color=NEUTRAL, lw=1.2, label="median")
        _finish(ax, f"{variant.task}, {variant.label}", r"coefficient $\beta_t$")
    return _with_legend(fig)


def knob_sweeps(study: Study) -> Figure | None:
    """Final return against a shape's parameter: mean, 95 % interval, and each seed."""
    found = sweeps(finals(study))
    if not found:
        return None
    fig, axes = _grid(len(found))
    for ax, sweep in zip(axes, found, strict=True):
        with styled():
            for value, row in sweep.points:
                seen = [run.final for run in row.variant.scored if run.final is not None]
                ax.plot([value] * len(seen), seen, ls="", marker="o", ms=3, color="#B0B0B0")
                if row.mean is not None and row.mean.low is not None and row.mean.high is not None:
                    ax.plot([value, value], [row.mean.low, row.mean.high], color=POSITIVE, lw=1.2)
            means = [row.mean.estimate for _, row in sweep.points if row.mean is not None]
            ax.plot([value for value, _ in sweep.points], means, color=POSITIVE, marker="o", ms=5)
            if is_log(sweep):
                ax.set_xscale("log")
            at = [value for value, _ in sweep.points]
            ax.set_xticks(at, [f"{value:g}" for value in at])
            ax.minorticks_off()
            ax.set_xlabel(sweep.knob)
            ax.set_ylabel("final return")
            ax.set_title(f"{sweep.task}, {sweep.shape}")
    return fig


def across_tasks(study: Study) -> Figure | None:
    """The share of runs whose normalised score is above a threshold, pooled over tasks."""
    found = across(study)
    if found is None:
        return None
    fig, (ax,) = _grid(1)
    drawn: list[PooledShape] = []
    for row in (row for row in found.shapes if row.shown):
        p, lies_on, shade = row.profile, below(row, drawn), colour(row.slot)
        style: Any = (0, _points(lies_on)) if lies_on else _DASH[dash(row.slot)]
        with styled():
            ax.plot(p.taus, p.fraction, color=shade, lw=1.4, ls=style, drawstyle="steps-post",
                    label=row.label)  # fmt: skip
            if p.low is not None and p.high is not None and not lies_on:
                ax.fill_between(p.taus, p.low, p.high, step="post", color=shade, alpha=0.15, lw=0)
        drawn.append(row)
    _finish(ax, f"{len(found.tasks)} tasks × {found.seeds} seeds", r"share of runs above $\tau$")
    with styled():
        ax.set_xlabel(r"normalised score $\tau$")
        ax.ticklabel_format(axis="x", style="plain")
    return _with_legend(fig)


def shape_pictures(study: Study) -> Iterator[Figure]:
    """Every shape that took part, six to a figure."""
    found = [shape_of(spelling) for spelling in dict.fromkeys(v.shape for v in study.variants)]
    known: list[Shape] = [
        shape.shape_at(shape.init()) if isinstance(shape, Controller) else shape
        for shape in found
        if shape is not None
    ]
    for i in range(0, len(known), 6):
        yield show(known[i : i + 6])


FIGURES: Final[dict[str, Callable[[Study], Figure | None]]] = {
    "learning-curves": learning_curves,
    "across-tasks": across_tasks,
    "identity": identity,
    "knob-sweeps": knob_sweeps,
    "partition": partition,
    "beta": beta,
}
"""Each figure by the stem of its file; None where the study has nothing for it."""


def write_figures(study: Study, folder: Path) -> list[Path]:
    """All figures for which there is something, in each format; the paths in the order written."""
    made = {stem: fig for stem, make in FIGURES.items() if (fig := make(study)) is not None}
    pictures = list(shape_pictures(study))
    for i, fig in enumerate(pictures, 1):
        made["shapes" if len(pictures) == 1 else f"shapes-{i}"] = fig
    written = []
    for stem, fig in made.items():
        with styled():  # laid out once, for all formats
            fig.draw_without_rendering()
        fig.set_layout_engine("none")
        for suffix in FORMATS:
            path = folder / f"{stem}.{suffix}"
            save(fig, path)
            written.append(path)
    return written


def clip_runs(study: Study, task: str) -> Variant | None:
    """The PPO-Clip runs of a task, of which the paper shows the partition."""
    return _chosen(study, task, "clip", "kill")


def per_sample_runs(study: Study, task: str) -> Variant | None:
    """The per-sample runs of a task, of which the paper shows the coefficient."""
    return _chosen(study, task, "per-sample", "beta")


def is_log(sweep: Sweep) -> bool:
    """Whether a knob's values span so much that equal factors should look equal."""
    low, high = sweep.points[0][0], sweep.points[-1][0]
    return low > 0 and high / low >= 10


def _chosen(study: Study, task: str, name: str, metric: str) -> Variant | None:
    """The paper's own variant if it is there, else the first of that shape."""
    members = [v for v in study.of(task) if _name(v) == name and _any([v], metric)]
    return min(members, key=lambda v: bool(_apart(v)), default=None)


def _apart(variant: Variant) -> str:
    return why_not_compared(variant.task, variant.shape, variant.settings)


def _name(variant: Variant) -> str:
    shape = shape_of(variant.shape)
    return variant.shape if shape is None else shape.name


def _any(members: Sequence[Variant], metric: str) -> bool:
    return any(band(v.runs, metric) is not None for v in members)


def _grid(count: int) -> tuple[Figure, list[Axes]]:
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    with styled():
        fig = figure(3.6 * columns, 2.7 * rows)
        return fig, [fig.add_subplot(rows, columns, i + 1) for i in range(count)]


def _points(below: int) -> tuple[float, float]:
    on, off = on_another(below)
    return on / 4, off / 4


def _band(ax: Axes, found: Band, shade: str) -> None:
    ax.fill_between(found.steps, found.mean - found.std, found.mean + found.std,
                    color=shade, alpha=0.15, lw=0)  # fmt: skip


def _published_line(ax: Axes, variant: Variant, shade: str) -> None:
    key = algorithm(variant.shape)
    if key is not None and not _apart(variant):
        line = published_curve(variant.task, key)
        with styled():
            ax.plot(line.steps, line.mean, color=shade, lw=0.8, alpha=0.45, zorder=1)


def _finish(ax: Axes, title: str, label: str) -> None:
    with styled():
        ax.set_title(title.replace("$", r"\$"))
        ax.set_xlabel("environment steps")
        ax.set_ylabel(label)
        ax.ticklabel_format(axis="x", style="sci", scilimits=(3, 5))


def _with_legend(fig: Figure) -> Figure:
    """One legend for all panels, below them: a label looks the same in each."""
    found: dict[str, Any] = {}
    for ax in fig.axes:
        handles, labels = ax.get_legend_handles_labels()
        found = dict(zip(labels, handles, strict=True)) | found
    with styled():
        fig.legend(
            found.values(), [label.replace("$", r"\$") for label in found], fontsize=8,
            loc="outside lower center", ncols=min(len(found), 2 * len(fig.axes), 6),
        )  # fmt: skip
    return fig
