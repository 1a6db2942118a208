"""What a shape has and what it lacks, and a picture of scores that are divided by it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from klip.draw.palette import Look
from klip.draw.panel import Axis, Mark, Panel, Picture, Whisker, minus
from klip.errors import KlipError
from klip.shapes.names import shape_of
from klip.studies.predicting import Prediction
from klip.theory.guarantee.table import decided, in_brief
from klip.theory.portrait import Portrait
from klip.theory.profile import profile

PROVEN: Final[Mapping[str, str]] = {
    "T1": "T1: what raises the objective raises the return",
    "T2": "T2: so does the inner loop at any step size",
    "T3": "T3: the inner loop ends within a bound",
}
"""What theory says of a shape, on tables; a claim that is open is neither had nor lacked."""
MEASURED: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    "anchored: m = A at w = 1": lambda p: p["anchor"]["outcome"] == "exact",
    "m is bounded": lambda p: p["bounded_positive"] and p["bounded_negative"],
    "m has no jump": lambda p: float(p["max_jump"]) < 1e-9,
    "m never turns against A": lambda p: p["sign"] != "reverses",
    "m vanishes somewhere": lambda p: p["sign"] != "keeps",
    "beta never pushes outwards": lambda p: p["restoring"],
    "the pass side is left alone": lambda p: p["pass_fidelity"],
    "m vanishes far out": lambda p: p["redescending_above"] and p["redescending_below"],
}
"""By the shape's profile, as plain data."""
PROPERTIES: Final = (*PROVEN.values(), *MEASURED)
"""What scores of shapes are set against."""


def promised(spelling: str, kept: Portrait | None = None) -> str:
    """What theory says of a shape, in brief: somebody's own as its runs kept it, else nothing.

    >>> promised("spo"), promised("my.py:Mine")
    ('T1 yes, T2 no, T3 yes', '')
    """
    if shape_of(spelling) is None:
        known = {} if kept is None or kept.guarantees is None else kept.guarantees
        return str(known.get("brief", ""))
    try:
        return in_brief(spelling)
    except (KlipError, ArithmeticError, ValueError):
        return ""


def proven(brief: str) -> dict[str, bool]:
    """Which claims of theory a shape keeps and which not, from what `promised` says.

    >>> proven("T1 no, T2 open")
    {'T1: what raises the objective raises the return': False}
    """
    return {PROVEN[claim]: holds for claim, holds in decided(brief).items()}


def has(spelling: str, kept: Portrait | None = None) -> Mapping[str, bool]:
    """Which properties a shape has, and which not; somebody's own as its runs kept them."""
    known = _known(spelling)
    if known is not None:
        return known
    if kept is None or kept.profile is None or kept.guarantees is None:
        return {}
    try:
        return _had(kept.profile, kept.guarantees["brief"])
    except (KeyError, TypeError, ValueError):  # a file may say anything
        return {}


@functools.cache
def _known(spelling: str) -> Mapping[str, bool] | None:
    """The properties of a shape that this Klip knows by name."""
    region = shape_of(spelling)
    if region is None:
        return None
    try:
        return _had(profile(region.initial).as_dict(), in_brief(spelling))
    except (KlipError, ArithmeticError, ValueError):
        return {}


def _had(measured: Mapping[str, Any], brief: str) -> dict[str, bool]:
    return proven(brief) | {name: bool(test(measured)) for name, test in MEASURED.items()}


def divided(
    stem: str, found: Sequence[Prediction], points: Mapping[str, tuple[str, float, Look]], axis: str
) -> Picture:
    """A panel for each property: the scores of those that have it, and of those that do not.

    Args:
        stem: of the picture
        found: properties, and who has them
        points: label, score and look by the names that `found` has
        axis: what the scores are

    """
    panels = []
    for each in found:
        marks: list[Mark] = []
        for base, members in ((0.0, each.have), (1.0, each.lack)):
            order = sorted(members, key=lambda name: (points[name][1], name))
            spread = np.linspace(-0.32, 0.32, len(order)) if len(order) > 1 else [0.0] * len(order)
            for name, aside in zip(order, spread, strict=True):
                label, score, look = points[name]
                marks.append(Whisker(label, base + float(aside), score, None, None, look))
        ticks = ((0.0, f"yes ({len(each.have)})"), (1.0, f"no ({len(each.lack)})"))
        note = "All alike: it cannot tell."
        if each.difference is not None and each.p_holm is not None:
            more = minus(f"{each.difference:+.2f}")
            note = f"{more} for those that have it; p {each.p_holm:.2g}, corrected."
        panels.append(Panel(each.name, Axis(axis), Axis(ticks=ticks, down=True), tuple(marks),
                            note=note))  # fmt: skip
    colours = {label: look for label, _, look in points.values()}
    return Picture(stem, tuple(panels), 3, (4.0, 2.4), colours=colours)
