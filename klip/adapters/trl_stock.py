"""TRL's own loss, untouched, as a function of log-probs: for `klip probe` and for comparisons."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Loss = Callable[..., Tensor]
"""(new_log_probs, old_log_probs, advantages, mask[, reference_log_probs]) -> the loss, `[]`."""


def loss_of_trainer(**settings: Any) -> Loss:
    """TRL's loss as a plain function; `settings` are GRPOConfig's, such as `epsilon_high=0.28`.

    A stock GRPOTrainer is built once, around a tiny model that is never called: its `_compute_loss`
    gets the log-probs `[B, T]` in their own dtype, with their gradient. `advantages` are `[B]` or
    `[B, T]`, but `[B]` if the ratio is a sequence's; `mask` is 1 where a token counts. With a
    `beta` other than 0 the loss takes `reference_log_probs` `[B, T]` too. Nothing is scaled for
    gradient accumulation. TRL seeds the global random generators with every trainer.
    """
    trainer = _stock_trainer(settings)
    by_sequence = settings.get("importance_sampling_level") == "sequence"

    def held_to_reference(
        new_log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        mask: Tensor,
        reference_log_probs: Tensor | None,
    ) -> Tensor:
        if by_sequence and advantages.ndim != 1:
            raise ValueError("TRL's sequence-level ratio takes one advantage per sequence, [B]")
        known = (new_log_probs, torch.zeros_like(new_log_probs), None)
        trainer._get_per_token_logps_and_entropies = lambda *args, **named: known
        ids = torch.zeros_like(new_log_probs, dtype=torch.long)
        counts = mask.to(new_log_probs.dtype)
        batch = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": torch.ones_like(ids[:, :1]),
            "completion_ids": ids,
            "completion_mask": counts,
            "advantages": advantages,
            "old_per_token_logps": old_log_probs,
            "ref_per_token_logps": reference_log_probs,
            "num_items_in_batch": counts.sum(),
        }
        value: Tensor = trainer._compute_loss(trainer.model, batch)
        trainer._metrics["eval"].clear()
        return value

    def loss(
        new_log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor
    ) -> Tensor:
        return held_to_reference(new_log_probs, old_log_probs, advantages, mask, None)

    return held_to_reference if trainer.beta else loss


def _stock_trainer(settings: dict[str, Any]) -> Any:
    """A GRPOTrainer in evaluation mode, in which TRL does not divide by a number of steps."""
    from datasets import Dataset  # type: ignore[import-not-found]
    from tokenizers import Tokenizer, models  # type: ignore[import-not-found]
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")),
        pad_token="a",
        eos_token="b",
        padding_side="left",
    )
    sizes = {"vocab_size": 2, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    tiny = LlamaConfig(**sizes, **heads, bos_token_id=0, eos_token_id=1)
    usual = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": []}
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            LlamaForCausalLM(tiny),
            _no_reward,
            GRPOConfig(**{"output_dir": folder, **usual, **settings, "beta": 0.0}),
            train_dataset=Dataset.from_dict({"prompt": ["a"]}),
            processing_class=tokenizer,
        )
    trainer.beta = float(settings.get("beta", 0.0))  # not above: it would load a reference model
    trainer.model.eval()
    return trainer


def _no_reward(completions: list[str], **columns: Any) -> list[float]:
    return [0.0 for _ in completions]
