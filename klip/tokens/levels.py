"""Ratio levels: which log-ratio a shape is shown for each token.

A level is a function of the tokens' own log-ratios `[B, T]` (0 under the mask), the advantages
(`[B, T]` or `[B, 1]`) and the mask of tokens that count. The gradient is straight-through: whatever
the level, a token's multiplier acts on that token's own log-probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from klip.errors import KlipError


class Seen(NamedTuple):
    """What a level shows the shape."""

    log_ratio: Tensor
    """`[B, T]` or `[B, 1]`, the same for all tokens of a sequence"""
    kept: Tensor | None = None
    """`[B, T]`, False where the level itself has clipped the token away"""


Level = Callable[[Tensor, Tensor, Tensor], Seen]
"""(log_ratio, advantage, active) -> Seen."""


def token(log_ratio: Tensor, advantage: Tensor, active: Tensor) -> Seen:
    """w_t = pi(t) / pi_old(t): PPO, GRPO, DAPO.

    >>> token(torch.tensor([[0.1, 0.3]]), torch.ones(1, 1), torch.ones(1, 2)).log_ratio.tolist()
    [[0.10000000149011612, 0.30000001192092896]]
    """
    return Seen(log_ratio)


def sequence_mean(log_ratio: Tensor, advantage: Tensor, active: Tensor) -> Seen:
    """s = exp(mean_t log w_t): GSPO, arXiv:2507.18071, in its token form sg(s) pi(t) / sg(pi(t)).

    With a reducer that averages over the tokens of a sequence, the gradient is that of GSPO's own
    sequence objective; the token form also takes advantages that differ within a sequence.

    >>> sequence_mean(torch.tensor([[0.25, 0.75]]), torch.ones(1, 1), torch.ones(1, 2)).log_ratio
    tensor([[0.5000]])
    """
    count = active.sum(-1, keepdim=True).clamp(min=1)
    return Seen(log_ratio.sum(-1, keepdim=True) / count)


def sequence_sum(log_ratio: Tensor, advantage: Tensor, active: Tensor) -> Seen:
    """W = exp(sum_t log w_t): the ratio of the whole sequences' probabilities.

    With `mean_of_sums` the gradient is that of mean_i J(W_i, A_i); the value counts J once a token.

    >>> sequence_sum(torch.tensor([[0.25, 0.75]]), torch.ones(1, 1), torch.ones(1, 2)).log_ratio
    tensor([[1.]])
    """
    return Seen(log_ratio.sum(-1, keepdim=True))


@dataclass(frozen=True)
class GeometricMean:
    """rho = exp(mean_t of log w_t, clipped on the kill side): GMPO, arXiv:2507.20673.

    A token beyond the clip has m = 0 itself and counts in the mean at the edge. `low` and `high`
    are distances in log-ratio. GMPO is this level with `ImportanceSampling`.

    >>> level = GeometricMean(low=0.4, high=0.4)
    >>> seen = level(torch.tensor([[0.0, 1.0]]), torch.ones(1, 1), torch.ones(1, 2))
    >>> seen.log_ratio, seen.kept
    (tensor([[0.2000]]), tensor([[ True, False]]))
    """

    low: float = 0.4
    high: float = 0.4

    def __post_init__(self) -> None:
        if not (self.low > 0 and self.high > 0):
            raise KlipError(f"GeometricMean: low={self.low} and high={self.high} must be positive")

    def __call__(self, log_ratio: Tensor, advantage: Tensor, active: Tensor) -> Seen:
        """The level at these tokens."""
        above = (advantage > 0) & (log_ratio > self.high)
        below = (advantage < 0) & (log_ratio < -self.low)
        clipped = torch.where(above, self.high, torch.where(below, -self.low, log_ratio))
        return Seen(sequence_mean(clipped, advantage, active).log_ratio, ~(above | below))
