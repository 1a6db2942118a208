"""Which completions are kept for a reader, and what is kept of their tokens."""

from __future__ import annotations

from torch import Tensor

from klip.lab.addition import decode
from klip.runs.completions import DIGITS, FATES, Completion
from klip.tokens import Diagnostics

GROUPS, OF_EACH = 2, 2
"""How many prompts are shown, and the most right and wrong completions of each."""


def explained(
    prompts: Tensor, completions: Tensor, diagnostics: Diagnostics, age: Tensor, group: int
) -> list[Completion]:
    """The first right and wrong completions of the first prompts that have both."""
    observed, advantage = diagnostics.observed, diagnostics.advantage.flatten()
    chosen: list[list[int]] = []
    for start in range(0, len(prompts), group):
        rows = range(start, start + group)
        right = [i for i in rows if advantage[i] > 0][:OF_EACH]
        wrong = [i for i in rows if advantage[i] < 0][:OF_EACH]
        if right and wrong:
            chosen.append(right + wrong)
    samples, letters = [], list(FATES)
    for i in (row for rows in chosen[:GROUPS] for row in rows):
        active = diagnostics.active[i]
        samples.append(
            Completion(
                decode(prompts[i].tolist()),
                decode(completions[i][active].tolist()),
                int(age[i]),
                _short(advantage[i]),
                tuple(_short(x) for x in observed.ratio[i][active]),
                tuple(_short(x) for x in observed.m[i][active]),
                "".join(letters[k] for k in observed.fate[i][active].tolist()),
            )
        )
    return samples


def _short(x: Tensor) -> float:
    return float(f"{float(x):.{DIGITS}g}")
