"""Spans: which tokens are the reasoning and which the answer, as masks `[B, T]`.

`mask` is True where a token was generated; it may have padding on either side and holes. Positions
are counted among the tokens in the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from klip.errors import KlipError


class Span(NamedTuple):
    """Some tokens of each sequence."""

    mask: Tensor
    """`[B, T]`"""
    found: Tensor
    """`[B]`, whether the sequence has such a span; if not, its mask is empty"""


def positions(mask: Tensor) -> tuple[Tensor, Tensor]:
    """(position `[B, T]`, length `[B, 1]`): each token's index in the mask, and the tokens in it.

    >>> place, length = positions(torch.tensor([[0, 1, 1, 1]]))
    >>> place.tolist(), length.tolist()
    ([[0, 0, 1, 2]], [[3]])
    """
    active = mask.bool()
    place = (active.cumsum(-1) - 1).clamp(min=0)
    return torch.where(active, place, 0), active.sum(-1, keepdim=True)


def first(mask: Tensor, count: int) -> Tensor:
    """A mask of the first `count` tokens of each sequence, `[B, T]`.

    >>> first(torch.tensor([[0, 1, 1, 1]]), 2).int().tolist()
    [[0, 1, 1, 0]]
    """
    place, _ = positions(mask)
    return mask.bool() & (place < count)


def last(mask: Tensor, count: int) -> Tensor:
    """A mask of the last `count` tokens of each sequence, `[B, T]`.

    >>> last(torch.tensor([[1, 1, 1, 0]]), 2).int().tolist()
    [[0, 1, 1, 0]]
    """
    place, length = positions(mask)
    return mask.bool() & (place >= length - count)


def spellings(
    encode: Callable[[str], Sequence[int]], text: str, before: Iterable[str] = ("", " ", "\n")
) -> list[tuple[int, ...]]:
    """The token ids of `text` after each of `before`, without repetitions.

    A tokeniser may merge a marker with the space or the line break before it, so that one text
    has several spellings in ids; `after_marker` looks for all of them.

    >>> spellings(lambda s: [ord(c) for c in s], "#", before=("", " "))
    [(35,), (32, 35)]
    """
    return list(dict.fromkeys(tuple(encode(lead + text)) for lead in before))


def find_marker(ids: Tensor, mask: Tensor, markers: Iterable[Sequence[int]]) -> Tensor:
    """The length of the longest marker that ends at each token, `[B, T]`; 0 if none does.

    Every token of the marker must be in the mask.

    >>> find_marker(torch.tensor([[5, 9, 9, 7]]), torch.ones(1, 4), [(9,), (9, 9)]).tolist()
    [[0, 1, 2, 0]]
    """
    if ids.shape != mask.shape or ids.ndim != 2:
        raise KlipError(f"ids {list(ids.shape)} and mask {list(mask.shape)} must both be [B, T]")
    wanted = [tuple(marker) for marker in markers]
    if not wanted or not all(wanted):
        raise KlipError(f"markers={wanted}: give at least one marker, of at least one token id")
    active, ends = mask.bool(), torch.zeros_like(ids, dtype=torch.long)
    for marker in sorted(wanted, key=len):
        size = len(marker)
        if size > ids.shape[1]:
            continue
        pattern = torch.tensor(marker, device=ids.device, dtype=ids.dtype)
        here = (ids.unfold(1, size, 1) == pattern).all(-1) & active.unfold(1, size, 1).all(-1)
        ends[:, size - 1 :] = torch.where(here, size, ends[:, size - 1 :])
    return ends


def after_marker(
    ids: Tensor, mask: Tensor, markers: Iterable[Sequence[int]], occurrence: str = "last"
) -> Span:
    """The tokens after a marker: the answer; `mask & ~span.mask` is the reasoning.

    The marker itself is not among them. If it occurs several times, `occurrence` ("first" or
    "last") says which one counts.

    >>> answer = after_marker(torch.tensor([[5, 9, 7, 8], [5, 6, 7, 8]]), torch.ones(2, 4), [(9,)])
    >>> answer.mask.int().tolist(), answer.found.tolist()
    ([[0, 0, 1, 1], [0, 0, 0, 0]], [True, False])
    """
    if occurrence not in ("first", "last"):
        raise KlipError(f"occurrence={occurrence!r} must be 'first' or 'last'")
    ends = find_marker(ids, mask, markers) > 0
    passed = ends.long().cumsum(-1)
    turn = passed[:, -1:] if occurrence == "last" else torch.ones_like(passed[:, -1:])
    after = (passed >= turn) & ~(ends & (passed == turn))
    found = ends.any(-1)
    return Span(after & mask.bool() & found[:, None], found)


def part_position(span: Tensor) -> tuple[Tensor, Tensor]:
    """(position, length) = (1 in the span and 0 elsewhere, 2): a sequence seen as two parts.

    A threshold by position then has one value in each part: `FromEnd(tail=0.1, body=0.3, count=1)`
    is 0.1 in the span and 0.3 elsewhere, exactly.

    >>> part_position(torch.tensor([[False, True]]))
    (tensor([[0, 1]]), tensor([[2]]))
    """
    place = span.long()
    return place, torch.full_like(place[:, :1], 2)
