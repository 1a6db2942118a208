"""What verl's batch says of the tokens of a loss, beyond the tensors that the loss is given.

verl's `ppo_loss` has the whole batch: what the sampler said, entropies, ids, scores and the version
of the weights that sampled. It calls the loss with five tensors of them. While it does, `told()` is
the batch. Value and gradient of `ppo_loss` are its own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.utils import losses
from verl.workers.utils.padding import no_padding_2_padding

from klip.adapters.common import AGE_LABELS, OLDEST, of_two_ratios, reader
from klip.shapes import NO_CONTEXT, Context
from klip.tokens import Diagnostics, after_text, ages, token_context
from klip.tokens.diagnostics import ENTROPY_LABELS
from klip.tokens.pool import Pool

SCORES = ("token_level_scores", "rm_scores")
"""Where verl keeps what a completion scored, `[B, T]`; the first that is there counts."""
VERSION = "max_global_steps"
"""The newest weights that took part in sampling a completion."""
LAST = "update_lr_scheduler"
"""What verl sets for the last minibatch of a step."""

Loss = Callable[..., tuple[Tensor, dict[str, Any]]]
_AGE = re.compile(r"age=(\d+)[^/]*/(\w+)")


class Remembered:
    """What a process remembers between losses: the newest version it met, and how far a step is."""

    def __init__(self) -> None:
        self.newest = 0
        self.rows = 0
        """of the minibatch that is going on"""


@dataclass(frozen=True, eq=False)
class Told:
    """The batch of a loss; what verl does not have is None. Tensors are `[B, T]`, or `[B]`."""

    output: Mapping[str, Any]
    data: Any
    clock: Remembered
    group: Any = None
    """of the processes that share a batch"""

    @cached_property
    def sampler(self) -> Tensor | None:
        """Log-probs that the sampler reported."""
        return self._padded("rollout_log_probs")

    @cached_property
    def entropy(self) -> Tensor | None:
        """Of the policy at each token, in nats."""
        found = self.output.get("entropy")
        return None if found is None else no_padding_2_padding(found, self.data).detach()

    @cached_property
    def ids(self) -> Tensor | None:
        """Of tokens, `[B, T]`."""
        return self._padded("responses")

    @cached_property
    def rewards(self) -> Tensor | None:
        """What each completion scored, `[B]`."""
        found = next((name for name in SCORES if name in self._names), None)
        scores = None if found is None else self._padded(found)
        return None if scores is None else scores.sum(-1)

    @cached_property
    def age(self) -> Tensor | None:
        """`[B, 1]`, versions between the newest that this process has met and the completion's.

        verl's batch does not say which version is in training, so it is at least this.
        """
        found = tu.get(self.data, VERSION)
        if found is None and (extra := tu.get(self.data, "extra_fields")):
            found = [fields.get(VERSION) for fields in extra]
        if found is None or any(version is None for version in found):
            return None
        version = torch.tensor([int(x) for x in found])
        self.clock.newest = max(self.clock.newest, int(version.max()))
        return ages(version, self.clock.newest).to(self.data["response_mask"].device)

    @property
    def prompts(self) -> list[list[int]] | None:
        """The ids of each prompt, without padding."""
        if "prompts" not in self._names:
            return None
        prompts = self.data["prompts"]
        if prompts.is_nested:
            return [row.tolist() for row in prompts.unbind()]
        counts = self.data["attention_mask"][:, : prompts.shape[1]].bool()
        return [row[mask].tolist() for row, mask in zip(prompts, counts, strict=True)]

    @cached_property
    def first_of_last(self) -> bool:
        """Whether it is the first microbatch of the last minibatch of a step, by verl's rows.

        It has to be asked of every batch.
        """
        rows = int(self.data.batch_size[0])
        minibatch = self.data["global_batch_size"]
        own = int(minibatch) // int(self.data["dp_size"]) if minibatch else rows
        first = self.clock.rows == 0
        self.clock.rows = self.clock.rows + rows if self.clock.rows + rows < own else 0
        return first and bool(tu.get(self.data, LAST, True))

    @property
    def first_process(self) -> bool:
        """Whether it is the first of the processes that share a batch."""
        known = torch.distributed.is_available() and torch.distributed.is_initialized()
        return not known or torch.distributed.get_rank(self.group) == 0

    @property
    def _names(self) -> set[str]:
        return set(self.data.keys())

    def _padded(self, name: str) -> Tensor | None:
        if name not in self._names:
            return None
        found: Tensor = self.data.select(name).to_padded_tensor()[name]
        return found if found.shape == self._shape else None

    @cached_property
    def _shape(self) -> torch.Size:
        shape: torch.Size = (
            self.data.select("response_mask").to_padded_tensor()["response_mask"].shape
        )
        return shape


_told: ContextVar[Told | None] = ContextVar("_told", default=None)


def told() -> Told | None:
    """The batch of the loss that is being computed; None outside verl's `ppo_loss`."""
    return _told.get()


def tell_losses() -> None:
    """Let losses see verl's batch; nothing is computed until one asks."""
    if not hasattr(losses.ppo_loss, "klip_tells"):
        losses.ppo_loss = telling(losses.ppo_loss)


def telling(ppo_loss: Loss) -> Loss:
    """verl's `ppo_loss`, during which `told()` is its batch."""
    clock = Remembered()

    @functools.wraps(ppo_loss)
    def tells(config: Any, model_output: Any, data: Any, *args: Any, **named: Any) -> Any:
        group = args[0] if args else named.get("dp_group")
        with telling_of(Told(model_output, data, clock, group)):
            return ppo_loss(config, model_output, data, *args, **named)

    tells.klip_tells = True  # type: ignore[attr-defined]
    return tells


@contextmanager
def telling_of(batch: Told | None) -> Iterator[None]:
    """Let `told()` be this batch."""
    token = _told.set(batch)
    try:
        yield
    finally:
        _told.reset(token)


def tokenizer_of(config: Any) -> Any:
    """The tokenizer that verl's worker has loaded with its model; None if it has none."""
    return getattr(config.get("model_config", None), "tokenizer", None)


def context_of(batch: Told | None, new: Tensor, old: Tensor) -> Context:
    """Age, entropy and the two ratios, as far as the batch has them."""
    if batch is None:
        return NO_CONTEXT
    fields = {"age": batch.age, "entropy": batch.entropy}
    known = {name: value for name, value in fields.items() if value is not None}
    return token_context(new, old, behaviour_log_prob=batch.sampler, **known)


def spans_of(batch: Told | None, mask: Tensor, config: Any, marker: str) -> dict[str, Tensor]:
    """The spans answer and reasoning; empty without a marker, or if texts cannot be known."""
    tokenizer = tokenizer_of(config)
    if not marker or batch is None or batch.ids is None or tokenizer is None:
        return {}
    answer = after_text(batch.ids, mask, reader(tokenizer, marker), marker).mask
    return {"answer": answer, "reasoning": mask.bool() & ~answer}


def names_of(diagnostics: Diagnostics) -> list[str]:
    """What is logged of ratios, spans, ages and entropies: the same names for every such batch."""
    names = list(of_two_ratios(diagnostics.mark)) if diagnostics.ratios is not None else []
    parts = list(diagnostics.spans or {})
    parts += [f"age={label}" for label in AGE_LABELS] if diagnostics.age is not None else []
    if diagnostics.entropy is not None:
        parts += [f"entropy={label}" for label in ENTROPY_LABELS]
    return names + [f"{part}/{what}_of_all" for part in parts for what in ("tokens", "zeroed")]


def row_of(pool: Pool) -> dict[str, float]:
    """The metrics of a pool, and the shares of all tokens; old ages are counted together."""
    row = pool.metrics()
    for name, share in pool.of_all().items():
        age = _AGE.fullmatch(name)
        if age and int(age[1]) >= OLDEST:
            name = f"age={OLDEST}+/{age[2]}"
        row[name] = row.get(name, 0.0) + share
    return row


_GIVEN_BY = {
    "mismatch": "actor_rollout_ref.rollout.calculate_log_probs=True gives it",
    "entropy": "actor_rollout_ref.actor.calculate_entropy=True gives it",
    "age": "the batch does not say which version of the weights sampled",
    "text": "the worker has no tokenizer",
    "span": "KLIP_ANSWER_MARKER gives it, where there is text",
    "reward": "the batch has no scores",
}


def missing(batch: Told | None, config: Any, marker: str, wanted: Sequence[str]) -> str:
    """Those of `wanted` that cannot be known of the tokens, each with the reason or the way out."""
    if batch is None:
        return f"{', '.join(wanted)} (verl's ppo_loss was not called)"
    text = batch.ids is not None and tokenizer_of(config) is not None
    known = {
        "mismatch": batch.sampler is not None,
        "entropy": batch.entropy is not None,
        "age": batch.age is not None,
        "text": text,
        "span": text and bool(marker),
        "reward": batch.rewards is not None,
    }
    return ", ".join(f"{name} ({_GIVEN_BY[name]})" for name in wanted if not known[name])
