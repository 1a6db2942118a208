"""One of TRL's batches as `klip.tokens` sees it. Imports nothing of TRL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from klip.errors import KlipError
from klip.shapes import Gate, Penalty, Shape
from klip.shapes.backend import native_exp
from klip.tokens import (
    Diagnostics,
    Level,
    Span,
    after_marker,
    ages,
    part_position,
    spellings,
    token_context,
    token_loss,
)

Batch = Mapping[str, Any]
"""What `GRPOTrainer._compute_loss` is given: tensors `[B, ...]` by TRL's names, and two of ours."""

VERSION, ANSWER = "klip_version", "klip_answer"
"""`[B]`, how many updates there had been when a completion was sampled; `[B, T]`, its answer."""

_COUNTS = frozenset({"tokens", "sequences", "dropped"})
_QUANTILE = re.compile(r"_p\d\d$")
_LEADS = ("a", "1", ".")


@dataclass(frozen=True)
class Region:
    """What makes the multiplier: the shape, the ratio that it sees, and what goes with it."""

    shape: Shape
    level: Level
    gates: tuple[Gate, ...] = ()
    penalties: tuple[Penalty, ...] = ()

    @property
    def parts(self) -> tuple[Shape | Gate | Penalty, ...]:
        """All that may ask for context."""
        return (self.shape, *self.gates, *self.penalties)

    @property
    def needs(self) -> frozenset[str]:
        """The context fields that any part asks for."""
        return frozenset[str]().union(*(part.needs for part in self.parts))

    @property
    def has_reference(self) -> bool:
        """Whether a part looks at the reference policy: TRL's own KL then makes way."""
        return "reference_log_ratio" in self.needs


def generated(batch: Batch) -> Tensor:
    """`[B, T]`, True where the policy chose the token: neither padding nor what a tool said."""
    mask: Tensor = batch["completion_mask"].bool()
    return mask & batch["tool_mask"].bool() if "tool_mask" in batch else mask


@native_exp()
def look(
    region: Region, batch: Batch, log_prob: Tensor, entropy: Tensor | None, now: int
) -> Diagnostics:
    """What the region makes of a batch `now` updates into training; `.m` is the multiplier.

    >>> from klip.shapes import Clip
    >>> from klip.tokens import token
    >>> batch = {"completion_mask": torch.ones(1, 2), "advantages": torch.tensor([2.0]),
    ...          "old_per_token_logps": torch.zeros(1, 2)}
    >>> look(Region(Clip(), token), batch, torch.tensor([[0.0, 0.5]]), None, now=0).m
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
    if sampler is not None:  # NaN where the sampler could not say: no correction, as in TRL
        sampler = torch.where(torch.isnan(sampler), old, sampler)
    context = token_context(
        log_prob,
        old,
        behaviour_log_prob=sampler,
        reference_log_prob=batch.get("ref_per_token_logps"),
        **known,
    )
    seen = token_loss(
        log_prob.detach(), old, batch["advantages"], mask, region.shape, context,
        level=region.level, gates=region.gates, penalties=region.penalties, spans=spans,
    ).diagnostics  # fmt: skip
    assert seen is not None  # they were asked for
    return seen


def metrics(seen: Diagnostics) -> dict[str, float]:
    """The diagnostics, quantiles of the whole batch only, and the two sides of `kill`.

    `kill_low` and `kill_high` are what TRL calls `clip_ratio/low_mean` and `high_mean`.
    """
    found = {
        name: value
        for name, value in seen.metrics().items()
        if "/" not in name or not _QUANTILE.search(name)
    }
    if "kill" in found:
        _, kill, _ = seen.sets()
        low = (kill & (seen.advantage < 0)).sum() / seen.active.sum()
        found |= {"kill_low": float(low), "kill_high": found["kill"] - float(low)}
    return found


def reference_k3(seen: Diagnostics, log_prob: Tensor, reference: Tensor) -> float:
    """The mean over tokens of e^-u + u - 1, u = log pi - log pi_ref: TRL's metric `kl`."""
    u = (log_prob.detach() - reference)[seen.active]
    return float((torch.exp(-u) + u - 1).mean()) if u.numel() else 0.0


def together(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What several processes saw: counts add up, extremes stay, the rest is a mean over tokens.

    Of quantiles and of `killed_mass` that mean is an approximation; with one process nothing is.

    >>> together([{"tokens": 1.0, "kill": 1.0}, {"tokens": 3.0, "kill": 0.0}])
    {'tokens': 4.0, 'kill': 0.25}
    """
    names = dict.fromkeys(name for one in found for name in one)
    return {name: _together(name, found) for name in names}


def _together(name: str, found: Sequence[Mapping[str, float]]) -> float:
    prefix, slash, last = name.rpartition("/")
    those = [one for one in found if name in one]
    values = [one[name] for one in those]
    if len(those) == 1:
        return values[0]
    if last in _COUNTS:
        return sum(values)
    if last in ("ratio_min", "inert"):
        return min(values)
    if last == "ratio_max":
        return max(values)
    weights = [one.get(prefix + slash + "tokens", 1.0) for one in those]
    return sum(w * x for w, x in zip(weights, values, strict=True)) / max(sum(weights), 1.0)


def markers(
    encode: Callable[[str], Sequence[int]], text: str, unknown: int | None
) -> list[tuple[int, ...]]:
    """The ids that `text` may have in what a model generates: alone, and in the middle of a text.

    Some tokenisers mark the start of a text, so that a marker right after a digit has other ids
    than the marker alone.

    >>> markers(lambda s: [ord(c) for c in s], "#", None)
    [(35,), (32, 35), (10, 35)]
    """
    found = spellings(encode, text) if text else []
    for lead in _LEADS:
        before, both = tuple(encode(lead)), tuple(encode(lead + text))
        if both[: len(before)] == before and both[len(before) :] not in found:
            found.append(both[len(before) :])
    known = [ids for ids in found if ids and unknown not in ids]
    if not text.strip() or not known:
        raise KlipError(
            f"answer_marker={text!r} must be text that the tokenizer knows, such as '####': it "
            "has no ids of its own"
        )
    return known


def mark(batch: Batch, spelled: Sequence[Sequence[int]]) -> Span:
    """The tokens after the last marker that the policy wrote."""
    return after_marker(batch["completion_ids"], generated(batch), spelled)
