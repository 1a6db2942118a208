"""What became of the tokens of an iteration, over all its updates: by span and by age."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from klip.theory.diagnostics import FATES, totals
from klip.tokens import Diagnostics

_COUNTED = (*FATES, "kill", "pass")
_MASSES = (*(f"{name}_mass" for name in FATES), "killed_mass")
_OF_BAND = frozenset({"kill", "pass", "killed_mass"})


class Tally:
    """Counts that grow update by update."""

    def __init__(self, oldest: int) -> None:
        self.spans = torch.zeros(2, 1 + len(_COUNTED), dtype=torch.float64)
        """`[reasoning and answer, tokens and counted]`"""
        self.ages = torch.zeros(oldest + 1, 1 + len(_COUNTED), dtype=torch.float64)
        """`[age, tokens and counted]`"""
        self.sums = dict.fromkeys(("mass", "k3", *_MASSES), 0.0)
        """totals of `klip.theory.diagnostics`, over all tokens"""
        self.mark = ""
        """what the names of kill and pass end with"""

    def add(self, diagnostics: Diagnostics, answer: Tensor) -> None:
        """Take in one update."""
        observed, self.mark = diagnostics.observed, diagnostics.mark
        fates = [observed.fate == i for i in range(len(FATES))]
        parts = torch.stack([torch.ones_like(answer), *fates, observed.kill, observed.passing])
        parts = (parts & diagnostics.active).double()  # [tokens and counted, B, T]
        self.spans[0] += (parts * ~answer).sum((1, 2))
        self.spans[1] += (parts * answer).sum((1, 2))
        assert isinstance(diagnostics.age, Tensor)
        self.ages.index_add_(0, diagnostics.age.flatten().long(), parts.sum(2).T.contiguous())
        sums = totals(observed, diagnostics.active)
        for name in self.sums:
            self.sums[name] += float(sums[name])

    def metrics(self, oldest: int) -> dict[str, Any]:
        """Fractions of tokens; lists have an entry for each age, None where there was no token."""
        tokens = float(self.spans[:, 0].sum())
        names = [self._named(name) for name in _COUNTED]
        row: dict[str, Any] = dict(
            zip(names, (self.spans.sum(0)[1:] / tokens).tolist(), strict=True)
        )
        for name in _MASSES:
            row[self._named(name)] = _share(self.sums[name], self.sums["mass"]) or 0.0
        row["kl"] = self.sums["k3"] / tokens
        for span, counts in zip(("reasoning", "answer"), self.spans.tolist(), strict=True):
            row[f"{span}_share"] = counts[0] / tokens
            own = [_share(count, counts[0]) for count in counts[1:]]
            row |= {f"{span}_{name}": share for name, share in zip(names, own, strict=True)}
        if oldest:
            ages = self.ages.tolist()
            row["age_share"] = [counts[0] / tokens for counts in ages]
            for i, name in enumerate(names, start=1):
                row[f"age_{name}"] = [_share(counts[i], counts[0]) for counts in ages]
        return row

    def _named(self, name: str) -> str:
        """The name of a metric, which says if it is of the reference band."""
        return name + self.mark if name in _OF_BAND else name


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
