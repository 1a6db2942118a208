"""One of TRL's batches as `klip.tokens` sees it. The module imports nothing of TRL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from klip.adapters.common import nothing_dropped
from klip.errors import KlipError
from klip.shapes.backend import native_exp
from klip.theory.diagnostics import EXTREMES
from klip.tokens import (
    Diagnostics,
    Span,
    TokenRegion,
    after_marker,
    ages,
    part_position,
    spellings,
    token_context,
    token_loss,
)

Batch = Mapping[str, Any]
"""The inputs of `GRPOTrainer._compute_loss`: tensors `[B, ...]` by TRL's names, and two of ours."""

VERSION, ANSWER = "klip_version", "klip_answer"
"""`[B]`, the number of updates before a completion was sampled; `[B, T]`, its answer."""

_COUNTS = frozenset({"tokens", "sequences", "dropped"})
_DETAIL = re.compile(r"/.*_(p\d\d|positive|negative|zero)$")
_LEADS = ("a", "1", ".")


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


def metrics(diagnostics: Diagnostics) -> dict[str, float]:
    """The metrics; those of spans and ages lack quantiles and the split by the advantage's sign.

    `kill_negative` and `kill_positive` are TRL's `clip_ratio/low_mean` and `high_mean`.
    """
    return {name: x for name, x in diagnostics.metrics().items() if not _DETAIL.search(name)}


def reference_k3(diagnostics: Diagnostics, log_prob: Tensor, reference: Tensor) -> float:
    """The mean over tokens of e^-u + u - 1, u = log pi - log pi_ref: TRL's metric `kl`."""
    u = (log_prob.detach() - reference)[diagnostics.active]
    return float((torch.exp(-u) + u - 1).mean()) if u.numel() else 0.0


def across_processes(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of several processes as one: sums of counts, extremes, or means over tokens.

    For quantiles, `killed_mass`, `pull` and `ratio_std` the mean is an approximation; with one
    process all is exact.

    >>> across_processes([{"tokens": 1.0, "kill": 1.0}, {"tokens": 3.0, "kill": 0.0}])
    {'tokens': 4.0, 'kill': 0.25}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _across(name, [row for row in rows if name in row]) for name in names}


def _across(name: str, rows: Sequence[Mapping[str, float]]) -> float:
    prefix, slash, last = name.rpartition("/")
    values = [row[name] for row in rows]
    if len(values) == 1:
        return values[0]
    if last in _COUNTS:
        return sum(values)
    if last == "inert":
        return min(values)
    if last in EXTREMES:
        return {"max": max, "min": min}[EXTREMES[last]](values)
    weights = [row.get(prefix + slash + "tokens", 1.0) for row in rows]
    return sum(w * x for w, x in zip(weights, values, strict=True)) / max(sum(weights), 1.0)


def markers(
    encode: Callable[[str], Sequence[int]], text: str, unknown: int | None
) -> list[tuple[int, ...]]:
    """The ids that `text` may have in what a model generates, alone or within a text.

    Some tokenisers mark the start of a text, so a marker right after a digit has other ids than
    the marker alone.

    >>> markers(lambda s: [ord(c) for c in s], "#", None)
    [(35,), (32, 35), (10, 35)]
    """
    spelled = spellings(encode, text) if text else []
    for lead in _LEADS:
        before, both = tuple(encode(lead)), tuple(encode(lead + text))
        if both[: len(before)] == before and both[len(before) :] not in spelled:
            spelled.append(both[len(before) :])
    known = [ids for ids in spelled if ids and unknown not in ids]
    if not text.strip() or not known:
        raise KlipError(
            f"answer_marker={text!r} must be text that the tokenizer knows, such as '####': it "
            "has no ids of its own"
        )
    return known


def mark(batch: Batch, spelled: Sequence[Sequence[int]]) -> Span:
    """The tokens after the last marker that the policy wrote."""
    return after_marker(batch["completion_ids"], generated(batch), spelled)
