"""One colour a shape, wherever it appears in a report; in light and in dark."""

from __future__ import annotations

from typing import Final

from klip.draw.style import SERIES
from klip.studies.study import Study

LIGHT: Final = SERIES
DARK: Final = ("#5AB0F0", "#F58A4B", "#34C79F", "#E6A3CB", "#F2BC4A", "#9AD7F7", "#E8E8E8")
"""The same hues, light enough for a dark ground."""
DASHES: Final = ("solid", "dot", "dashdot", "longdashdot")
"""Once all colours are used they come again with another dash. Plain dashes are not among them:
they say that a line lies on another."""

SHOWN: Final = 5
"""Lines that a panel of curves shows at first, and in print; on the page others can be added."""


def slots(study: Study) -> dict[str, int]:
    """A number for each label, the paper's shapes first: its colour, and then its dash."""
    plain = {v.label: None for v in study.variants if v.label.isidentifier() or "(" not in v.label}
    others = {v.label: None for v in study.variants}
    return {label: i for i, label in enumerate({**plain, **others})}


def shown_at_first(study: Study) -> set[str]:
    """The first few labels of each task: a label is shown everywhere or nowhere.

    A sweep on one task is no part of the picture that all make together: a shape that every task
    has is shown with the numbers that it has on all of them.
    """
    order = slots(study)
    labels = [{v.label for v in study.of(task)} for task in study.tasks]
    common = set[str].intersection(*labels) if len(labels) > 1 else set[str]()
    shapes = {label.partition("(")[0] for label in common}
    chosen = (
        {label for label in some if label in common or label.partition("(")[0] not in shapes}
        for some in labels
    )
    return {label for some in chosen for label in sorted(some, key=order.__getitem__)[:SHOWN]}


def colour(slot: int) -> str:
    """On a light ground.

    >>> colour(0), colour(7) == colour(0)
    ('#0072B2', True)
    """
    return LIGHT[slot % len(LIGHT)]


def on_another(below: int) -> tuple[int, int]:
    """Dashes of a line that lies on `below` others: on and off, so that each of them shows.

    >>> on_another(1), on_another(2)
    ((12, 12), (6, 18))
    """
    return 12 // below or 1, 24 - (12 // below or 1)


def dash(slot: int) -> str:
    """How its line is dashed."""
    return DASHES[slot // len(LIGHT) % len(DASHES)]
