"""`keep_tokens=N`: the tokens of a few completions of TRL's, written at each entry of its log.

They go to `tokens/` in TRL's output folder, and `klip report` makes a page of them. The module
imports nothing of TRL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from klip.adapters.trl_batch import Batch
from klip.errors import KlipError
from klip.runs.kept import write_kept
from klip.tokens import Diagnostics
from klip.tokens.keeping import kept_columns, piece_of

REWARD = "klip_reward"
"""`[B]`, the weighted sum of a completion's rewards."""


class Keeper:
    """Holds the last batch that was looked at, until the log asks for its tokens."""

    def __init__(self, count: int) -> None:
        if count < 0:
            raise KlipError(f"keep_tokens={count} must be 0 or more completions a logging step")
        self.count = count
        self._rewards: Tensor | None = None
        self._held: tuple[Mapping[str, Diagnostics], Batch] | None = None

    def reward(self, trainer: Any, rewards: Tensor) -> None:
        """Take in TRL's rewards `[all processes' B, functions]`."""
        weights = trainer.reward_weights.to(rewards.device)
        self._rewards = (rewards * weights).nansum(dim=1)

    def give(self, trainer: Any, batch: dict[str, Any]) -> None:
        """Give each completion of this process's batch its reward."""
        if self.count and self._rewards is not None:
            rows, first = len(batch["completion_ids"]), trainer.accelerator.process_index
            batch[REWARD] = self._rewards[first * rows : (first + 1) * rows]

    def hold(self, did: Mapping[str, Diagnostics], batch: Batch) -> None:
        """Hold what each shape did to a batch; the first is the one that trains."""
        if self.count:
            self._held = (did, batch)

    def write(self, trainer: Any) -> None:
        """Write the tokens of the batch that is held, in the main process and in training."""
        held, self._held = self._held, None
        if held is None or not trainer.model.training or not trainer.accelerator.is_main_process:
            return
        did, batch = held
        tokenizer = trainer._tokenizer
        prompts = [
            tokenizer.decode(ids[mask.bool()].tolist(), skip_special_tokens=False)
            for ids, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)
        ]
        step = trainer.state.global_step
        columns = kept_columns(
            did,
            batch["completion_ids"],
            piece_of(tokenizer),
            step=step,
            count=self.count,
            prompts=prompts,
            rewards=batch.get(REWARD),
        )
        write_kept(trainer.args.output_dir, step, columns)
