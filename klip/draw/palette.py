"""A look of its own for every shape of a study: a colour, in light and in dark, and a dash.

A family of shapes (`clip`, `kl`) has a hue. Settings of one family are shades of it, each with a
dash of its own. Once all fourteen hues are taken they come again, mixed, and with another dash.
So no two labels of a study look alike, the first fourteen families differ by their colours alone,
as dots need, and the first seven under every common form of colour blindness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from klip.draw.style import KILL, NEUTRAL, PASS, POSITIVE
from klip.shapes.names import family

Dash = tuple[float, ...]
"""Lengths on and off, in pixels; nothing for a solid line."""

LIGHT: Final = (
    *(POSITIVE, "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#404040"),
    *("#BF1D45", "#10339F", "#5BC028", "#870176", "#326C00", "#B752EE", "#747067"),
)
"""Okabe & Ito's hues, whose black is a grey here, so that it has darker shades; then seven that
lie far from these and from each other."""
DARK: Final = (
    *("#5AB0F0", "#F58A4B", "#34C79F", "#E6A3CB", "#F2BC4A", "#9AD7F7", "#D0D0D0"),
    *("#F83963", "#477CFF", "#6DE033", "#FC40DF", "#52A116", "#A073BD", "#9D906C"),
)
"""The same hues, light enough for a dark ground."""
DASHES: Final[tuple[Dash, ...]] = (
    (),
    (2, 3),
    (9, 3, 2, 3),
    (14, 3, 2, 3, 2, 3),
    (5, 2, 1, 2, 1, 2, 1, 2),
)
"""Even dashes are not among them: they say that a line lies on another."""
_ROUNDS: Final = (
    (0, 0.0, 0.0),
    (6, 0.45, 0.3),
    (4, 0.35, -0.27),
)
"""For each time the hues come again: the other hue that is mixed in, how much of it, and how far
the mixture moves towards the ground (below 0: away from it)."""


@dataclass(frozen=True)
class Look:
    """How a line and all that belongs to it is drawn."""

    light: str
    """The colour on a light ground, as #rrggbb."""
    dark: str
    """The colour on a dark ground."""
    dash: Dash = ()


INK: Final = Look(NEUTRAL, "#C8CACD")
PLAIN: Final = Look(LIGHT[0], DARK[0])
"""For a chart with a single line."""
KILLED: Final = Look(KILL, "#E58ABF")
PASSED: Final = Look(PASS, "#43C59F")


def looks(labels: Iterable[str]) -> Mapping[str, Look]:
    """A look for each label, no two the same; the order of the labels decides.

    >>> chosen = looks(["clip", "kl", "clip(eps=0.3)"])
    >>> chosen["clip"].light, chosen["kl"].light, chosen["clip(eps=0.3)"].dash
    ('#0072B2', '#D55E00', (2, 3))
    """
    families: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        families.setdefault(hue(label), []).append(label)
    return {
        label: look
        for place, members in enumerate(families.values())
        for label, look in zip(members, _shades(place, len(members)), strict=True)
    }


def looks_of(names: Sequence[str], labels: Iterable[str]) -> Mapping[str, Look]:
    """A look for each name: its family has the hue that it has in pictures of these labels.

    >>> looks_of(["kl"], ["clip, lr 0.1", "kl, lr 0.1"])["kl"].light
    '#D55E00'
    """
    families: dict[str, list[str]] = {hue(label): [] for label in labels}
    for name in names:
        families.setdefault(hue(name), []).append(name)
    return looks(name for own, members in families.items() for name in members or [own])


def hue(label: str) -> str:
    """The shape without its numbers and settings: its labels are shades of one hue.

    >>> hue("clip(eps=0.3)"), hue("kl, lr 0.1"), hue("truncate * clip")
    ('clip', 'kl', 'truncate * clip')
    """
    return family(label).partition(",")[0]


def on_another(below: int) -> Dash:
    """Dashes of a line that lies on `below` others: on and off, so that each of them shows.

    >>> on_another(1), on_another(2)
    ((12, 12), (6, 18))
    """
    on = 12 // below or 1
    return on, 24 - on


def mixed(colour: str, other: str, amount: float) -> str:
    """A colour on the straight way from one to another in OKLab, as #RRGGBB.

    >>> mixed("#000000", "#FFFFFF", 0.0), mixed("#0072B2", "#FFFFFF", 1.0)
    ('#000000', '#FFFFFF')
    """
    return _hex((1 - amount) * oklab(colour) + amount * oklab(other))


def oklab(colour: str) -> npt.NDArray[np.float64]:
    """Lightness and two opponent axes `[3]`; equal distances look about equally far apart."""
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    return np.asarray(_FROM_CONES @ np.cbrt(_TO_CONES @ linear))


_TO_CONES: Final = np.array([
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
])  # fmt: skip
_FROM_CONES: Final = np.array([
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
])  # fmt: skip
"""Ottosson 2020, bottosson.github.io/posts/oklab."""


def _hex(lab: npt.NDArray[np.float64]) -> str:
    linear = np.linalg.solve(_TO_CONES, np.linalg.solve(_FROM_CONES, lab) ** 3).clip(0.0, 1.0)
    srgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{int(x):02X}" for x in np.rint(255 * srgb))


def _shades(place: int, count: int) -> list[Look]:
    """The looks of a family: its hue, then shades from far off the ground to near it."""
    turn, hue = divmod(place, len(LIGHT))
    offset, share, start = _ROUNDS[turn % len(_ROUNDS)]
    light, dark = (
        mixed(hues[hue], hues[(hue + offset) % len(hues)], share) for hues in (LIGHT, DARK)
    )
    amounts = [start, *(start + shift for shift in _shifts(count - 1))]
    return [
        Look(
            _towards(light, "#FFFFFF", "#000000", amount),
            _towards(dark, "#15171A", "#FFFFFF", amount),
            DASHES[(turn + k) % len(DASHES)],
        )
        for k, amount in enumerate(amounts)
    ]


def _shifts(count: int) -> list[float]:
    """`count` amounts on both sides of 0, none near it, in order."""
    darker = count // 2
    return [
        *(float(x) for x in np.linspace(-0.45, -0.15, darker)),
        *(float(x) for x in np.linspace(0.15, 0.5, count - darker)),
    ]


def _towards(colour: str, ground: str, far: str, amount: float) -> str:
    if amount == 0:
        return colour
    return mixed(colour, ground if amount > 0 else far, min(abs(amount), 0.75))
