"""The pictures of a report, each described once: the paper's figures, of our runs.

To add one, write a function from `Findings` to a `Picture`, here or in `diagnostics.py`, and name
it in `PICTURES`: that makes its files. A line in the page's template places it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from klip.draw import ages, diagnostics, step_sizes
from klip.draw.lines import SHOWN, STEPS, line, main_labels, of_seeds, shown_at_first
from klip.draw.palette import Look, looks
from klip.draw.panel import Axis, Dots, Guide, Line, Mark, Panel, Picture, Whisker
from klip.draw.show import show
from klip.shapes.names import shape_of
from klip.studies.across import Across, PooledShape
from klip.studies.findings import Findings
from klip.studies.learning import (
    SMOOTHING,
    SeedBand,
    band,
    overlaid,
    running_mean,
    thinned,
    window,
)
from klip.studies.published import (
    PAPER,
    algorithm,
    published_curve,
    why_not_compared,
)
from klip.studies.study import Study, Variant
from klip.studies.tables import FinalReturns, Sweep

# -- who won, how sure ----------------------------------------------------------------------------


def intervals(findings: Findings) -> Picture | None:
    """Final returns with 95 % intervals, a panel per task, with a line at PPO-Clip's.

    Where tasks can be pooled, the first panel has the mean normalised score over all of them.
    """
    study, panels = findings.study, []
    look, main = looks(study.labels), main_labels(study)
    if findings.across is not None:
        panels.append(_pooled_intervals(findings.across, look))
    for task in study.tasks:
        rows = [r for r in findings.of(task) if r.mean is not None and r.variant.label in main]
        if len(study.tasks) == 1:
            rows.sort(key=lambda row: -row.mean.estimate if row.mean else 0.0)
        if rows:
            panels.append(_task_intervals(task, rows, look))
    most = max((len(panel.y.ticks) for panel in panels), default=0)
    size = (3.1, max(1.15, 0.75 + 0.2 * most))
    return Picture("intervals", tuple(panels), 4, size) if panels else None


def _task_intervals(task: str, rows: Sequence[FinalReturns], look: Mapping[str, Look]) -> Panel:
    marks: list[Mark] = []
    for place, row in enumerate(rows):
        if row.mean is not None:
            e, label = row.mean, row.variant.label
            about = of_seeds(e.n)
            marks.append(Whisker(label, place, e.estimate, e.low, e.high, look[label], about))
    labels = [row.variant.label for row in rows]
    clip = next((row for row in rows if row.variant.shape == PAPER["ppo_clip"]), None)
    if clip is not None and clip.mean is not None:
        marks.insert(0, Guide(clip.mean.estimate, "PPO-Clip", "x"))
    return Panel(task, Axis("final return"), _rows(labels), tuple(marks))


def _pooled_intervals(pool: Across, look: Mapping[str, Look]) -> Panel:
    # Near 1, and not always 1: that is PPO-Clip's over all its seeds, and the pool may hold fewer.
    marks: list[Mark] = [Guide(pool.shapes[0].mean.estimate, "PPO-Clip", "x")]
    for place, row in enumerate(pool.shapes):
        e = row.mean
        about = f"{e.tasks} × {e.n} runs"
        marks.append(Whisker(row.label, place, e.estimate, e.low, e.high, look[row.variant], about))
    title = f"All {len(pool.tasks)} tasks" if not pool.tasks_left else f"{len(pool.tasks)} tasks"
    rows = _rows([row.label for row in pool.shapes])
    return Panel(title, Axis("mean normalised score"), rows, tuple(marks))


def _rows(labels: Sequence[str]) -> Axis:
    return Axis(ticks=tuple((float(i), label) for i, label in enumerate(labels)), down=True)


# -- over training --------------------------------------------------------------------------------


def learning_curves(findings: Findings) -> Picture | None:
    """Episode return, smoothed: mean over seeds with a band of one deviation; published below."""
    study = findings.study
    return _curves("learning-curves", study, {task: study.of(task) for task in study.tasks})


def identity(findings: Findings) -> Picture | None:
    """PPO-Clip and its other forms alone, on each task where at least two of them were run."""
    forms = {id(run) for c in findings.comparisons for run in c.runs.values()}
    study = findings.study
    chosen = {t: [v for v in study.of(t) if id(v.runs[0]) in forms] for t in study.tasks}
    return _curves("identity", study, chosen)


def _curves(stem: str, study: Study, chosen: dict[str, list[Variant]]) -> Picture | None:
    look, shown = looks(study.labels), shown_at_first(study)
    panels = []
    for task, members in chosen.items():
        marks: list[Mark] = []
        drawn: list[SeedBand] = []
        for variant in members:
            smooth = band(variant.runs, "return_mean", SMOOTHING)
            raw = band(variant.runs, "return_mean")
            if smooth is None or raw is None:
                continue
            smooth, raw, own = thinned(smooth), thinned(raw), look[variant.label]
            below, at_first = overlaid(smooth, drawn), variant.label in shown
            drawn.append(smooth)
            marks += _published(variant, own, at_first)
            rough = None if np.array_equal(raw.mean, smooth.mean) else (raw.steps, raw.mean)
            marks.append(line(variant.label, own, smooth, rough, at_first, below))
        if marks:
            y = Axis("episode return")
            panels.append(
                Panel(task, Axis(f"{STEPS.label}{_window(chosen[task])}"), y, tuple(marks))
            )
    return Picture(stem, tuple(panels), smooth=True) if panels else None


def _window(members: Sequence[Variant]) -> str:
    """What an axis says of smoothing: nothing where a window is a single iteration."""
    width = max(window(run.iterations) for variant in members for run in variant.runs)
    return f" (running mean over {SMOOTHING:.0%})".replace("%", " %") if width > 1 else ""


def _published(variant: Variant, look: Look, shown: bool) -> list[Line]:
    key = algorithm(variant.shape)
    if key is None or why_not_compared(variant.task, variant.shape, variant.settings):
        return []
    curve = published_curve(variant.task, key)
    smooth = running_mean(curve.mean, window(len(curve.mean)))
    about = "published"
    return [Line(variant.label, look, curve.steps, smooth, None, None, None, about, shown, True)]


# -- numbers against numbers ----------------------------------------------------------------------


def knob_sweeps(findings: Findings) -> Picture | None:
    """Final return against a shape's parameter: mean, 95 % interval, and each seed."""
    look = looks(findings.study.labels)
    panels = tuple(_sweep(sweep, look) for sweep in findings.sweeps)
    return Picture("knob-sweeps", panels) if panels else None


def _sweep(sweep: Sweep, look: Mapping[str, Look]) -> Panel:
    own = look.get(sweep.shape, look[sweep.points[0][1].variant.label])
    marks: list[Mark] = []
    for value, row in sweep.points:
        finals = np.array([run.final for run in row.variant.scored], dtype=float)
        marks.append(Dots("a seed", np.full(len(finals), value), finals, own))
    known = [(value, row.mean) for value, row in sweep.points if row.mean is not None]
    x, y = np.array([v for v, _ in known]), np.array([e.estimate for _, e in known])
    marks.append(Line("", own, x, y))
    for value, e in known:
        about = of_seeds(e.n)
        marks.append(Whisker("mean", value, e.estimate, e.low, e.high, own, about, upright=True))
    ticks = tuple((value, f"{value:g}") for value, _ in sweep.points)
    title = f"{sweep.task}, {sweep.shape}"
    counts = ", ".join(f"{e.n} at {value:g}" for value, e in known)
    about = f"with {sweep.about}" if sweep.about else ""
    knob = Axis(sweep.knob, ticks, is_log(sweep))
    return Panel(title, knob, Axis("final return"), tuple(marks), about, f"Seeds: {counts}.")


def is_log(sweep: Sweep) -> bool:
    """Whether a knob's values span so much that equal factors should look equal."""
    low, high = sweep.points[0][0], sweep.points[-1][0]
    return low > 0 and high / low >= 10


def across_tasks(findings: Findings) -> Picture | None:
    """The share of runs whose normalised score is above a threshold, pooled over tasks."""
    pool = findings.across
    if pool is None:
        return None
    look, shown = looks(findings.study.labels), shown_at_first(findings.study)
    marks: list[Mark] = []
    drawn: list[PooledShape] = []
    for place, row in enumerate(pool.shapes):
        p = row.profile
        below = sum(np.array_equal(p.fraction, other.profile.fraction) for other in drawn)
        drawn.append(row)
        low, high = (None, None) if below else (p.low, p.high)
        about = f"{p.tasks} × {p.n} runs"
        at_first = row.variant in shown if row.variant == row.label else place < SHOWN
        marks.append(
            Line(row.label, look[row.variant], p.taus, p.fraction, low, high, None, about,
                 at_first, below=below, steps=True)
        )  # fmt: skip
    x, y = Axis("normalised score τ"), Axis("share of runs above τ", from_zero=True)
    title = f"{len(pool.tasks)} tasks × {pool.seeds} seeds"
    return Picture("across-tasks", (Panel(title, x, y, tuple(marks)),))


PICTURES: Final[tuple[Callable[[Findings], Picture | None], ...]] = (
    intervals,
    learning_curves,
    across_tasks,
    identity,
    knob_sweeps,
    step_sizes.returns,
    step_sizes.endurance,
    step_sizes.promises,
    diagnostics.samples,
    diagnostics.mass,
    diagnostics.kl,
    diagnostics.entropy,
    diagnostics.controllers,
    ages.staleness,
    ages.ages,
    diagnostics.partition,
    diagnostics.beta,
)
"""In the order of a page; each returns None where the study has nothing to show."""


def pictures(findings: Findings) -> dict[str, Picture]:
    """All pictures that have something to show, by their stems."""
    every = (describe(findings) for describe in PICTURES)
    return {picture.stem: picture for picture in every if picture is not None}


def shape_pictures(study: Study) -> Iterator[Figure]:
    """Every shape that took part, six to a figure; these have no chart on the page."""
    every = [shape_of(spelling) for spelling in dict.fromkeys(v.shape for v in study.variants)]
    known = [region.initial for region in every if region is not None]
    for i in range(0, len(known), 6):
        yield show(known[i : i + 6])
