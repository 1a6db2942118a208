"""Advantages from the rewards of a group of answers to one prompt.

Each function takes `rewards` `[B]`, the id of each answer's `group` `[B]`, and optionally `valid`
`[B]`, True where an answer counts; it returns advantages `[B]`. An answer that does not count has
advantage 0 and does not enter the mean. The advantage is also 0, exactly and in any precision, for
an answer alone in its group and for all answers of a group whose rewards are equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from klip.errors import KlipError


def grpo(rewards: Tensor, group: Tensor, valid: Tensor | None = None, eps: float = 1e-4) -> Tensor:
    """A_i = (r_i - mean) / (std + eps), std with n - 1: GRPO, arXiv:2402.03300.

    >>> grpo(torch.tensor([0.0, 1.0, 0.1, 0.1, 0.1]), torch.tensor([0, 0, 1, 1, 1]), eps=0.0)
    tensor([-0.7071,  0.7071,  0.0000,  0.0000,  0.0000])
    """
    centred, index, count, counts = _centred(rewards, group, valid)
    squares = _sum(centred * centred, index, count.numel())
    std = (squares / (count - 1).clamp(min=1)).sqrt()[index] + eps
    return torch.where(counts & (centred != 0), centred / std, 0.0)


def dr_grpo(rewards: Tensor, group: Tensor, valid: Tensor | None = None) -> Tensor:
    """A_i = r_i - mean: Dr. GRPO, arXiv:2503.20783.

    >>> dr_grpo(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([7, 7, 2]))
    tensor([-0.5000,  0.5000,  0.0000])
    """
    return _centred(rewards, group, valid)[0]


def rloo(rewards: Tensor, group: Tensor, valid: Tensor | None = None) -> Tensor:
    """A_i = r_i - mean of the others = (r_i - mean) n / (n - 1): RLOO, arXiv:2402.14740.

    >>> rloo(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([7, 7, 2]))
    tensor([-1.,  1.,  0.])
    """
    centred, index, count, _ = _centred(rewards, group, valid)
    return centred * (count / (count - 1).clamp(min=1))[index]


def _centred(
    rewards: Tensor, group: Tensor, valid: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """r - mean `[B]`, group indices `[B]`, sizes of groups `[G]`, which answers count `[B]`."""
    if rewards.ndim != 1 or group.shape != rewards.shape:
        raise KlipError(
            f"rewards {list(rewards.shape)} and group {list(group.shape)} must both be [B], one "
            "of each per answer"
        )
    counts = torch.ones_like(group, dtype=torch.bool) if valid is None else valid.bool()
    if counts.shape != rewards.shape:
        raise KlipError(
            f"valid {list(counts.shape)} must be [B] like rewards {list(rewards.shape)}"
        )
    wide = rewards.to(torch.promote_types(rewards.dtype, torch.float32))
    known = torch.where(counts, wide, 0.0)
    _, index = torch.unique(group, return_inverse=True)
    size = int(index.max()) + 1 if index.numel() else 0
    count = _sum(counts.to(wide.dtype), index, size)
    # Rewards are counted from the lowest: equal rewards then have a mean of exactly 0.
    lowest = wide.new_full((size,), torch.inf)
    lowest = lowest.scatter_reduce(0, index, torch.where(counts, wide, torch.inf), "amin")
    known = torch.where(counts, known - lowest[index], 0.0)
    mean = _sum(known, index, size) / count.clamp(min=1)
    return torch.where(counts, known - mean[index], 0.0), index, count, counts


def _sum(values: Tensor, index: Tensor, size: int) -> Tensor:
    return values.new_zeros(size).index_add(0, index, values)
