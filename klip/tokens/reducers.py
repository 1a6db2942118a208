"""Reducers: from one number per token to the loss.

A reducer is a value, spelled like a shape. It gives the weight of a token in each sequence, from
the number of tokens that count in it. A sequence without such tokens weighs nothing, and if no
token counts at all the loss is 0.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import torch
from torch import Tensor

from klip.shapes import Parameter, parameter
from klip.shapes.value import Value


@dataclass(frozen=True)
class Reducer(Value, abstract=True):
    """How much a token of each sequence weighs in the loss."""

    def weight(self, count: Tensor) -> Tensor:
        """The weight of each token, `[B, 1]` or `[]`, of sequences with `count` `[B, 1]` tokens."""
        raise NotImplementedError


@dataclass(frozen=True)
class TokenMean(Reducer):
    """1 / sum_i n_i: every token of the batch weighs the same (DAPO, BNPO).

    >>> float(TokenMean().weight(torch.tensor([[1.0], [3.0]])))
    0.25
    """

    def weight(self, count: Tensor) -> Tensor:
        return 1 / count.sum().clamp(min=1)


@dataclass(frozen=True)
class MeanOfMeans(Reducer):
    """1 / (S n_i): the mean over S sequences of their tokens' means (GRPO, GSPO).

    S leaves out sequences without a token that counts, so masking a sequence removes it.

    >>> MeanOfMeans().weight(torch.tensor([[1.0], [4.0], [0.0]])).flatten().tolist()
    [0.5, 0.125, 0.5]
    """

    def weight(self, count: Tensor) -> Tensor:
        return 1 / (count.clamp(min=1) * _sequences(count))


@dataclass(frozen=True)
class MeanOfSums(Reducer):
    """1 / S: the mean over S sequences of their tokens' sums; long ones weigh more.

    >>> float(MeanOfSums().weight(torch.tensor([[1.0], [4.0]])))
    0.5
    """

    def weight(self, count: Tensor) -> Tensor:
        return 1 / _sequences(count)


@dataclass(frozen=True)
class ConstantLength(Reducer):
    """1 / (B length): sums over a constant, whatever was generated (Dr. GRPO).

    B is the number of rows, including empty ones: a constant denominator is the point.

    >>> float(ConstantLength(8).weight(torch.tensor([[1.0], [4.0]])))
    0.0625
    """

    length: Parameter = parameter(MISSING, above=0)

    def weight(self, count: Tensor) -> Tensor:
        return count.new_tensor(1 / (max(count.shape[0], 1) * self.length))


@dataclass(frozen=True)
class Denominator(Reducer):
    """1 / value, which the trainer knows, as when one batch is spread over steps and machines.

    >>> float(Denominator(4).weight(torch.tensor([[1.0]])))
    0.25
    """

    value: Parameter = parameter(MISSING, above=0)

    def weight(self, count: Tensor) -> Tensor:
        return 1 / torch.as_tensor(self.value, dtype=count.dtype, device=count.device)


def _sequences(count: Tensor) -> Tensor:
    return (count > 0).sum().clamp(min=1).to(count.dtype)
