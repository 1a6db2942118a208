"""Quantiles of numbers that come batch by batch and process by process, in bounded memory.

Up to `LIMIT` numbers are kept as they are, and quantiles are exact. Beyond, only counts are kept,
of cells that are each 0.2 % wide: a quantile is then within 0.1 % of the exact one. A count does
not depend on the order of batches, so neither does a quantile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from klip.theory.diagnostics import QUANTILES, quantiles

LIMIT: Final = 1 << 16
"""Of so many numbers quantiles are exact."""

ERROR: Final = 0.001
"""How far from the exact one a quantile of more numbers may be, relative to its value."""

SMALL: Final = 1e-12
"""Numbers nearer to 0 than this count as 0 once there are cells."""

_WIDTH = 2 * np.log1p(ERROR)


@dataclass(frozen=True, eq=False)
class Ranked:
    """Numbers whose quantiles can be taken, and which can be joined with others."""

    values: NDArray[Any]
    """`[n]`: the numbers, or the middles of the cells in ascending order"""
    counts: NDArray[np.int64] | None = None
    """`[n]`, how many numbers lie in each cell; None as long as the numbers themselves are kept"""

    @staticmethod
    def of(values: Any) -> Ranked:
        """These numbers, an array of NumPy's or PyTorch's.

        >>> Ranked.of(np.arange(101.0)).quantiles()[4]
        50.0
        """
        host = values.detach().cpu() if hasattr(values, "detach") else values
        return Ranked(np.ravel(np.asarray(host)))

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return int(self.values.size if self.counts is None else self.counts.sum())

    def in_cells(self) -> Ranked:
        """Counts of the cells, in place of the numbers.

        >>> Ranked.of(np.array([0.0, 1.0, 1.0001, -7.0])).in_cells().counts.tolist()
        [1, 1, 2]
        """
        if self.counts is not None:
            return self
        x = self.values.astype(np.float64)
        far = np.abs(x) > SMALL
        cell = np.rint(np.log(np.abs(x[far])) / _WIDTH)
        middles = np.zeros_like(x)
        middles[far] = np.copysign(np.exp(cell * _WIDTH), x[far])
        return Ranked(*np.unique(middles, return_counts=True))

    def quantiles(self) -> list[float] | None:
        """The `QUANTILES`, as in `klip.theory.diagnostics.quantiles`; None without numbers."""
        if self.counts is None:
            return quantiles(self.values)
        last = np.cumsum(self.counts) - 1  # the rank of the last number in each cell
        rank = np.asarray(QUANTILES) / 100 * last[-1]
        below, above = (
            self.values[np.searchsorted(last, whole(rank))] for whole in (np.floor, np.ceil)
        )
        return [float(q) for q in below + (rank - np.floor(rank)) * (above - below)]


def joined(parts: Sequence[Ranked], limit: int = LIMIT) -> Ranked:
    """The numbers of all parts; counts of cells, if there are more than `limit` numbers.

    >>> joined([Ranked.of(np.arange(3.0)), Ranked.of(np.arange(4.0))]).size
    7
    """
    if sum(part.size for part in parts) <= limit and all(part.counts is None for part in parts):
        return Ranked(np.concatenate([part.values for part in parts]))
    cells = [part.in_cells() for part in parts]
    middles, index = np.unique(np.concatenate([part.values for part in cells]), return_inverse=True)
    counts = np.zeros(len(middles), np.int64)
    np.add.at(counts, index, np.concatenate([part.counts for part in cells]))
    return Ranked(middles, counts)
