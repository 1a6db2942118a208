"""`KLIP_KEEP_TOKENS=N`: the tokens of a few of verl's completions, written once a step.

They are those of the first microbatch of a step's last minibatch, by which time the policy has
moved. `klip report` makes a page of the folder. What verl's batch does not have is null, and a
warning says so, once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from klip.adapters.common import say_once
from klip.adapters.verl_batch import Told, missing, tokenizer_of
from klip.adapters.verl_settings import Tokens
from klip.runs.kept import kept_steps, write_kept
from klip.tokens import Diagnostics
from klip.tokens.keeping import kept_columns, piece_of

_WANTED = ("text", "span", "age", "entropy", "reward")


class StepKeeper:
    """Counts the steps of a folder; a run that is resumed goes on from the files that are there."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.step = max(kept_steps(folder), default=0)

    def keep(self, did: Mapping[str, Diagnostics], batch: Told, config: Any, asked: Tokens) -> None:
        """Write the tokens of a batch as those of the next step."""
        due = batch.first_of_last
        if not due or batch.ids is None or not batch.first_process:
            return
        self.step += 1
        tokenizer = tokenizer_of(config)
        texts: Callable[[int], str | None] = _no_text
        prompts: list[str] = []
        if tokenizer is not None:
            texts = piece_of(tokenizer)
            ids = batch.prompts or []
            prompts = [tokenizer.decode(row, skip_special_tokens=False) for row in ids]
        columns = kept_columns(
            did,
            batch.ids,
            texts,
            step=self.step,
            count=asked.count,
            prompts=prompts,
            rewards=batch.rewards,
        )
        write_kept(self.folder, self.step, columns)


def keep_tokens(
    did: Mapping[str, Diagnostics], batch: Told | None, config: Any, asked: Tokens
) -> None:
    """Write the tokens of a few completions once a step; the first shape is the one that trains."""
    if not asked.count:
        return
    if lacks := missing(batch, config, asked.marker, _WANTED):
        say_once(f"KLIP_KEEP_TOKENS keeps tokens without {lacks}")
    if batch is not None:
        _keeper(asked.folder).keep(did, batch, config, asked)


_keeper = functools.cache(StepKeeper)
"""The keeper of a folder, one in a process."""


def _no_text(i: int) -> None:
    """The text of a token whose tokenizer is not known."""
