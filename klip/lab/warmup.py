"""The supervised warm-up: a model that can add, and makes the mistakes it was shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from klip.lab.addition import (
    completion_length,
    decode,
    encode,
    is_right,
    problems,
    prompt,
    scratchpad,
)
from klip.lab.config import Warmup
from klip.lab.model import Model, Size, generate, mask_of, new_model, score
from klip.ppo.random import stream
from klip.runs.checkpoint import Checkpoint, Damaged, read
from klip.runs.checkpoint import encode as encode_checkpoint
from klip.runs.files import disk, write_whole

RISE = 100  # steps over which the learning rate rises
Arrays = dict[str, NDArray[np.generic]]


def warmup_path(out: Path, w: Warmup) -> Path:
    """Where a warm-up's weights lie."""
    return out / "warm-up" / f"seed-{w.seed}-{w.id}.safetensors"


def build(w: Warmup) -> Model:
    """The model before any training."""
    return new_model(Size(w.layers, w.width, w.heads), w.longest, stream(w.seed, "weights"))


def warm_up(w: Warmup, stop: Callable[[], bool] = lambda: False) -> Model | None:
    """Train a model on scratchpads with mistakes; None if it was asked to stop."""
    model = build(w)
    optimiser = torch.optim.Adam(model.parameters(), lr=w.learning_rate, betas=(0.9, 0.95))
    length = completion_length(w.digits)
    for step in range(w.steps):
        if stop():
            return None
        rate = min(1.0, (step + 1) / RISE) * max(0.02, 1 - step / w.steps)
        optimiser.param_groups[0]["lr"] = w.learning_rate * rate
        chance = stream(w.seed, "warm-up", step)
        pairs = problems(chance, w.batch, w.digits)
        texts = [scratchpad(a, b, w.digits, chance, w.slip, w.forget) for a, b in pairs.tolist()]
        completions = torch.tensor([encode(text.ljust(length, "_")) for text in texts])
        said = score(model, encoded(pairs), completions)
        loss = -said.log_prob[mask_of(completions)].mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model


def save_warmup(path: Path, w: Warmup, model: Model) -> None:
    """Write the weights in one step, with a checksum."""
    about = {
        "task": "warm-up", "shape": "none", "seed": w.seed, "steps": w.steps, "envs": 1,
        "rollout": 1, "id": w.id,
    }  # fmt: skip
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    made = Checkpoint(about, w.steps, weights_of(model), status="done")
    write_whole(path, encode_checkpoint(made))


def read_warmup(path: Path, w: Warmup) -> Model:
    """The model of a warm-up that is done."""
    found = read(path)
    if found.config.get("id") != w.id:
        raise Damaged(f"{path} cannot be used: it is of another warm-up; delete it")
    model = build(w)
    set_weights(model, dict(found.arrays))
    return model


def weights_of(model: Model) -> Arrays:
    """All parameters, by name."""
    return {name: weight.detach().numpy().copy() for name, weight in model.named_parameters()}


def set_weights(model: Model, arrays: Arrays) -> None:
    """Put parameters back."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.from_numpy(arrays[name]))


def encoded(pairs: NDArray[np.int64]) -> torch.Tensor:
    """Prompts `[B, P]` of pairs `[B, 2]`."""
    return torch.tensor([encode(prompt(a, b)) for a, b in pairs.tolist()])


def rewards(
    pairs: NDArray[np.int64], completions: torch.Tensor, digits: int
) -> NDArray[np.float32]:
    """1 for each completion that is right, 0 for the others."""
    texts = (decode(row).partition("_")[0] for row in completions.tolist())
    told = zip(pairs.tolist(), texts, strict=True)
    return np.array([is_right(a, b, digits, text) for (a, b), text in told], np.float32)


def held_out_accuracy(model: Model, w: Warmup, prompts: int, samples: int, place: int) -> float:
    """The share of right completions of held-out prompts; greedy where `samples` is 0.

    The prompts and the dice are the same for every run: those of a place differ from another's.
    """
    pairs = problems(stream(0, "held out"), prompts, w.digits, held_out=True)
    asked, length = encoded(pairs), completion_length(w.digits)
    found = []
    for k in range(max(samples, 1)):
        dice = stream(0, "evaluation", place, k).random((length, prompts), np.float32)
        made = generate(model, asked, dice if samples else None)
        found.append(rewards(pairs, made, w.digits).mean())
    return float(np.mean(found))
