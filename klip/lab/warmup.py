"""The supervised warm-up: a model that can add, and makes the mistakes it was shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from klip.engine.job import State, Stopped
from klip.engine.random import stream
from klip.errors import KlipError, NotFinite
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

RISE = 100  # steps over which the learning rate rises


def build(w: Warmup) -> Model:
    """The model before any training."""
    return new_model(Size(w.layers, w.width, w.heads), w.longest, stream(w.seed, "weights"))


class WarmupRun:
    """Trains a model on scratchpads with mistakes; a step is an iteration."""

    def __init__(self, w: Warmup) -> None:
        torch.set_num_threads(1)  # the bits depend on it
        self.config, self.model, self.iteration = w, build(w), 0
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), lr=w.learning_rate, betas=(0.9, 0.95)
        )

    def iterate(self, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """One step; its row has the mean loss of a token."""
        if stop():
            raise Stopped
        w, step = self.config, self.iteration
        rate = min(1.0, (step + 1) / RISE) * max(0.02, 1 - step / w.steps)
        self.optimiser.param_groups[0]["lr"] = w.learning_rate * rate
        chance = stream(w.seed, "warm-up", step)
        pairs = problems(chance, w.batch, w.digits)
        texts = [scratchpad(a, b, w.digits, chance, w.slip, w.forget) for a, b in pairs.tolist()]
        length = completion_length(w.digits)
        completions = torch.tensor([encode(text.ljust(length, "_")) for text in texts])
        scored = score(self.model, encoded(pairs), completions)
        loss = -scored.log_prob[mask_of(completions)].mean()
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        check_weights(self.model)
        self.iteration += 1
        counts = {"iteration": self.iteration, "step": self.iteration * w.batch}
        return {**counts, "return_mean": None, "loss": loss.item()}

    def arrays(self) -> State:
        """Weights and optimiser."""
        return arrays_of(self.model, self.optimiser)

    def restore(self, iteration: int, arrays: State) -> None:
        """Go on from a checkpoint."""
        restore_into(self.model, self.optimiser, iteration, arrays)
        self.iteration = iteration


def arrays_of(model: Model, optimiser: torch.optim.Optimizer) -> State:
    """Copies of all weights, `weights/<name>`, and of Adam's state, `adam/<key>/<name>`."""
    arrays: State = {}
    for name, weight in model.named_parameters():
        arrays[f"weights/{name}"] = weight.detach().numpy().copy()
        for key, value in optimiser.state.get(weight, {}).items():
            arrays[f"adam/{key}/{name}"] = value.numpy().copy()
    return arrays


def set_weights(model: Model, arrays: State) -> None:
    """Put the weights of a checkpoint into a model."""
    try:
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(torch.from_numpy(arrays[f"weights/{name}"]))
    except (KeyError, RuntimeError, TypeError) as error:
        raise _other_version(error) from None


def restore_into(
    model: Model, optimiser: torch.optim.Optimizer, iteration: int, arrays: State
) -> None:
    """Put back a checkpoint's weights and Adam's state, which there is from the first step on."""
    set_weights(model, arrays)
    try:
        for name, weight in model.named_parameters() if iteration else ():
            optimiser.state[weight] = {
                key: torch.from_numpy(arrays[f"adam/{key}/{name}"].copy())
                for key in ("step", "exp_avg", "exp_avg_sq")
            }
    except KeyError as error:
        raise _other_version(error) from None


def _other_version(error: Exception) -> KlipError:
    return KlipError(f"its checkpoint is of another version of Klip: {error}")


def check_weights(model: Model) -> None:
    """Raise `NotFinite` unless every weight is finite."""
    for name, weight in model.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise NotFinite(f"the weights {name} are not finite after the update")


def encoded(pairs: NDArray[np.int64]) -> torch.Tensor:
    """Prompts `[B, P]` of pairs `[B, 2]`."""
    return torch.tensor([encode(prompt(a, b)) for a, b in pairs.tolist()])


def rewards(
    pairs: NDArray[np.int64], completions: torch.Tensor, digits: int
) -> NDArray[np.float32]:
    """`[B]`: 1 for each completion that is right, 0 for the others."""
    texts = (decode(row).partition("_")[0] for row in completions.tolist())
    answered = zip(pairs.tolist(), texts, strict=True)
    return np.array([is_right(a, b, digits, text) for (a, b), text in answered], np.float32)


def held_out_accuracy(model: Model, w: Warmup, prompts: int, samples: int, place: int) -> float:
    """The share of right completions of held-out prompts; greedy where `samples` is 0.

    The prompts and the dice are the same for every run, and differ from place to place.
    """
    pairs = problems(stream(0, "held out"), prompts, w.digits, held_out=True)
    length, shares = completion_length(w.digits), []
    for k in range(max(samples, 1)):
        dice = stream(0, "evaluation", place, k).random((length, prompts), np.float32)
        completions = generate(model, encoded(pairs), dice if samples else None)
        shares.append(rewards(pairs, completions, w.digits).mean())
    return float(np.mean(shares))
