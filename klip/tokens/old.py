"""Old tokens: how far the policy has moved, and how far it was from the sampler to begin with.

    move       new / start        what this update has done so far
    mismatch   start / sampler    what was so before: another engine, fewer bits, older weights

The ratio to the sampler is their product. A clip of that product kills for either reason, so the
two are kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from klip.shapes.backend import ratio
from klip.shapes.context import OF_BATCH, TWO_RATIOS


class TwoRatios(NamedTuple):
    """The logarithms of both ratios, `[B, T]`."""

    move: Tensor
    mismatch: Tensor


def two_ratios(log_ratio: Tensor, fields: Mapping[str, Any]) -> TwoRatios | None:
    """log move = log w + proximal, log mismatch = behaviour - proximal; None unless both are known.

    >>> fields = {"behaviour_log_ratio": 0.0, "proximal_log_ratio": torch.tensor([[-0.5]])}
    >>> two_ratios(torch.tensor([[0.6]]), fields)
    TwoRatios(move=tensor([[0.1000]]), mismatch=tensor([[0.5000]]))
    """
    if not fields.keys() >= TWO_RATIOS:
        return None
    behaviour, proximal = fields["behaviour_log_ratio"], fields["proximal_log_ratio"]
    mismatch = torch.zeros_like(log_ratio) + behaviour - proximal
    return TwoRatios(log_ratio + proximal, mismatch)


def of_batch(
    needs: frozenset[str], log_ratio: Tensor, fields: Mapping[str, Any], active: Tensor
) -> dict[str, Tensor]:
    """Those of the fields `OF_BATCH` that are in `needs`, over the tokens that count.

    `deviation` is a mean over each sequence, `[B, 1]`; the others are over the whole batch.
    """
    wanted = needs & OF_BATCH
    both = two_ratios(log_ratio, fields) if wanted else None
    if both is None:
        return {}
    found: dict[str, Tensor] = {}
    if "effective_size" in wanted:
        w = torch.where(active, ratio(both.move + both.mismatch), 0.0)
        size = active.sum() * w.square().sum()
        found["effective_size"] = (w.sum().square() / size.clamp(min=1e-30)).expand(active.shape)
    if "deviation" in wanted:
        off = torch.where(active, (ratio(both.mismatch) - 1).abs(), 0.0)
        found["deviation"] = off.sum(-1, keepdim=True) / active.sum(-1, keepdim=True).clamp(min=1)
    if "second_moment" in wanted:
        found["second_moment"] = second_moment(both.mismatch, active)
    return found


def second_moment(log_c: Tensor, active: Tensor) -> Tensor:
    """The mean of (log c)^2 over the active tokens of no larger |log c|, `[B, T]`; 0 elsewhere.

    >>> log_c = torch.tensor([[3.0, 0.0, -1.0]])
    >>> second_moment(log_c, torch.ones(1, 3, dtype=torch.bool))
    tensor([[3.3333, 0.0000, 0.5000]])
    """
    squares = log_c.square()
    ordered = squares[active].sort().values
    if not len(ordered):
        return torch.zeros_like(squares)
    means = ordered.cumsum(0) / torch.arange(1, len(ordered) + 1, device=ordered.device)
    place = torch.searchsorted(ordered, squares.contiguous(), right=True) - 1  # ties count together
    return torch.where(active, means[place.clamp(min=0)], 0.0)
