"""The context of a batch of tokens, built from what a trainer has, and checked."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from klip.errors import KlipError
from klip.shapes import CONTEXT_FIELDS, Context, Value, numbers, with_numbers
from klip.tokens.spans import positions

V = TypeVar("V", bound=Value)

IDS = frozenset({"sequence", "group"})


def token_context(
    log_prob: Tensor,
    old_log_prob: Tensor,
    *,
    behaviour_log_prob: Tensor | None = None,
    start_log_prob: Tensor | None = None,
    reference_log_prob: Tensor | None = None,
    **fields: Any,
) -> Context:
    """behaviour_log_ratio = old - behaviour, proximal_log_ratio = old - start,
    reference_log_ratio = new - reference, and `fields`.

    Log-probabilities are `[B, T]`: `behaviour_log_prob` is the sampler's at generation,
    `start_log_prob` the trainer's at the start of this update, `reference_log_prob` the frozen
    model's. The old policy, which the ratio divides by, is the start or the sampler. So if one of
    the two is given, the old policy is the other. `fields` are any others of
    `klip.shapes.Context`.

    >>> zero = torch.zeros(1, 2)
    >>> token_context(zero, zero, reference_log_prob=zero - 1, age=3.0).reference_log_ratio
    tensor([[1., 1.]])
    """
    if behaviour_log_prob is not None or start_log_prob is not None:
        fields["behaviour_log_ratio"] = _difference(old_log_prob, behaviour_log_prob)
        fields["proximal_log_ratio"] = _difference(old_log_prob, start_log_prob)
    if reference_log_prob is not None:
        fields["reference_log_ratio"] = _difference(log_prob, reference_log_prob)
    if unknown := fields.keys() - CONTEXT_FIELDS.keys():
        raise KlipError(
            f"no context has {', '.join(sorted(unknown))}; there are {', '.join(CONTEXT_FIELDS)}"
        )
    return Context(**fields)


def ages(version: Tensor, now: int | float) -> Tensor:
    """age = now - version, `[B, 1]` in updates; `version` `[B]` is the sampling policy's.

    >>> ages(torch.tensor([10, 7]), now=10).flatten().tolist()
    [0.0, 3.0]
    """
    if version.ndim != 1:
        raise KlipError(f"version {list(version.shape)} must be [B], one per sequence")
    age = now - version.to(torch.float32)
    if bool((age < 0).any()):
        raise KlipError(f"a sample of version {float(version.max()):g} is newer than now={now}")
    return age[:, None]


def _difference(x: Tensor, y: Tensor | None) -> Tensor | float:
    """x - y in float32 or float64, detached: 16 bits would round the ratio away; 0 without y."""
    if y is None:
        return 0.0
    dtype = working_dtype(x, y)
    return x.detach().to(dtype) - y.detach().to(dtype)


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """Float64 if any tensor has it, else float32."""
    wide = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32


def in_dtype(value: V, dtype: torch.dtype) -> V:
    """The value with its numbers rounded to `dtype`, as the arrays are.

    A threshold that depends on a token is an array of that dtype; a plain number must be rounded
    as it is, or equal thresholds would not be equal shapes.
    """
    if dtype == torch.float64:
        return value
    rounded = {k: float(np.float32(x)) for k, x in numbers(value).items() if isinstance(x, float)}
    return with_numbers(value, rounded)


def given_fields(
    context: Context, needs: frozenset[str], like: Tensor, known: dict[str, Any]
) -> dict[str, Any]:
    """The fields in `needs` as numbers or tensors `[B, T]` or `[B, 1]`, detached.

    The caller's `context` takes precedence over `known`, which follows from the batch. A tensor
    `[B]` has one value per sequence.
    """
    rows, length = like.shape
    fields = {}
    for name in sorted(needs):
        value = getattr(context, name) if name in context.given else known.get(name)
        if isinstance(value, Tensor) and value.ndim:
            value = value[:, None] if value.ndim == 1 else value
            if value.ndim != 2 or value.shape[0] != rows or value.shape[1] not in (1, length):
                raise KlipError(
                    f"context {name} {list(value.shape)} must be [B], [B, 1] or [B, T] "
                    f"with B={rows}, T={length}"
                )
        if isinstance(value, Tensor):
            value = value.detach() if name in IDS else value.detach().to(like.dtype)
        if value is not None:
            fields[name] = value
    return fields


def from_batch(needs: frozenset[str], old_log_prob: Tensor, active: Tensor) -> dict[str, Tensor]:
    """Those of the fields in `needs` that follow from the batch itself."""
    known: dict[str, Tensor] = {}
    if "old_log_prob" in needs:
        known["old_log_prob"] = old_log_prob
    if "mask" in needs:
        known["mask"] = active
    if "sequence" in needs:
        rows = torch.arange(active.shape[0], device=active.device)
        known["sequence"] = rows[:, None]
    if needs & {"position", "length"}:
        known["position"], known["length"] = positions(active)
    return known
