"""GRPO with a shape, in TRL, on one core in a minute: python examples/trl_grpo.py --steps 60

The model is random and tiny, the tokenizer has a character a token, and the task is to repeat the
letter of the prompt and to give it again as the answer, after a `#`. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    PrinterCallback,
    set_seed,
)
from trl import GRPOConfig

from klip.adapters.trl import KlipGRPOTrainer

LETTERS = "abcd"


def a_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each letter, the marker, padding, the end and all else."""
    words = ["<pad>", "<end>", "<unk>", "#", *LETTERS]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unk>",
        padding_side="left",
    )


def a_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> LlamaForCausalLM:
    """A random model of two layers that are 32 wide."""
    set_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=0.2,  # outputs that differ, so that there is something to learn from
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def prompts(count: int = 64) -> Dataset:
    """A dataset of so many prompts, one letter each."""
    return Dataset.from_dict({"prompt": [LETTERS[i % len(LETTERS)] for i in range(count)]})


def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    """A score for each completion: the share of the prompt's letter, and 1 more for the answer."""
    scores = []
    for letter, text in zip(prompts, completions, strict=True):
        reasoning, _, answer = text.rpartition("#")
        share = reasoning.count(letter) / max(len(reasoning), 1)
        scores.append(share + float(answer == letter))
    return scores


def settings(folder: str, **changes: Any) -> GRPOConfig:
    """TRL's settings for a CPU; four updates on every batch of completions, so that ratios move."""
    usual: dict[str, Any] = {
        "output_dir": folder,
        "per_device_train_batch_size": 32,
        "num_generations": 8,
        "num_iterations": 4,
        "max_completion_length": 8,
        "learning_rate": 5e-3,
        "lr_scheduler_type": "constant",
        "max_steps": 60,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
    }
    return GRPOConfig(**(usual | changes))


def main() -> None:
    """Train, and print how many tokens lost their gradient, and where."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="clip(low=0.2, high=0.28)")
    parser.add_argument("--steps", type=int, default=60)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = a_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        trainer = KlipGRPOTrainer(
            shape=chosen.shape,
            answer_marker="#",
            model=a_model(tokenizer),
            reward_funcs=reward,
            args=settings(folder, max_steps=chosen.steps, logging_steps=max(chosen.steps // 6, 1)),
            train_dataset=prompts(),
            processing_class=tokenizer,
        )
        trainer.remove_callback(PrinterCallback)  # there are a hundred numbers an update
        trainer.train()
    print(f"{'update':>6} {'reward':>7} {'zeroed':>7} {'reasoning':>10} {'answer':>7}")
    names = ("reward", "klip/zeroed", "klip/reasoning/zeroed", "klip/answer/zeroed")
    for entry in trainer.state.log_history:
        if "klip/zeroed" in entry:
            row = [entry.get(name, float("nan")) for name in names]
            print("{:6d} {:7.3f} {:7.3f} {:10.3f} {:7.3f}".format(entry["step"], *row))


if __name__ == "__main__":
    main()
