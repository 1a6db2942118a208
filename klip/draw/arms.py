"""The pictures of a token experiment, each described once: one per group of arms and kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from klip.draw.lines import line
from klip.draw.palette import Look, looks
from klip.draw.panel import Axis, Guide, Line, Mark, Panel, Picture, Whisker
from klip.runs.store import slug
from klip.studies.arms import Arm, GroupFindings, TokenFindings, mean_over_rows, start
from klip.studies.learning import SeedBand, band, thinned

COMPLETIONS: Final = Axis("completions sampled")
AGE: Final = Axis("age, in iterations")
ACROSS: Final = (5.2, 3.2)
"""The size of a picture with one panel, in inches."""


def arm_looks(group: GroupFindings) -> Mapping[str, Look]:
    """A look for each arm of a group, by its name."""
    # A user chose the name: its part before a bracket or comma is no family of shapes.
    places = [f"arm {place}" for place in range(len(group.arms))]
    by_place = looks(places)
    return {arm.name: by_place[place] for arm, place in zip(group.arms, places, strict=True)}


def accuracy(group: GroupFindings) -> Picture | None:
    """Held-out accuracy over training, from the warm-up on."""
    panel = _over_training(group, "held_out", "Held-out accuracy", "held-out accuracy")
    return Picture("accuracy", (panel,), 1, ACROSS) if panel else None


def differences(group: GroupFindings) -> Picture | None:
    """Final accuracy minus that of the group's first arm, in points, with 95 % intervals."""
    look, first = arm_looks(group), group.arms[0]
    rows = [(row.arm.name, row.difference) for row in group.rows[1:] if row.difference is not None]
    if not rows:
        return None
    marks: list[Mark] = [Guide(0.0, "", "x")]
    for place, (name, e) in enumerate(rows):
        low, high = (None if end is None else 100 * end for end in (e.low, e.high))
        about = f"{e.n} against {e.against} seeds"
        marks.append(Whisker(name, place, 100 * e.estimate, low, high, look[name], about))
    names = tuple((float(place), name) for place, (name, _) in enumerate(rows))
    x = Axis(f"final accuracy minus that of {first.name}, points")
    panel = Panel("Final accuracy", x, Axis(ticks=names, down=True), tuple(marks))
    return Picture("differences", (panel,), 1, (ACROSS[0], 0.9 + 0.3 * len(rows)))


def entropy(group: GroupFindings) -> Picture | None:
    """Entropy per token over training."""
    panel = _over_training(group, "entropy", "Entropy", "entropy per token, nats")
    return Picture("entropy", (panel,), 1, ACROSS) if panel else None


def zeroed(group: GroupFindings) -> Picture | None:
    """The share of tokens that have no pull: of all, in the answer, in the reasoning."""
    panels = (
        _over_training(group, "zeroed", "Zeroed", "zeroed, share of tokens"),
        _over_training(group, "answer_zeroed", "Zeroed in the answer", "share of its tokens"),
        _over_training(group, "reasoning_zeroed", "Zeroed in the reasoning", "share of its tokens"),
    )
    known = tuple(panel for panel in panels if panel)
    return Picture("zeroed", known) if known else None


def by_age(group: GroupFindings) -> Picture | None:
    """What is zeroed and what is weakened at each age, averaged over training."""
    if not group.age_shares:
        return None
    return Picture(
        "by-age",
        (
            _ages(group, "age_zeroed", "Zeroed, by age"),
            _ages(group, "age_weakened", "Weakened, by age"),
        ),
    )


PICTURES: Final[tuple[Callable[[GroupFindings], Picture | None], ...]] = (
    differences,
    accuracy,
    entropy,
    zeroed,
    by_age,
)
"""In the order of a page; each returns None where a group has nothing to show."""


def pictures(findings: TokenFindings) -> dict[str, dict[str, Picture]]:
    """All pictures that have something to show, by group and kind; stems name both."""
    by_group: dict[str, dict[str, Picture]] = {}
    stems: list[str] = []
    for group in findings.groups:
        every = (describe(group) for describe in PICTURES)
        stem = slug(group.name.replace(" ", "-"))  # it becomes the name of files
        stems.append(f"{stem}-{len(stems) + 1}" if stem in stems else stem)
        by_group[group.name] = {
            kind.stem: Picture(
                f"{stems[-1]}-{kind.stem}",
                kind.panels,
                kind.most_columns,
                kind.size,
            )
            for kind in every
            if kind is not None
        }
    return by_group


def _over_training(group: GroupFindings, metric: str, title: str, y: str) -> Panel | None:
    """A metric against completions: mean over seeds, and a band of one deviation."""
    look = arm_looks(group)
    lines = []
    for arm in group.arms:
        seeds = band(arm.ended, metric)
        if seeds is not None:
            seeds = _with_start(arm, seeds) if metric == "held_out" else seeds
            lines.append(line(arm.name, look[arm.name], thinned(seeds), floor=0.0))
    return _panel(title, COMPLETIONS, y, lines) if lines else None


def _ages(group: GroupFindings, metric: str, title: str) -> Panel:
    """A metric of each age: mean over seeds, band of one deviation."""
    look = arm_looks(group)
    lines = []
    for arm in group.arms:
        rows = [mean_over_rows(run.metrics[metric]) for run in arm.ended if metric in run.metrics]
        if rows:
            values = np.stack(rows)
            ages = np.arange(values.shape[1], dtype=float)
            counts = np.full(len(ages), float(len(rows)))
            seeds = SeedBand(ages, values.mean(0), values.std(0), counts)
            lines.append(line(arm.name, look[arm.name], seeds, floor=0.0))
    return _panel(title, AGE, "share of tokens", lines)


def _panel(title: str, x: Axis, y: str, lines: Sequence[Line]) -> Panel:
    return Panel(title, x, Axis(y, from_zero=True), tuple(lines))


def _with_start(arm: Arm, seeds: SeedBand) -> SeedBand:
    """The curve with the warm-up as its first point."""
    first = np.array([start(run) for run in arm.ended])
    return SeedBand(
        np.concatenate([[0.0], seeds.steps]),
        np.concatenate([[first.mean()], seeds.mean]),
        np.concatenate([[first.std()], seeds.std]),
        np.concatenate([[float(len(first))], seeds.seeds]),
    )
