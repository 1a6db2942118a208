"""Spans: which tokens are the reasoning and which the answer, as masks `[B, T]`.

`mask` is True where a token was generated; it may have padding on either side and holes. Positions
are counted among the tokens in the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
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


def find_marker(ids: Tensor, mask: Tensor, markers: Iterable[Sequence[int]]) -> Tensor:
    """The length of the longest marker that ends at each token, `[B, T]`; 0 if none does.

    Every token of the marker must be in the mask.

    >>> find_marker(torch.tensor([[5, 9, 9, 7]]), torch.ones(1, 4), [(9,), (9, 9)]).tolist()
    [[0, 1, 2, 0]]
    """
    _check_ids(ids, mask)
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
    """The tokens after a marker of token ids: the answer; `mask & ~span.mask` is the reasoning.

    It is for markers that are tokens of their own; `after_text` finds text in what any tokeniser
    makes of it. The marker itself is not in the span. If it occurs several times, `occurrence`
    ("first" or "last") says which one counts.

    >>> answer = after_marker(torch.tensor([[5, 9, 7, 8], [5, 6, 7, 8]]), torch.ones(2, 4), [(9,)])
    >>> answer.mask.int().tolist(), answer.found.tolist()
    ([[0, 0, 1, 1], [0, 0, 0, 0]], [True, False])
    """
    _check_occurrence(occurrence)
    ends = find_marker(ids, mask, markers) > 0
    passed = ends.long().cumsum(-1)
    turn = passed[:, -1:] if occurrence == "last" else torch.ones_like(passed[:, -1:])
    after = (passed >= turn) & ~(ends & (passed == turn))
    found = ends.any(-1)
    return Span(after & mask.bool() & found[:, None], found)


def after_text(
    ids: Tensor,
    mask: Tensor,
    decode: Callable[[list[int]], str],
    marker: str,
    occurrence: str = "last",
) -> Span:
    r"""The tokens after a marker that is looked for in the decoded text, as in `after_marker`.

    A tokeniser may merge the marker with its neighbours (`><answer>`, `$\boxed{`), so its ids
    differ from text to text. A token that has the marker's end and something after it is in the
    span.

    Args:
        ids: of tokens, `[B, T]`
        mask: `[B, T]`; the marker does not reach over a hole
        decode: the text of some ids, special tokens included, such as a tokeniser's `decode`
        marker: the text
        occurrence: "first" or "last", if there are several

    >>> pieces = ["5", " is", " so **", "Answer", ":** ", "42"]
    >>> decode = lambda ids: "".join(pieces[i] for i in ids)
    >>> answer = after_text(torch.arange(6)[None], torch.ones(1, 6), decode, "Answer:")
    >>> [pieces[i] for i in answer.mask[0].nonzero().flatten()]
    [':** ', '42']

    """
    _check_occurrence(occurrence)
    _check_ids(ids, mask)
    if not marker:
        raise KlipError("marker='' is no text: give what stands before an answer, such as '####'")
    active = mask.bool()
    span, found = torch.zeros_like(active), torch.zeros_like(active[:, 0])
    for row, (tokens, counts) in enumerate(zip(ids.tolist(), active.tolist(), strict=True)):
        runs = list(_runs(counts))
        for begin, end in runs if occurrence == "first" else reversed(runs):
            after = _after_text(tokens[begin:end], decode, marker, occurrence)
            if after is not None:
                span[row, begin + after :] = True
                found[row] = True
                break
    return Span(span & active, found)


def _after_text(
    tokens: list[int], decode: Callable[[list[int]], str], marker: str, occurrence: str
) -> int | None:
    """How many tokens lie wholly before the marker's end; None without a marker."""
    text = decode(tokens)
    place = text.find(marker) if occurrence == "first" else text.rfind(marker)
    if place < 0:
        return None
    end = place + len(marker)

    def beyond(count: int) -> bool:
        # Half a character is decoded as replacement characters, more of them than it will be.
        start = decode(tokens[:count])
        return len(start) > end and start[:end] == text[:end]

    low, high = 0, len(tokens) + 1  # the first `low` tokens do not reach beyond the end
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return low


def _runs(counts: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """(begin, end) of each run of true values."""
    for on, run in groupby(enumerate(counts), key=lambda pair: pair[1]):
        places = [place for place, _ in run]
        if on:
            yield places[0], places[-1] + 1


def _check_occurrence(occurrence: str) -> None:
    if occurrence not in ("first", "last"):
        raise KlipError(f"occurrence={occurrence!r} must be 'first' or 'last'")


def _check_ids(ids: Tensor, mask: Tensor) -> None:
    if ids.shape != mask.shape or ids.ndim != 2:
        raise KlipError(f"ids {list(ids.shape)} and mask {list(mask.shape)} must both be [B, T]")


def part_position(span: Tensor) -> tuple[Tensor, Tensor]:
    """(position, length) = (1 in the span and 0 elsewhere, 2): a sequence seen as two parts.

    A threshold by position then has one value in each part: `FromEnd(tail=0.1, body=0.3, count=1)`
    is 0.1 in the span and 0.3 elsewhere, exactly.

    >>> part_position(torch.tensor([[False, True]]))
    (tensor([[0, 1]]), tensor([[2]]))
    """
    place = span.long()
    return place, torch.full_like(place[:, :1], 2)
