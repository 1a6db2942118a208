"""The shapes that took part, each with its formula, picture and properties.

A shape that this Klip knows is drawn and measured here. Anybody's own is drawn as its runs kept it:
a page executes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from klip.draw.sketch import sketch
from klip.errors import KlipError
from klip.shapes.names import brief, shape_of
from klip.studies.study import Study, Variant, plain
from klip.theory.guarantee.table import SAYS, line_of
from klip.theory.portrait import Portrait, portrait
from klip.theory.profile import Profile, profile

OWN: Final = "Its runs kept no guarantees, and a report executes no code: klip guarantee says them."
GUARANTEES: Final[Mapping[str, tuple[str, str]]] = {
    "brief": ("guarantees", f"on tables, with exact advantages: {SAYS}"),
    "end": ("inner loop ends", "a bound on its total variation, or a ratio that it reaches"),
}
"""The name and the meaning of what is known of a shape's guarantees."""


@dataclass(frozen=True)
class Card:
    """What the page shows of one shape."""

    spelling: str
    label: str
    formula: str = ""
    reference: str = ""
    picture: Markup | None = None
    others: tuple[tuple[str, Markup], ...] = ()
    """Other contexts, in words, and the picture at each."""
    promises: tuple[tuple[str, str, str], ...] = ()
    """Its guarantees: the name, value and meaning of each."""
    properties: tuple[tuple[str, str, str], ...] = ()
    """The same of its profile."""
    remark: str = ""
    """What the card assumes or cannot show."""


def cards(study: Study) -> list[Card]:
    """A card for each shape, in the order of the variants."""
    shapes: dict[tuple[str, str], Variant] = {}
    for variant in study.variants:
        key = variant.shape, variant.runs[0].code
        if key not in shapes or shapes[key].portrait is None:
            shapes[key] = variant
    return [
        card(spelling, variant.portrait, variant.settings.get("steps"))
        for (spelling, _), variant in shapes.items()
    ]


def card(spelling: str, kept: Portrait | None = None, steps: int | None = None) -> Card:
    """All that is known of a shape by its spelling, and by what its runs kept of it.

    `steps` is how long they were: a shape that looks at the step is drawn at three of them.
    """
    known = _known(spelling, steps)
    if known is not None:
        return known
    if kept is not None:
        said = _card(spelling, kept, kept.profile, kept.guarantees)
        if kept.guarantees is None and not kept.trouble:
            said = dataclasses.replace(said, remark=f"{said.remark} {OWN}".strip())
        return said
    why = (
        "Somebody’s own code. A report executes nothing, and these runs kept no picture of it: see "
        "it with klip show and klip profile."
        if ":" in spelling
        else "This version of Klip does not know it."
    )
    return Card(spelling, spelling, remark=why)


@functools.cache
def _known(spelling: str, steps: int | None) -> Card | None:
    """The card of a shape that this Klip knows by name."""
    value = shape_of(spelling)
    if value is None:
        return None
    drawn = portrait(value, steps, profiled=False)
    try:
        return _card(spelling, drawn, profile(value.initial).as_dict(), line_of(spelling))
    except (KlipError, ArithmeticError, ValueError) as error:
        return Card(spelling, brief(spelling), drawn.formula, drawn.reference, remark=str(error))


def _card(
    spelling: str,
    drawn: Portrait,
    properties: Mapping[str, Any] | None,
    promises: Mapping[str, str] | None,
) -> Card:
    remarks = []
    if drawn.adapts:
        remarks.append(f"A controller: drawn and profiled as it starts, as {drawn.initial}.")
    if drawn.weighs_kl:
        remarks.append(
            "It also weighs the closed-form KL of the state, which is not in the picture."
        )
    if drawn.needs:
        remarks.append(f"Drawn at typical values of {', '.join(drawn.needs)}.")
    if drawn.trouble:
        remarks.append(f"When its run began, looking at it raised {drawn.trouble}.")
    promised = tuple(
        (name, promises[key], meaning)
        for key, (name, meaning) in GUARANTEES.items()
        if promises is not None and key in promises
    )
    described = tuple(
        (name.replace("_", " "), written(properties[name]), meaning)
        for name, meaning in Profile.meanings().items()
        if properties is not None and name in properties
    )
    pictures = [
        (" and ".join(f"{name} {plain(value)}" for name, value in pose.context.items()),
         Markup(sketch(pose)))
        for pose in drawn.poses
    ]  # fmt: skip
    return Card(
        spelling,
        brief(spelling),
        drawn.formula,
        drawn.reference,
        pictures[0][1] if pictures else None,
        tuple(pictures[1:]),
        promised,
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
