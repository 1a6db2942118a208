"""A decoder-only transformer in plain PyTorch: pre-norm, rotary positions, a key-value cache.

x = x + attention(norm(x));  x = x + mlp(norm(x));  logits = norm(x) @ embedding^T
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from klip.lab.addition import END, PAD, VOCABULARY


class Size(NamedTuple):
    """How large a model is."""

    layers: int = 2
    width: int = 64
    heads: int = 4


class Cache(NamedTuple):
    """Keys and values of a layer, `[B, heads, T, width/heads]` each, filled from the left."""

    key: Tensor
    value: Tensor


class Block(nn.Module):
    """Attention and a feed-forward layer, each added to what comes in."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.before = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.between = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, turn: Tensor, cache: Cache | None, start: int) -> Tensor:
        """`x` is `[B, T, width]`; with a cache, the tokens from place `start` on."""
        rows, length, width = x.shape
        q, k, v = (
            part.view(rows, length, self.heads, -1).transpose(1, 2)
            for part in self.attend(self.before(x)).split(width, -1)
        )
        q, k = _rotated(q, turn), _rotated(k, turn)
        if cache is not None:
            end = start + length
            cache.key[:, :, start:end], cache.value[:, :, start:end] = k, v
            k, v = cache.key[:, :, :end], cache.value[:, :, :end]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.project(mixed.transpose(1, 2).reshape(rows, length, width))
        out: Tensor = x + self.down(F.gelu(self.up(self.between(x))))
        return out


class Model(nn.Module):
    """From ids `[B, T]` to logits `[B, T, vocabulary]`."""

    turns: Tensor

    def __init__(self, size: Size, longest: int) -> None:
        super().__init__()
        self.size, self.longest = size, longest
        self.embed = nn.Embedding(len(VOCABULARY), size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        half = size.width // size.heads // 2
        speed = 100.0 ** -(torch.arange(half) / half)
        self.register_buffer("turns", torch.arange(longest)[:, None] * speed, persistent=False)

    def forward(self, ids: Tensor, caches: list[Cache] | None = None, start: int = 0) -> Tensor:
        """Logits; with caches, of the tokens from place `start` on, which are added to them."""
        x = self.embed(ids)
        turn = self.turns[start : start + ids.shape[1]]
        for place, block in enumerate(self.blocks):
            x = block(x, turn, caches[place] if caches else None, start)
        return F.linear(self.norm(x), self.embed.weight)

    def empty_caches(self, rows: int) -> list[Cache]:
        """Room for `rows` sequences of the longest length."""
        shape = (rows, self.size.heads, self.longest, self.size.width // self.size.heads)
        return [Cache(torch.zeros(shape), torch.zeros(shape)) for _ in self.blocks]


def new_model(size: Size, longest: int, chance: np.random.Generator) -> Model:
    """A model with weights drawn from `chance` alone: N(0, 0.02), smaller where a block adds."""
    model = Model(size, longest)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                scale = 0.02 / (2 * size.layers) ** 0.5 if _into_sum(name) else 0.02
                scale = scale if "embed" not in name else 0.05
                drawn = chance.standard_normal(weight.shape) * scale
                weight.copy_(torch.from_numpy(drawn.astype(np.float32)))
            elif name.endswith("bias"):
                weight.zero_()
    return model


def generate(model: Model, prompts: Tensor, chance: NDArray[np.float32] | None) -> Tensor:
    """Completions `[B, T]` of prompts `[B, P]`, padded after their end.

    `chance` `[T, B]` are numbers from [0, 1) by which tokens are drawn from the model's
    distribution; without it the likeliest is taken.
    """
    rows, start = prompts.shape
    steps = model.longest - start
    caches = model.empty_caches(rows)
    out = torch.full((rows, steps), PAD)
    open_ = torch.ones(rows, dtype=torch.bool)
    with torch.inference_mode():
        logits = model(prompts, caches)[:, -1]
        for step in range(steps):
            if chance is None:
                token = logits.argmax(-1)
            else:
                total = logits.double().softmax(-1).cumsum(-1)
                drawn = torch.from_numpy(chance[step].astype(np.float64))[:, None]
                token = (total <= drawn * total[:, -1:]).sum(-1)
            out[:, step] = torch.where(open_, token, PAD)
            open_ &= token != END
            if step + 1 == steps or not bool(open_.any()):
                break
            logits = model(out[:, step : step + 1], caches, start + step)[:, -1]
    return out.clone()


class Scored(NamedTuple):
    """What a model says of completions, `[B, T]` each."""

    log_prob: Tensor
    entropy: Tensor


def score(model: Model, prompts: Tensor, completions: Tensor) -> Scored:
    """Log-probabilities of the tokens of completions, and the entropy where each was drawn."""
    start = prompts.shape[1]
    logits = model(torch.cat([prompts, completions[:, :-1]], 1))[:, start - 1 :]
    logs = logits.log_softmax(-1)
    entropy = -(logs.detach().exp() * logs.detach()).sum(-1)
    return Scored(logs.gather(-1, completions[..., None])[..., 0], entropy)


def mask_of(completions: Tensor) -> Tensor:
    """`[B, T]`, True where a token was generated: all but the padding."""
    ended = (completions == END).long().cumsum(-1)
    return (ended == 0) | ((completions == END) & (ended == 1))


def _rotated(x: Tensor, turn: Tensor) -> Tensor:
    """Pairs of numbers turned by an angle that grows with the place."""
    a, b = x.chunk(2, -1)
    cos, sin = turn.cos(), turn.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def _into_sum(name: str) -> bool:
    return "project" in name or "down" in name
