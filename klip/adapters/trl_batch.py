"""One of TRL's batches as `klip.tokens` sees it. The module imports nothing of TRL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from klip.adapters.common import nothing_dropped
from klip.shapes.backend import native_exp
from klip.tokens import (
    Diagnostics,
    Span,
    TokenRegion,
    after_text,
    ages,
    part_position,
    token_context,
    token_loss,
)

Batch = Mapping[str, Any]
"""The inputs of `GRPOTrainer._compute_loss`: tensors `[B, ...]` by TRL's names, and two of ours."""

VERSION, ANSWER = "klip_version", "klip_answer"
"""`[B]`, the number of updates before a completion was sampled; `[B, T]`, its answer."""


def has_reference(region: TokenRegion) -> bool:
    """Whether a part looks at the reference policy and so replaces TRL's own KL."""
    return "reference_log_ratio" in region.needs


def generated(batch: Batch) -> Tensor:
    """`[B, T]`, True where the policy chose the token: neither padding nor a tool's output."""
    mask: Tensor = batch["completion_mask"].bool()
    return mask & batch["tool_mask"].bool() if "tool_mask" in batch else mask


@nothing_dropped()
@native_exp()
def look(
    region: TokenRegion, batch: Batch, log_prob: Tensor, entropy: Tensor | None, now: int
) -> Diagnostics:
    """The diagnostics of a batch after `now` updates; `.m` is the multiplier, `[B, T]`.

    >>> from klip.shapes import Clip
    >>> batch = {"completion_mask": torch.ones(1, 2), "advantages": torch.tensor([2.0]),
    ...          "old_per_token_logps": torch.zeros(1, 2)}
    >>> look(TokenRegion(Clip()), batch, torch.tensor([[0.0, 0.5]]), None, now=0).m
    tensor([[2., 0.]])
    """
    mask = generated(batch)
    old = batch.get("old_per_token_logps")
    old = log_prob.detach() if old is None else old
    known: dict[str, Any] = {} if entropy is None else {"entropy": entropy}
    if VERSION in batch:
        known["age"] = ages(batch[VERSION], now)
    spans = None
    if ANSWER in batch:
        answer = batch[ANSWER]
        known["position"], known["length"] = part_position(answer)
        spans = {"answer": answer, "reasoning": mask & ~answer}
    sampler = batch.get("sampling_per_token_logps")
    if sampler is not None:  # NaN where it is unknown: no correction, as in TRL
        sampler = torch.where(torch.isnan(sampler), old, sampler)
    context = token_context(
        log_prob,
        old,
        behaviour_log_prob=sampler,
        reference_log_prob=batch.get("ref_per_token_logps"),
        **known,
    )
    diagnostics = token_loss(
        log_prob.detach(),
        old,
        batch["advantages"],
        mask,
        region.shape,
        context,
        level=region.level,
        gates=region.gates,
        penalties=region.penalties,
        spans=spans,
    ).diagnostics
    assert diagnostics is not None
    return diagnostics


def reference_k3(
    diagnostics: Diagnostics, log_prob: Tensor, reference: Tensor
) -> tuple[float, float]:
    """(sum, tokens) of e^-u + u - 1, u = log pi - log pi_ref; the mean is TRL's metric `kl`."""
    u = (log_prob.detach() - reference)[diagnostics.active]
    return float((torch.exp(-u) + u - 1).sum()), float(u.numel())


def mark(batch: Batch, decode: Callable[[list[int]], str], marker: str) -> Span:
    """The tokens after the last marker that the policy wrote."""
    return after_text(batch["completion_ids"], generated(batch), decode, marker)
