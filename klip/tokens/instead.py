"""What other trust regions would have done to the tokens of a batch, beside what one did to them.

    instead/sapo/zeroed              of all tokens, the share that sapo would have zeroed
    instead/sapo/of_zeroed/kept      of those that were zeroed, the share that sapo would have kept
    instead/sapo/of_zeroed/pull      of their gradient's mass |wA|, what sapo would have left

The names after the last slash are those of `klip.theory.diagnostics`, so a fate means the same
whether a region did it or would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from klip.errors import KlipError
from klip.shapes import Shape
from klip.theory.diagnostics import FATES
from klip.tokens.diagnostics import Diagnostics
from klip.tokens.pool import Pool
from klip.tokens.region import TokenRegion

PREFIX = "instead/"
OF_ZEROED = "of_zeroed/"

Others = Mapping[str, str | Shape | TokenRegion] | Iterable[str | Shape | TokenRegion]
"""Shapes or their spellings, or regions; as a mapping, by the names that they are to have."""


def regions(others: Others) -> dict[str, TokenRegion]:
    """The regions of `others`, by name: unless given, a shape's is its spelling.

    >>> regions(["sapo", "clip(eps=0.1)"])["clip(eps=0.1)"].shape
    Clip(eps=0.1, low=None, high=None)
    >>> regions({"gspo": TokenRegion.read("clip(low=3e-4, high=4e-4)", "sequence-mean")})["gspo"].level
    SequenceMean()
    """  # noqa: E501 - a region in a doctest is one line
    if isinstance(others, (str, Shape, TokenRegion)):
        others = [others]
    pairs = others.items() if isinstance(others, Mapping) else ((None, other) for other in others)
    named: dict[str, TokenRegion] = {}
    for name, other in pairs:
        region = other if isinstance(other, TokenRegion) else TokenRegion.read(other)
        label = _label(region, other) if name is None else name
        if "/" in label or not label.strip():
            raise KlipError(f"a region is called {label!r}: give it a name without a slash")
        if label in named:
            raise KlipError(f"two regions are called {label}: give each a name, as a mapping")
        named[label] = region
    return named


def _label(region: TokenRegion, other: str | Shape | TokenRegion) -> str:
    if isinstance(other, str):
        return other.strip()
    if region != TokenRegion(region.shape):
        raise KlipError(
            f"a region of {region.shape} with a level, gates or penalties has no name of its own: "
            "give it one, as in {'gspo': region}"
        )
    return str(region.shape)


def beside(own: Diagnostics, others: Mapping[str, Diagnostics], details: bool = True) -> Pool:
    """The pool of `own`, with what each of `others` would have done to the same tokens.

    >>> import torch
    >>> from klip.tokens import token_loss
    >>> batch = (torch.tensor([[0.0, 0.5]]), torch.zeros(1, 2), torch.ones(1))
    >>> clip, sapo = (token_loss(*batch, shape=name).diagnostics for name in ("clip", "sapo"))
    >>> row = beside(clip, {"sapo": sapo}).metrics()
    >>> row["zeroed"], row["instead/sapo/zeroed"], row["instead/sapo/of_zeroed/weakened"]
    (0.5, 0.0, 1.0)
    >>> round(row["instead/sapo/of_zeroed/pull"], 2)
    0.9
    """
    pool = own.pool(details)
    if not others:
        return pool
    parts = dict(pool.parts)
    zeroed = own.active & (own.observed.fate == FATES.index("zeroed"))
    for name, other in others.items():
        parts[f"{PREFIX}{name}/"] = other.part(own.active, ranked=False)
        parts[f"{PREFIX}{name}/{OF_ZEROED}"] = other.part(zeroed, ranked=False)
    return replace(pool, parts=parts)


def says(row: Mapping[str, float], own: str) -> list[str]:
    """What a row of metrics says of the others, a sentence each; `own` is the name of the region.

    >>> says({"zeroed": 0.125, "instead/sapo/zeroed": 0.0, "instead/sapo/of_zeroed/tokens": 50.0,
    ...       "instead/sapo/of_zeroed/pull": 0.314, "instead/sapo/of_zeroed/zeroed": 0.0}, "clip")
    ['sapo would have zeroed 0 % of the tokens (clip: 12.5 %), and left 31.4 % of the gradient that clip zeroed']
    """  # noqa: E501 - a sentence in a doctest is one line
    sentences = []
    end = f"/{OF_ZEROED}tokens"
    for name in (n.removeprefix(PREFIX).removesuffix(end) for n in row if n.endswith(end)):
        at = f"{PREFIX}{name}/"
        line = (
            f"{name} would have zeroed {_percent(row[at + 'zeroed'])} of the tokens "
            f"({own}: {_percent(row['zeroed'])})"
        )
        if row[f"{at}{OF_ZEROED}tokens"]:
            left = _percent(row[f"{at}{OF_ZEROED}pull"])
            line += f", and left {left} of the gradient that {own} zeroed"
        sentences.append(line)
    return sentences


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
