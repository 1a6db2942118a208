"""Packed batches: sequences one after the other in a flat tensor, told apart by segment ids.

    log_prob   [N]   -0.1 -0.3 -0.2 -0.9 -0.4
    segments   [N]    0    0    0    1    1

The loss of a pack is that of its padded form: tokens are put into rows `[S, T]`, S segments and T
the length of the longest, and the gradient comes back flat. Levels, reducers, gates, positions and
spans then mean what they always mean. Rows are of numbers, not of logits: even where one segment is
long and many are short, they are small beside a model's activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from klip.errors import KlipError
from klip.shapes import Context


@dataclass(frozen=True, eq=False)
class Packing:
    """Where each token of a pack stands in the padded form; row i has the i-th smallest id."""

    where: Tensor
    """`[n]`, the places in the pack of tokens that belong to a sequence"""
    row: Tensor
    """`[n]`"""
    column: Tensor
    """`[n]`"""
    size: int
    """N, the number of tokens in the pack"""
    shape: tuple[int, int]
    """(S, T) of the padded form"""

    @staticmethod
    def of(segments: Tensor) -> Packing:
        """The packing of ids `[N]` or `[1, N]`; a negative id belongs to no sequence.

        >>> packing = Packing.of(torch.tensor([4, 4, 7, -1]))
        >>> packing.pad(torch.tensor([1.0, 2.0, 3.0, 9.0])).tolist()
        [[1.0, 2.0], [3.0, 0.0]]
        >>> packing.flat(torch.tensor([[1.0, 2.0], [3.0, 0.0]])).tolist()
        [1.0, 2.0, 3.0, 0.0]
        """
        if segments.is_floating_point() or segments.ndim not in (1, 2):
            raise KlipError(f"segments {list(segments.shape)} {segments.dtype} must be ids [N]")
        if segments.ndim == 2 and len(segments) != 1:
            raise KlipError(
                f"segments {list(segments.shape)} must be [N] or [1, N]: flatten a batch of packs, "
                "with ids that no two packs share"
            )
        ids = segments.reshape(-1)
        where = (ids >= 0).nonzero()[:, 0]
        _, row, lengths = torch.unique(ids[where], return_inverse=True, return_counts=True)
        order = torch.argsort(row, stable=True)  # the tokens of a segment may lie apart
        first = lengths.cumsum(0) - lengths
        column = torch.empty_like(row)
        column[order] = torch.arange(len(row), device=row.device) - first[row[order]]
        longest = int(lengths.max()) if len(lengths) else 0
        return Packing(where, row, column, ids.numel(), (len(lengths), longest))

    def pad(self, flat: Tensor) -> Tensor:
        """`[N]` as `[S, T]`, 0 where no token is."""
        padded = flat.new_zeros(self.shape)
        return padded.index_put((self.row, self.column), flat.reshape(-1)[self.where])

    def flat(self, padded: Tensor) -> Tensor:
        """`[S, T]` as `[N]`, 0 at tokens that belong to no sequence."""
        flat = padded.new_zeros(self.size)
        return flat.index_put((self.where,), padded.expand(self.shape)[self.row, self.column])

    def tokens(self, name: str, flat: Tensor | None) -> Tensor | None:
        """A tensor with a number for each token, padded."""
        if flat is None:
            return None
        if flat.numel() != self.size or flat.ndim > 2:
            raise KlipError(
                f"{name} {list(flat.shape)} must be [N] like the segments [{self.size}]"
            )
        return self.pad(flat)

    def any(self, name: str, value: Any) -> Any:
        """A value for each token `[N]`, padded; one for each sequence `[S]`, or a number, as it is.

        If every token is a sequence of its own, it is taken to be for each token.
        """
        if not isinstance(value, Tensor) or not value.ndim:
            return value
        if value.numel() == self.size:
            return self.pad(value)
        if value.ndim == 1 and len(value) == self.shape[0]:
            return value
        raise KlipError(
            f"{name} {list(value.shape)} must be [N] with N={self.size} tokens, or [S] with "
            f"S={self.shape[0]} segments"
        )

    def mask(self, mask: Tensor | None) -> Tensor:
        """`[S, T]`, true at the tokens that count."""
        inside = torch.ones(self.size, dtype=torch.bool, device=self.row.device)
        given = inside if mask is None else mask.bool()
        counts = self.tokens("mask", given)
        assert counts is not None
        return counts

    def context(self, context: Context) -> Context:
        """The context of a pack, padded."""
        given = {name: getattr(context, name) for name in context.given}
        return Context(**{name: self.any(f"context {name}", x) for name, x in given.items()})

    def spans(self, spans: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        """The spans of a pack, padded."""
        padded = {name: self.tokens(f"span {name}", x.bool()) for name, x in (spans or {}).items()}
        return {name: span for name, span in padded.items() if span is not None}
