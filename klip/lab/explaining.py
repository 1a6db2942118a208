"""Which completions are kept for a reader, and what is kept of their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from klip.lab.addition import decode
from klip.runs.completions import DIGITS, FATES, PARTS, SPANS, Completion
from klip.tokens import Diagnostics

GROUPS, OF_EACH = 2, 2
"""How many prompts are shown, and the most right and wrong completions of each."""


class Studied(NamedTuple):
    """A batch that was learned from; rows of one prompt stand together."""

    prompts: Tensor
    """`[B, P]`"""
    completions: Tensor
    """`[B, T]`"""
    age: Tensor
    """`[B]`"""
    group: int
    """completions of a prompt"""


def explained(batch: Studied, diagnostics: Diagnostics) -> list[Completion]:
    """The first right and wrong completions of the first prompts that have both."""
    chosen = [
        right[:OF_EACH] + wrong[:OF_EACH] for right, wrong in _mixed(batch, diagnostics)[:GROUPS]
    ]
    return [_told(i, batch, diagnostics) for rows in chosen for i in rows]


def kept(
    batch: Studied, diagnostics: Diagnostics, answer: Tensor, entropy: Tensor, count: int, step: int
) -> list[Completion]:
    """`count` completions of prompts that have right and wrong ones, in turn, with all of it.

    `answer` and `entropy` are `[B, T]`.
    """
    rows = [
        i
        for right, wrong in _mixed(batch, diagnostics)
        for pair in zip(right, wrong, strict=False)
        for i in pair
    ]
    return [
        replace(
            _told(i, batch, diagnostics),
            part=_letters(PARTS, diagnostics.observed.part, i, diagnostics),
            span=_letters(SPANS, answer, i, diagnostics),
            entropy=tuple(_short(x) for x in entropy[i][diagnostics.active[i]]),
            reward=float(diagnostics.advantage.flatten()[i] > 0),
            step=step,
        )
        for i in rows[:count]
    ]


def _mixed(batch: Studied, diagnostics: Diagnostics) -> list[tuple[list[int], list[int]]]:
    """The rows of right and of wrong completions, of each prompt that has both."""
    advantage, found = diagnostics.advantage.flatten(), []
    for start in range(0, len(batch.prompts), batch.group):
        rows = range(start, start + batch.group)
        right = [i for i in rows if advantage[i] > 0]
        wrong = [i for i in rows if advantage[i] < 0]
        if right and wrong:
            found.append((right, wrong))
    return found


def _told(i: int, batch: Studied, diagnostics: Diagnostics) -> Completion:
    observed, active = diagnostics.observed, diagnostics.active[i]
    return Completion(
        decode(batch.prompts[i].tolist()),
        decode(batch.completions[i][active].tolist()),
        int(batch.age[i]),
        _short(diagnostics.advantage.flatten()[i]),
        tuple(_short(x) for x in observed.ratio[i][active]),
        tuple(_short(x) for x in observed.m[i][active]),
        _letters(FATES, observed.fate, i, diagnostics),
    )


def _letters(names: Mapping[str, str], index: Tensor, i: int, diagnostics: Diagnostics) -> str:
    """The letter of each token of a row, by its index in `names`."""
    letters = list(names)
    return "".join(letters[int(k)] for k in index[i][diagnostics.active[i]])


def _short(x: Tensor) -> float:
    return float(f"{float(x):.{DIGITS}g}")
