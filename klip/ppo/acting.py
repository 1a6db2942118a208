"""Networks without a framework: where their weights lie, initial values, and acting in NumPy.

Acting is done run by run in C loops, so that its bits do not depend on how many runs act together.
Using a trained policy needs this file and not JAX.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klip.engine.random import stream
from klip.shapes import Array
from klip.tasks import Box, Discrete, MultiDiscrete

Action = Box | Discrete | MultiDiscrete
F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Layout:
    """Where each array of a run's parameters lies in its flat vector: policy first, then value."""

    observation: int
    """D, the size of an observation"""
    hidden: tuple[int, ...]
    """widths of the hidden layers, which both networks have"""
    heads: tuple[int, ...]
    """sizes of the action heads: one mean vector, or one set of logits per discrete action"""
    gaussian: bool
    """whether actions are real numbers; otherwise they are choices"""

    @property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of every array, in the order of the vector."""
        arrays: list[tuple[str, tuple[int, ...]]] = []
        for net, out in (("policy", sum(self.heads)), ("value", 1)):
            sizes = (self.observation, *self.hidden, out)
            for i, (before, after) in enumerate(itertools.pairwise(sizes)):
                arrays += [(f"{net}.{i}.weight", (before, after)), (f"{net}.{i}.bias", (after,))]
            if net == "policy" and self.gaussian:
                arrays.append(("policy.log_std", (out,)))
        return arrays

    def split(self, vector: Array) -> dict[str, Array]:
        """The arrays as views of a vector `[P]`, or of a stack of vectors `[R, P]`."""
        arrays, start = {}, 0
        for name, shape in self.shapes:
            size = int(np.prod(shape))
            piece = vector[..., start : start + size]
            arrays[name] = piece.reshape(*vector.shape[:-1], *shape)
            start += size
        return arrays

    def join(self, arrays: dict[str, Array]) -> Array:
        """The vector `[P]` again, for JAX; JAX may have changed the order of the dict."""
        import jax.numpy as jnp  # here, since acting needs none of it

        return jnp.concatenate([arrays[name].ravel() for name, _ in self.shapes])


def layout_of(observation: int, action: Action, hidden: tuple[int, ...]) -> Layout:
    """The layout of the networks for a task.

    Args:
        observation: D, the size of an observation
        action: the task's action space
        hidden: widths of the hidden layers

    """
    if isinstance(action, Box):
        return Layout(observation, hidden, (len(action.low),), True)
    heads = (action.n,) if isinstance(action, Discrete) else tuple(action.n)
    return Layout(observation, hidden, heads, False)


def initial(layout: Layout, seed: int, log_std: float) -> F32:
    """Orthogonal weights of gain sqrt 2 (policy head 0.01, value head 1), zero biases.

    Args:
        layout: where the arrays lie
        seed: of the run
        log_std: of a Gaussian policy, at the start

    Returns:
        the vector `[P]` of all parameters

    """
    pieces = []
    last = len(layout.hidden)
    for name, shape in layout.shapes:
        if name.endswith("weight"):
            net, depth, _ = name.split(".")
            head = 0.01 if net == "policy" else 1.0
            gain = head if int(depth) == last else 2**0.5
            pieces.append(_orthogonal(stream(seed, f"init {name}"), shape, gain).ravel())
        else:
            pieces.append(np.full(np.prod(shape), log_std if name.endswith("std") else 0.0))
    return np.concatenate(pieces).astype(np.float32)


def _orthogonal(
    rng: np.random.Generator, shape: tuple[int, ...], gain: float
) -> NDArray[np.float64]:
    rows, columns = shape
    tall = rng.standard_normal((max(shape), min(shape)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return gain * (q if rows >= columns else q.T)


def forward(arrays: Mapping[str, F32], net: str, x: F32) -> F32:
    """A network's output in NumPy: R sets of weights take `[R, E, D]` to `[R, E, M]`."""
    depth = 0
    while True:
        x = np.matmul(x, arrays[f"{net}.{depth}.weight"])
        x += arrays[f"{net}.{depth}.bias"][:, None, :]
        depth += 1
        if f"{net}.{depth}.weight" not in arrays:
            return x
        np.tanh(x, out=x)


def act(layout: Layout, arrays: Mapping[str, F32], x: F32, noise: F32) -> Any:
    """Sample actions `[R, E, A]` (Gaussian) or `[R, E, heads]` (discrete).

    `noise` is standard normal for a Gaussian, uniform for each discrete head.
    """
    out = forward(arrays, "policy", x)
    if layout.gaussian:
        return out + np.exp(arrays["policy.log_std"])[:, None, :] * noise
    chosen = np.empty((*out.shape[:2], len(layout.heads)), dtype=np.int64)
    start = 0
    for i, size in enumerate(layout.heads):
        logits = out[..., start : start + size]
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        total = np.cumsum(weights, axis=-1)
        point = noise[..., i, None] * total[..., -1:]
        chosen[..., i] = np.minimum((total <= point).sum(axis=-1), size - 1)
        start += size
    return chosen
