"""Lines over seeds, and which shapes' lines a picture shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from klip.draw.palette import Look
from klip.draw.panel import Axis, Floats, Line, Mark, Whisker
from klip.shapes.names import family
from klip.studies.learning import SeedBand
from klip.studies.scores import Estimate
from klip.studies.study import Study

STEPS: Final = Axis("environment steps")
SHOWN: Final = 12
"""Lines that a panel of curves shows at first, and in print, unless more shapes are somebody's own.
On the page a reader adds others, one by one or all."""

SPREAD: Final = 0.5
"""The part of the way to the next value over which the lines at one value are spread out."""


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
    counts = [of_seeds(int(n)) for n in seeds.seeds]
    about = counts[0] if len(set(counts)) == 1 else tuple(counts)
    low, high = np.maximum(seeds.mean - seeds.std, floor), seeds.mean + seeds.std
    if below or seeds.seeds.max() <= 1:
        return Line(
            label, look, seeds.steps, seeds.mean, None, None, raw, about, shown, below=below
        )
    return Line(label, look, seeds.steps, seeds.mean, low, high, raw, about, shown, below=below)


def estimates(name: str, look: Look, known: Sequence[tuple[float, Estimate]]) -> list[Mark]:
    """A line through estimates at their places, with an upright interval at each."""
    x, y = np.array([at for at, _ in known]), np.array([e.estimate for _, e in known])
    whiskers = [
        Whisker(name, at, e.estimate, e.low, e.high, look, of_seeds(e.n), upright=True)
        for at, e in known
    ]
    return [Line(name, look, x, y), *whiskers]


def beside(place: int, count: int) -> float:
    """How far the `place`-th of `count` lines stands from a value that all of them have.

    >>> beside(0, 2), beside(1, 2)
    (-0.125, 0.125)
    """
    return SPREAD * ((place + 0.5) / count - 0.5)


def main_labels(study: Study) -> set[str]:
    """The labels by which all tasks are compared.

    A sweep on one task is left out: a shape that every task has is shown with the numbers that
    it has on all of them.
    """
    labels = [{v.label for v in study.of(task)} for task in study.tasks]
    common = set[str].intersection(*labels) if len(labels) > 1 else set[str]()
    shapes = {family(label) for label in common}
    return {
        label
        for label in set[str]().union(*labels)
        if label in common or family(label) not in shapes
    }


def shown_at_first(study: Study) -> set[str]:
    """All main labels, or the first of each task: a label is shown everywhere or nowhere.

    PPO-Clip and shapes of somebody's own are always among them.
    """
    main, order = main_labels(study), study.labels.index
    chosen = ({v.label for v in study.of(task)} & main for task in study.tasks)
    first = {label for some in chosen for label in sorted(some, key=order)[:SHOWN]}
    return first | {v.label for v in study.variants if v.own}


def of_seeds(count: int) -> str:
    """`1 seed`, `5 seeds`."""
    return "1 seed" if count == 1 else f"{count} seeds"
