"""Ratio levels: which log-ratio a shape is shown for each token.

A level is a value, spelled like a shape. It takes the tokens' own log-ratios `[B, T]` (0 under
the mask), the advantages (`[B, T]` or `[B, 1]`) and the mask of tokens that count. The gradient is
straight-through: whatever the level, a token's multiplier acts on that token's own log-probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from klip.shapes import Parameter, parameter
from klip.shapes.value import Value


class View(NamedTuple):
    """What a level shows the shape."""

    log_ratio: Tensor
    """`[B, T]`, or `[B, 1]` if all tokens of a sequence have the same"""
    kept: Tensor | None = None
    """`[B, T]`, False where the level itself has clipped the token away"""


@dataclass(frozen=True)
class Level(Value, abstract=True):
    """Which log-ratio a shape is shown for each token."""

    def view(self, log_ratio: Tensor, advantage: Tensor, active: Tensor) -> View:
        """What the shape sees of these tokens."""
        raise NotImplementedError


@dataclass(frozen=True)
class Token(Level):
    """w_t = pi(t) / pi_old(t): PPO, GRPO, DAPO.

    >>> Token().view(torch.tensor([[0.1, 0.3]]), torch.ones(1, 1), torch.ones(1, 2)).log_ratio
    tensor([[0.1000, 0.3000]])
    """

    def view(self, log_ratio: Tensor, advantage: Tensor, active: Tensor) -> View:
        return View(log_ratio)


@dataclass(frozen=True)
class SequenceMean(Level):
    """s = exp(mean_t log w_t): GSPO, arXiv:2507.18071, in its token form sg(s) pi(t) / sg(pi(t)).

    With a reducer that averages over the tokens of a sequence, the gradient is that of GSPO's own
    sequence objective; the token form also takes advantages that differ within a sequence.

    >>> level = SequenceMean()
    >>> level.view(torch.tensor([[0.25, 0.75]]), torch.ones(1, 1), torch.ones(1, 2)).log_ratio
    tensor([[0.5000]])
    """

    def view(self, log_ratio: Tensor, advantage: Tensor, active: Tensor) -> View:
        return View(_mean(log_ratio, active))


@dataclass(frozen=True)
class SequenceSum(Level):
    """W = exp(sum_t log w_t): the ratio of the whole sequences' probabilities.

    With `MeanOfSums` the gradient is that of mean_i J(W_i, A_i); the value counts J once per token.

    >>> level = SequenceSum()
    >>> level.view(torch.tensor([[0.25, 0.75]]), torch.ones(1, 1), torch.ones(1, 2)).log_ratio
    tensor([[1.]])
    """

    def view(self, log_ratio: Tensor, advantage: Tensor, active: Tensor) -> View:
        return View(log_ratio.sum(-1, keepdim=True))


@dataclass(frozen=True)
class GeometricMean(Level):
    """rho = exp(mean_t of log w_t, clipped on the kill side): GMPO, arXiv:2507.20673.

    A token beyond the clip has m = 0 and enters the mean at the edge. `low` and `high` are
    distances in log-ratio. GMPO is this level with `ImportanceSampling`.

    >>> level = GeometricMean(low=0.4, high=0.4)
    >>> level.view(torch.tensor([[0.0, 1.0]]), torch.ones(1, 1), torch.ones(1, 2))
    View(log_ratio=tensor([[0.2000]]), kept=tensor([[ True, False]]))
    """

    low: Parameter = parameter(0.4, above=0)
    high: Parameter = parameter(0.4, above=0)

    def view(self, log_ratio: Tensor, advantage: Tensor, active: Tensor) -> View:
        above = (advantage > 0) & (log_ratio > self.high)
        below = (advantage < 0) & (log_ratio < -self.low)
        clipped = torch.where(above, self.high, torch.where(below, -self.low, log_ratio))
        return View(_mean(clipped, active), ~(above | below))


@dataclass(frozen=True)
class PrefixSum(Level):
    """W_t = exp(sum_{s<=t} log w_s): the ratio of the sequences' probabilities up to each token.

    It corrects for the state that a token is in, too, and not for what follows: CTPO's ratio,
    arXiv:2605.07331, with the shape `ctpo`.

    >>> level = PrefixSum()
    >>> level.view(torch.tensor([[0.25, 0.75]]), torch.ones(1, 1), torch.ones(1, 2)).log_ratio
    tensor([[0.2500, 1.0000]])
    """

    def view(self, log_ratio: Tensor, advantage: Tensor, active: Tensor) -> View:
        return View(log_ratio.cumsum(-1))


@dataclass(frozen=True)
class PrefixMean(Level):
    """s_t = exp(mean_{s<=t} log w_s): the geometric mean of the ratios up to each token.

    >>> level = PrefixMean()
    >>> level.view(torch.tensor([[0.25, 0.75]]), torch.ones(1, 1), torch.ones(1, 2)).log_ratio
    tensor([[0.2500, 0.5000]])
    """

    def view(self, log_ratio: Tensor, advantage: Tensor, active: Tensor) -> View:
        return View(log_ratio.cumsum(-1) / active.cumsum(-1).clamp(min=1))


def _mean(log_ratio: Tensor, active: Tensor) -> Tensor:
    """The mean over the tokens that count of each sequence, `[B, 1]`."""
    return log_ratio.sum(-1, keepdim=True) / active.sum(-1, keepdim=True).clamp(min=1)
