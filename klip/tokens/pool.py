"""What is left of batches once their tensors are gone: sums, extremes and numbers to rank.

`pooled` puts the pools of several batches, or of several processes, together as if they had been
one batch, in bounded memory; `Pool.metrics` are the metrics of that batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from klip.errors import KlipError
from klip.theory import diagnostics
from klip.theory.diagnostics import QUANTILE_LABELS, merged
from klip.theory.ranked import Ranked, joined

_OF_RATIO = re.compile(r"(inside|kill|pass|ratio|k1|k3)(?!ed)")
"""How the names begin that say something of a ratio alone."""


@dataclass(frozen=True, eq=False)
class Part:
    """The tokens of a span, of an age, or all of them."""

    totals: Mapping[str, Any] = field(default_factory=dict)
    """sums and extremes by name, as `klip.theory.diagnostics.totals` has them; empty if no token is
    in the part"""
    ranked: Mapping[str, Ranked] = field(default_factory=dict)
    """what has quantiles, by their names with {} for the label: `beta_{}`"""
    mark: str = ""
    """what the names of the sets end with, as in `klip.theory.diagnostics.metrics`"""
    partial: bool = False
    """whether it knows a ratio alone, which is not the one that the multiplier is of"""

    def of_ratio(self) -> Part:
        """What it says of the ratio: its statistics and the three sets, nothing of multipliers."""
        ranked = {name: x for name, x in self.ranked.items() if name.startswith("ratio")}
        return replace(self, ranked=ranked, partial=True)

    def metrics(self) -> dict[str, float]:
        """Every number by name; of a part without tokens, `tokens` = 0 alone."""
        if not self.totals:
            return {"tokens": 0.0}
        row = {"tokens": float(self.totals["count"])}
        named = diagnostics.metrics(self.totals, self.mark)
        if self.partial:
            named = {name: x for name, x in named.items() if _OF_RATIO.match(name)}
        row |= {name: float(x) for name, x in named.items()}
        for name, numbers in self.ranked.items():
            levels = zip(QUANTILE_LABELS, numbers.quantiles() or (), strict=False)
            row |= {name.format(label): value for label, value in levels}
        return row


@dataclass(frozen=True, eq=False)
class Pool:
    """What several batches come to; it holds nothing of a device, and can be sent."""

    parts: Mapping[str, Part]
    """by the prefix of their metrics: "" for all tokens, "answer/", "age=2-3/" """
    sequences: float = 0.0
    dropped: float = 0.0
    moved: bool = False
    """whether the ratio of any token differs from 1"""
    means: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """further means by name: a sum, and the number of things that were summed"""

    @property
    def tokens(self) -> int:
        """How many tokens count."""
        return int(self.parts[""].totals.get("count", 0)) if "" in self.parts else 0

    def metrics(self) -> dict[str, float]:
        """Every number by name; those of a span or an age are `span/name` and `age=2-3/name`."""
        row: dict[str, float] = {}
        for prefix, part in self.parts.items():
            row |= {prefix + name: value for name, value in part.metrics().items()}
        if self.parts:
            row["sequences"], row["dropped"] = self.sequences, self.dropped
            row["inert"] = float(self.tokens > 0 and not self.moved)
        return row | {name: total / max(n, 1) for name, (total, n) in self.means.items()}

    def of_all(self) -> dict[str, float]:
        """The share of all tokens that is in a part, and that is in it and zeroed, for each part.

        A mean of these over batches, weighed by their tokens, is that of all tokens, which is not
        so for fractions within a part; `answer/zeroed` is `answer/zeroed_of_all` over
        `answer/tokens_of_all`.
        """
        tokens = max(self.tokens, 1)
        return {
            f"{prefix}{name}_of_all": float(part.totals.get(total, 0.0)) / tokens
            for prefix, part in self.parts.items()
            if prefix and not part.partial
            for name, total in (("tokens", "count"), ("zeroed", "zeroed"))
        }

    def in_cells(self) -> Pool:
        """The pool with counts in place of the numbers to rank, which takes less room."""
        parts = {
            prefix: replace(part, ranked={k: x.in_cells() for k, x in part.ranked.items()})
            for prefix, part in self.parts.items()
        }
        return replace(self, parts=parts)


def pooled(pools: Sequence[Pool]) -> Pool:
    """The pools of several batches as that of one: nothing in it is a mean of means.

    Quantiles are exact up to `klip.theory.ranked.LIMIT` tokens, and within 0.1 % beyond.

    >>> import torch
    >>> from klip.tokens import token_loss
    >>> def batch(*w):
    ...     new = torch.tensor([w]).log()
    ...     return token_loss(new, torch.zeros_like(new), torch.ones(1)).diagnostics.pool()
    >>> row = pooled([batch(1.0, 1.5), batch(2.0)]).metrics()
    >>> row["tokens"], row["kill"], row["ratio_max"], row["ratio_p50"], row["sequences"]
    (3.0, 0.6666666666666666, 2.0, 1.5, 2.0)
    """
    if not pools:
        raise KlipError("there is nothing to pool: no batch was looked at")
    if len(pools) == 1:
        return pools[0]
    prefixes = dict.fromkeys(prefix for pool in pools for prefix in pool.parts)
    means = dict.fromkeys(name for pool in pools for name in pool.means)
    return Pool(
        parts={p: _pooled([t.parts[p] for t in pools if p in t.parts]) for p in prefixes},
        sequences=sum(pool.sequences for pool in pools),
        dropped=sum(pool.dropped for pool in pools),
        moved=any(pool.moved for pool in pools),
        means={name: _added([t.means[name] for t in pools if name in t.means]) for name in means},
    )


def _pooled(parts: Sequence[Part]) -> Part:
    some = [part for part in parts if part.totals]
    if len(some) < 2:
        return some[0] if some else Part()
    stacked = {
        name: np.array([part.totals[name] for part in some], np.float64) for name in some[0].totals
    }
    ranked = {
        name: joined([part.ranked[name] for part in some if name in part.ranked])
        for name in some[0].ranked
    }
    return Part(merged(stacked), ranked, some[0].mark, some[0].partial)


def _added(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    totals, numbers = zip(*pairs, strict=True)
    return sum(totals), sum(numbers)
