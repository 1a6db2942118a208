"""The shapes that took part, each with its formula, picture and properties."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from klip.draw.sketch import sketch
from klip.errors import KlipError
from klip.shapes.names import brief, shape_of
from klip.studies.study import Study
from klip.theory.profile import Profile, profile
from klip.theory.views import reference_context


@dataclass(frozen=True)
class Card:
    """What the page shows of one shape."""

    spelling: str
    label: str
    formula: str
    reference: str
    picture: Markup | None
    properties: tuple[tuple[str, str, str], ...]
    """The name, value and meaning of each."""
    remark: str
    """What the card assumes or cannot show."""


def cards(study: Study) -> list[Card]:
    """A card for each shape, in the order of the variants."""
    return [card(spelling) for spelling in dict.fromkeys(v.shape for v in study.variants)]


@functools.cache
def card(spelling: str) -> Card:
    """All that is known of a shape by its spelling alone."""
    value = shape_of(spelling)
    if value is None:
        why = (
            "Somebody's own code. A report executes nothing, so it has no picture and no profile "
            "here: see it with klip show and klip profile."
            if ":" in spelling
            else "This version of Klip does not know it."
        )
        return Card(spelling, spelling, "", "", None, (), why)
    shape, formula = value.initial, value.formula.replace("`", "")
    remarks = []
    if value.adapts:
        remarks.append(f"A controller: drawn and profiled as it starts, as {shape}.")
    if (
        shape.kl_weight(np.zeros(1), np.ones(1), reference_context(shape, np.zeros(1), np.ones(1)))
        is not None
    ):
        remarks.append(
            "It also weighs the closed-form KL of the state, which is not in the picture."
        )
    if shape.needs:
        remarks.append(f"Drawn at typical values of {', '.join(sorted(shape.needs))}.")
    try:
        properties = profile(shape).as_dict()
        picture = Markup(sketch(shape))
    except (KlipError, ArithmeticError, ValueError) as error:
        return Card(spelling, brief(spelling), formula, value.reference, None, (), str(error))
    meanings = Profile.meanings()
    described = tuple(
        (name.replace("_", " "), written(known), meanings[name])
        for name, known in properties.items()
    )
    return Card(
        spelling,
        brief(spelling),
        formula,
        value.reference,
        picture,
        described,
        " ".join(remarks),
    )


def written(value: Any) -> str:
    """A property as a person would write it.

    >>> written({"1": 1.25, "-1": "none"})
    '1: 1.25, -1: none'
    """
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case {"advantage": a, "ratio": w, **rest}:
            size = f", size {rest['size']:.4g}" if "size" in rest else ""
            return f"w = {w:.4g} at A = {a:+g}{size}"
        case {"outcome": outcome, "constant": constant}:
            return outcome if outcome in ("exact", "broken") else f"{outcome} ({constant:.4g})"
        case dict():
            return ", ".join(f"{k}: {written(v)}" for k, v in value.items())
        case list() | tuple():
            return "; ".join(written(v) for v in value) or "none"
    return str(value)
