"""What became of the tokens of an iteration, over all its updates: by span and by age."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from klip.shapes import ratio
from klip.tokens import Diagnostics

_COUNTED = ("tokens", "kill", "pass")


class Tally:
    """Counts that grow update by update."""

    def __init__(self, oldest: int) -> None:
        self.spans = torch.zeros(2, len(_COUNTED), dtype=torch.float64)
        """`[reasoning and answer, counted]`"""
        self.ages = torch.zeros(oldest + 1, len(_COUNTED), dtype=torch.float64)
        self.mass = torch.zeros(2, dtype=torch.float64)
        """sum |wA|, and of it what is killed"""
        self.distance = 0.0
        """sum of w - 1 - log w"""

    def add(self, seen: Diagnostics, answer: Tensor) -> None:
        """Take in one update."""
        _, kill, passing = seen.sets()
        parts = torch.stack([seen.active, kill, passing]).double()  # [counted, B, T]
        self.spans[0] += (parts * ~answer).sum((1, 2))
        self.spans[1] += (parts * answer).sum((1, 2))
        assert isinstance(seen.age, Tensor)
        self.ages.index_add_(0, seen.age.flatten().long(), parts.sum(2).T.contiguous())
        w = ratio(seen.log_ratio)
        pull = (w * seen.advantage).abs() * seen.active
        self.mass += torch.stack([pull.sum(), (pull * kill).sum()]).double()
        self.distance += float(((w - 1 - seen.log_ratio) * seen.active).sum())

    def metrics(self, oldest: int) -> dict[str, Any]:
        """Fractions of tokens; lists have an entry for each age, None where there was no token."""
        tokens, kill, passing = self.spans.sum(0).tolist()
        found: dict[str, Any] = {
            "kill": kill / tokens, "pass": passing / tokens,
            "killed_mass": _share(self.mass[1].item(), self.mass[0].item()) or 0.0,
            "kl": self.distance / tokens,
        }  # fmt: skip
        for name, row in zip(("reasoning", "answer"), self.spans.tolist(), strict=True):
            found[f"{name}_share"] = row[0] / tokens
            found[f"{name}_kill"] = _share(row[1], row[0])
            found[f"{name}_pass"] = _share(row[2], row[0])
        if oldest:
            rows = self.ages.tolist()
            found["age_share"] = [row[0] / tokens for row in rows]
            found["age_kill"] = [_share(row[1], row[0]) for row in rows]
            found["age_pass"] = [_share(row[2], row[0]) for row in rows]
        return found


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
