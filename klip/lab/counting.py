"""What became of the tokens of an iteration, over all its updates: by span and by age."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from klip.theory.diagnostics import totals
from klip.tokens import Diagnostics

_COUNTED = ("tokens", "kill", "pass")
_SUMMED = ("mass", "killed_mass", "k3")


class Tally:
    """Counts that grow update by update."""

    def __init__(self, oldest: int) -> None:
        self.spans = torch.zeros(2, len(_COUNTED), dtype=torch.float64)
        """`[reasoning and answer, counted]`"""
        self.ages = torch.zeros(oldest + 1, len(_COUNTED), dtype=torch.float64)
        """`[age, counted]`"""
        self.sums = dict.fromkeys(_SUMMED, 0.0)
        """totals of `klip.theory.diagnostics`, over all tokens"""

    def add(self, diagnostics: Diagnostics, answer: Tensor) -> None:
        """Take in one update."""
        _, kill, passing = diagnostics.sets()
        parts = torch.stack([diagnostics.active, kill, passing]).double()  # [counted, B, T]
        self.spans[0] += (parts * ~answer).sum((1, 2))
        self.spans[1] += (parts * answer).sum((1, 2))
        assert isinstance(diagnostics.age, Tensor)
        self.ages.index_add_(0, diagnostics.age.flatten().long(), parts.sum(2).T.contiguous())
        sums = totals(diagnostics.observed, diagnostics.active)
        for name in self.sums:
            self.sums[name] += float(sums[name])

    def metrics(self, oldest: int) -> dict[str, Any]:
        """Fractions of tokens; lists have an entry for each age, None where there was no token."""
        tokens, kill, passing = self.spans.sum(0).tolist()
        row: dict[str, Any] = {
            "kill": kill / tokens,
            "pass": passing / tokens,
            "killed_mass": _share(self.sums["killed_mass"], self.sums["mass"]) or 0.0,
            "kl": self.sums["k3"] / tokens,
        }
        for name, counts in zip(("reasoning", "answer"), self.spans.tolist(), strict=True):
            row[f"{name}_share"] = counts[0] / tokens
            row[f"{name}_kill"] = _share(counts[1], counts[0])
            row[f"{name}_pass"] = _share(counts[2], counts[0])
        if oldest:
            ages = self.ages.tolist()
            row["age_share"] = [counts[0] / tokens for counts in ages]
            row["age_kill"] = [_share(counts[1], counts[0]) for counts in ages]
            row["age_pass"] = [_share(counts[2], counts[0]) for counts in ages]
        return row


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
