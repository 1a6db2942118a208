"""The pictures of a report, each described once: the paper's figures, of our runs.

To add one, write a function from `Findings` to a `Picture` and name it in `PICTURES`: that makes
its files. A line in the page's template places it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from klip.draw.palette import INK, KILLED, PASSED, Look, looks
from klip.draw.panel import Axis, Dots, Fan, Floats, Guide, Line, Mark, Panel, Picture, Whisker
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
    published_peak_kill,
    why_not_compared,
)
from klip.studies.study import Study, Variant
from klip.studies.tables import FinalReturns, Sweep

STEPS: Final = Axis("environment steps")
SHOWN: Final = 5
"""Lines that a panel of curves shows at first, and in print; on the page others can be added."""
MOST_ROWS: Final = 30
"""The most intervals in one panel."""
FAN: Final = (
    (0, 8, "1–99 %", 0.14),
    (1, 7, "5–95 %", 0.2),
    (2, 6, "10–90 %", 0.26),
    (3, 5, "25–75 %", 0.34),
)
"""Pairs of the nine quantiles of a row of metrics: their places, label and darkness."""


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
            panels.append(_task_intervals(task, rows[:MOST_ROWS], look))
    most = max((len(panel.y.ticks) for panel in panels), default=0)
    size = (3.1, 0.75 + 0.2 * most)
    return Picture("intervals", tuple(panels), 4, size) if panels else None


def _task_intervals(task: str, rows: Sequence[FinalReturns], look: Mapping[str, Look]) -> Panel:
    marks: list[Mark] = []
    for place, row in enumerate(rows):
        if row.mean is not None:
            e, label = row.mean, row.variant.label
            about = _seeds(e.n)
            marks.append(Whisker(label, place, e.estimate, e.low, e.high, look[label], about))
    labels = [row.variant.label for row in rows]
    clip = next((row for row in rows if row.variant.shape == PAPER["ppo_clip"]), None)
    if clip is not None and clip.mean is not None:
        marks.insert(0, Guide(clip.mean.estimate, "PPO-Clip", "x"))
    return Panel(task, Axis("final return"), _rows(labels), tuple(marks))


def _pooled_intervals(pool: Across, look: Mapping[str, Look]) -> Panel:
    marks: list[Mark] = [Guide(1.0, "PPO-Clip", "x")]
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


def line(
    label: str,
    look: Look,
    seeds: SeedBand,
    raw: tuple[Floats, Floats] | None = None,
    shown: bool = True,
    below: int = 0,
    floor: float = -np.inf,
) -> Line:
    """A band over seeds as a line, with one deviation to either side but not below `floor`."""
    counts = [_seeds(int(n)) for n in seeds.seeds]
    about = counts[0] if len(set(counts)) == 1 else tuple(counts)
    low, high = np.maximum(seeds.mean - seeds.std, floor), seeds.mean + seeds.std
    if below or seeds.seeds.max() <= 1:
        return Line(
            label, look, seeds.steps, seeds.mean, None, None, raw, about, shown, below=below
        )
    return Line(label, look, seeds.steps, seeds.mean, low, high, raw, about, shown, below=below)


def _published(variant: Variant, look: Look, shown: bool) -> list[Line]:
    key = algorithm(variant.shape)
    if key is None or _apart(variant):
        return []
    curve = published_curve(variant.task, key)
    smooth = running_mean(curve.mean, window(len(curve.mean)))
    about = "published"
    return [Line(variant.label, look, curve.steps, smooth, None, None, None, about, shown, True)]


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
    return f"Kill peaks at {kill.mean.max():.1%}{theirs}. {_seeds(len(variant.runs))}."


def beta(findings: Findings) -> Picture | None:
    """Quantiles of the per-sample coefficient over training, of the per-sample runs."""
    panels = []
    for variant in _each_task(findings.study, per_sample_runs):
        seeds = band(variant.runs, "beta")
        if seeds is None or seeds.mean.ndim != 2 or seeds.mean.shape[1] != 9:
            continue
        seeds = thinned(seeds)
        x, q = seeds.steps, seeds.mean
        marks: list[Mark] = [Fan(name, x, q[:, i], q[:, j], alpha) for i, j, name, alpha in FAN]
        marks.append(Line("median", INK, x, q[:, 4]))
        note = f"From pale to dark: 1–99 %, 5–95 %, 10–90 %, 25–75 %. {_seeds(len(variant.runs))}."
        panels.append(
            Panel(variant.task, STEPS, Axis("coefficient β"), tuple(marks), variant.label, note)
        )
    return Picture("beta", tuple(panels)) if panels else None


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
        about = _seeds(e.n)
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
    partition,
    beta,
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


# -- which runs -----------------------------------------------------------------------------------


def main_labels(study: Study) -> set[str]:
    """The labels by which all tasks are compared.

    A sweep on one task is left out: a shape that every task has is shown with the numbers that
    it has on all of them.
    """
    labels = [{v.label for v in study.of(task)} for task in study.tasks]
    common = set[str].intersection(*labels) if len(labels) > 1 else set[str]()
    shapes = {label.partition("(")[0] for label in common}
    return {
        label
        for label in set[str]().union(*labels)
        if label in common or label.partition("(")[0] not in shapes
    }


def shown_at_first(study: Study) -> set[str]:
    """The first few main labels of each task: a label is shown everywhere or nowhere."""
    main, order = main_labels(study), study.labels.index
    chosen = ({v.label for v in study.of(task)} & main for task in study.tasks)
    return {label for some in chosen for label in sorted(some, key=order)[:SHOWN]}


def clip_runs(study: Study, task: str) -> Variant | None:
    """The PPO-Clip runs of a task, of which the paper shows the partition."""
    return _chosen(study, task, "clip", "kill")


def per_sample_runs(study: Study, task: str) -> Variant | None:
    """The per-sample runs of a task, of which the paper shows the coefficient."""
    return _chosen(study, task, "per-sample", "beta")


def _each_task(study: Study, choose: Callable[[Study, str], Variant | None]) -> Iterator[Variant]:
    return (v for task in study.tasks if (v := choose(study, task)) is not None)


def _chosen(study: Study, task: str, name: str, metric: str) -> Variant | None:
    """The paper's own variant if it is there, else the first of that shape."""
    members = [v for v in study.of(task) if _name(v) == name and band(v.runs, metric) is not None]
    return min(members, key=lambda v: bool(_apart(v)), default=None)


def _apart(variant: Variant) -> str:
    return why_not_compared(variant.task, variant.shape, variant.settings)


def _name(variant: Variant) -> str:
    shape = shape_of(variant.shape)
    return variant.shape if shape is None else shape.name


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
