"""A tiny world in which TRL's trainer and ours can be held against each other."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PrinterCallback
from trl import GRPOTrainer

from examples.trl_grpo import a_model, a_tokenizer, prompts, reward, settings
from klip.adapters.trl import KlipGRPOTrainer

ROWS, PROMPT, LENGTH = 8, 3, 12


class Wide(GRPOTrainer):
    """Log-probs in the dtype of the model: those of TRL's kernel are always float32."""

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **_
    ):
        logits = model(input_ids=input_ids, attention_mask=attention_mask).logits
        log_p = (logits[:, -logits_to_keep - 1 : -1] / self.temperature).log_softmax(-1)
        chosen = log_p.gather(-1, input_ids[:, -logits_to_keep:, None])[..., 0]
        return chosen, -(log_p.exp() * log_p).sum(-1), None


class WideKlip(KlipGRPOTrainer, Wide):
    """Ours, over that."""


def trainer(folder, kind: type = GRPOTrainer, *, ours: dict[str, Any] | None = None, **changes):
    """A trainer of a new model, the same every time; `kind` Wide or WideKlip is in float64."""
    tokenizer = a_tokenizer()
    model = a_model(tokenizer)
    if issubclass(kind, Wide):
        model = model.double()
    if changes.get("beta"):  # TRL loads the reference from where the model came from
        model.save_pretrained(folder / "model")
        model.config._name_or_path = str(folder / "model")
    made = kind(
        model=model,
        reward_funcs=reward,
        args=settings(str(folder), **changes),
        train_dataset=prompts(),
        processing_class=tokenizer,
        **({"metrics": "all"} if issubclass(kind, KlipGRPOTrainer) else {}),
        **(ours or {}),
    )
    made.remove_callback(PrinterCallback)
    made.current_gradient_accumulation_steps = 1  # which train() sets
    return made


def batch(stock: GRPOTrainer, spread: float = 0.3, seed: int = 1) -> dict[str, Any]:
    """Completions of several lengths whose old log-probs lie `spread` away from the new ones.

    Half of what is away is the same in all tokens of a sequence, so that sequences differ too.
    """
    draw = torch.Generator().manual_seed(seed)
    vocabulary = stock.model.config.vocab_size
    ids = torch.randint(3, vocabulary, (ROWS, PROMPT + LENGTH), generator=draw)
    lengths = torch.tensor([LENGTH, 1, 5, 9, 3, LENGTH, 7, 10])
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    prompt_mask = (torch.arange(PROMPT) >= torch.arange(ROWS)[:, None] % PROMPT).long()
    ids[:, PROMPT:] *= mask
    ids[:, :PROMPT] *= prompt_mask
    with torch.no_grad():
        new, _, _ = stock._get_per_token_logps_and_entropies(
            stock.model, ids, torch.cat([prompt_mask, mask], 1), LENGTH
        )
    own = torch.randn(ROWS, LENGTH, generator=draw).to(new)
    shared = torch.randn(ROWS, 1, generator=draw).to(new)
    return {
        "prompt_ids": ids[:, :PROMPT],
        "prompt_mask": prompt_mask,
        "completion_ids": ids[:, PROMPT:],
        "completion_mask": mask,
        "advantages": torch.randn(ROWS, generator=draw),
        "old_per_token_logps": (new + spread * (own + shared) / 2**0.5) * mask,
        "num_items_in_batch": mask.sum(),
    }


def gradient(of: GRPOTrainer, inputs: dict[str, Any]) -> torch.Tensor:
    """The loss's gradient, of all parameters in a row."""
    of.model.zero_grad()
    of._compute_loss(of.model, inputs).backward()
    return torch.cat([p.grad.flatten() for p in of.model.parameters() if p.grad is not None])


def parameters(of: GRPOTrainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in of.model.parameters()])


def window(of: KlipGRPOTrainer) -> dict[str, float]:
    """What it would log now of the losses since the last entry."""
    return of._klip.windows["train"].metrics()


def logged(of: GRPOTrainer) -> list[dict[str, float]]:
    """What was logged at each update."""
    return [entry for entry in of.state.log_history if "loss" in entry]
