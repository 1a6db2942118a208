"""Does a property predict a score? The mean score of those who have it, less that of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from klip.studies.comparing import holm

SHUFFLES: Final = 20_000


@dataclass(frozen=True)
class Prediction:
    """What a property goes along with, over the shapes of a league."""

    name: str
    have: tuple[str, ...]
    lack: tuple[str, ...]
    difference: float | None
    """Mean score of those who have it, less the others'; None where all have it, or none."""
    p: float | None
    """Share of random divisions of the shapes that differ as much."""
    p_holm: float | None = None
    """The same, corrected for all properties."""


def predictions(
    scores: Mapping[str, float], properties: Mapping[str, Mapping[str, bool]]
) -> list[Prediction]:
    """How scores go along with each property; shapes of which it is not known are left out.

    Shapes are not a random sample of all shapes, and properties go together: this describes the
    league, and proves no cause.

    Args:
        scores: by shape
        properties: whether a shape has a property, by property and shape

    >>> scores = {"a": 1.0, "b": 0.9, "c": 0.2, "d": 0.1}
    >>> (found,) = predictions(scores, {"soft": {"a": True, "b": True, "c": False, "d": False}})
    >>> round(found.difference, 2), round(found.p, 1)
    (0.8, 0.3)

    """
    found = [_prediction(name, scores, has) for name, has in properties.items()]
    tested = [i for i, each in enumerate(found) if each.p is not None]
    together = holm(np.array([found[i].p for i in tested]))
    by_place = dict(zip(tested, together, strict=True))
    return [
        Prediction(e.name, e.have, e.lack, e.difference, e.p,
                   float(by_place[i]) if i in by_place else None)
        for i, e in enumerate(found)
    ]  # fmt: skip


def _prediction(name: str, scores: Mapping[str, float], has: Mapping[str, bool]) -> Prediction:
    known = sorted(shape for shape in scores if shape in has)
    have = tuple(shape for shape in known if has[shape])
    lack = tuple(shape for shape in known if not has[shape])
    if not have or not lack:
        return Prediction(name, have, lack, None, None)
    values = np.array([scores[shape] for shape in known])
    member = np.array([has[shape] for shape in known])
    difference = float(values[member].mean() - values[~member].mean())
    return Prediction(name, have, lack, difference, _chance(values, len(have), abs(difference)))


def _chance(values: Sequence[float] | np.ndarray, count: int, size: float) -> float:
    """How often a random group of that many differs from the rest by as much."""
    generator = np.random.Generator(np.random.Philox(key=np.array([18, count], dtype="u8")))
    values = np.asarray(values, dtype=float)
    shuffled = generator.permuted(np.tile(values, (SHUFFLES, 1)), axis=1)
    apart = shuffled[:, :count].mean(axis=1) - shuffled[:, count:].mean(axis=1)
    return float((1 + (np.abs(apart) >= size - 1e-12).sum()) / (SHUFFLES + 1))
