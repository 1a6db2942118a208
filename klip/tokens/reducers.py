"""Reducers: from one number per token to the loss.

A reducer gives the weight of a token in each sequence, from the number of tokens that count in it.
A sequence without any weighs nothing; where nothing at all counts the loss is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from klip.errors import KlipError

Reducer = Callable[[Tensor], Tensor]
"""count `[B, 1]` -> weight of each token, `[B, 1]` or `[]`."""


def token_mean(count: Tensor) -> Tensor:
    """1 / sum_i n_i: every token of the batch alike (DAPO, BNPO).

    >>> float(token_mean(torch.tensor([[1.0], [3.0]])))
    0.25
    """
    return 1 / count.sum().clamp(min=1)


def mean_of_means(count: Tensor) -> Tensor:
    """1 / (S n_i): the mean over S sequences of their tokens' means (GRPO, GSPO).

    Sequences without a token that counts are not among the S, so masking one is leaving it out.

    >>> mean_of_means(torch.tensor([[1.0], [4.0], [0.0]])).flatten().tolist()
    [0.5, 0.125, 0.5]
    """
    return 1 / (count.clamp(min=1) * _sequences(count))


def mean_of_sums(count: Tensor) -> Tensor:
    """1 / S: the mean over S sequences of their tokens' sums; long ones weigh more.

    >>> float(mean_of_sums(torch.tensor([[1.0], [4.0]])))
    0.5
    """
    return 1 / _sequences(count)


@dataclass(frozen=True)
class ConstantLength:
    """1 / (B length): sums over a constant, whatever was generated (Dr. GRPO).

    B is the number of rows, empty ones too: a constant denominator is the point.

    >>> float(ConstantLength(8)(torch.tensor([[1.0], [4.0]])))
    0.0625
    """

    length: float

    def __post_init__(self) -> None:
        if not self.length > 0:
            raise KlipError(f"ConstantLength({self.length}): the length must be positive")

    def __call__(self, count: Tensor) -> Tensor:
        """The weight of a token."""
        return count.new_tensor(1 / (max(count.shape[0], 1) * self.length))


@dataclass(frozen=True)
class Denominator:
    """1 / value: the trainer knows it, as when one batch is spread over steps and machines.

    >>> float(Denominator(4)(torch.tensor([[1.0]])))
    0.25
    """

    value: float | Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.value, Tensor) and not self.value > 0:
            raise KlipError(f"Denominator({self.value}): it must be positive")

    def __call__(self, count: Tensor) -> Tensor:
        """The weight of a token."""
        return 1 / torch.as_tensor(self.value, dtype=count.dtype, device=count.device)


def _sequences(count: Tensor) -> Tensor:
    return (count > 0).sum().clamp(min=1).to(count.dtype)
