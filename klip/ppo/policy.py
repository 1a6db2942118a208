"""Policy and value networks: initial weights, acting (NumPy), and log-probabilities (JAX).

A network's parameters are a list of (weight, bias); a run's are all of them in one flat vector,
which is what Adam steps and what a file holds. Acting is done in NumPy, run by run in C loops, so
that its bits do not depend on how many runs act together.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from klip.ppo.random import stream
from klip.shapes import Array
from klip.tasks import Box, Discrete, MultiDiscrete

Action = Box | Discrete | MultiDiscrete
F32 = NDArray[np.float32]
LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Layout:
    """Where each array of a run's parameters lies in its flat vector: policy first, then value."""

    observation: int
    hidden: tuple[int, ...]
    heads: tuple[int, ...]
    """sizes of the action heads: one mean vector, or one set of logits per discrete action"""
    gaussian: bool

    @property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """The arrays in order, by name."""
        found: list[tuple[str, tuple[int, ...]]] = []
        for net, out in (("policy", sum(self.heads)), ("value", 1)):
            sizes = (self.observation, *self.hidden, out)
            for i, (before, after) in enumerate(itertools.pairwise(sizes)):
                found += [(f"{net}.{i}.weight", (before, after)), (f"{net}.{i}.bias", (after,))]
            if net == "policy" and self.gaussian:
                found.append(("policy.log_std", (out,)))
        return found

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
        """The vector `[P]` again; a dict's own order is JAX's to change."""
        return jnp.concatenate([arrays[name].ravel() for name, _ in self.shapes])


def layout_of(observation: int, action: Action, hidden: tuple[int, ...]) -> Layout:
    """The layout for a task's spaces."""
    if isinstance(action, Box):
        return Layout(observation, hidden, (len(action.low),), True)
    heads = (action.n,) if isinstance(action, Discrete) else tuple(action.n)
    return Layout(observation, hidden, heads, False)


def initial(layout: Layout, seed: int, log_std: float) -> F32:
    """Orthogonal weights of gain sqrt 2 (policy head 0.01, value head 1), zero biases."""
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


def forward(arrays: dict[str, F32], net: str, x: F32) -> F32:
    """A network's output in NumPy: `[R, E, D]` through `R` sets of weights to `[R, E, M]`."""
    depth = 0
    while True:
        x = np.matmul(x, arrays[f"{net}.{depth}.weight"])
        x += arrays[f"{net}.{depth}.bias"][:, None, :]
        depth += 1
        if f"{net}.{depth}.weight" not in arrays:
            return x
        np.tanh(x, out=x)


def act(layout: Layout, arrays: dict[str, F32], x: F32, noise: F32) -> Any:
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


def network(arrays: dict[str, Array], net: str, x: Array) -> Array:
    """A network's output in JAX: `[N, D]` to `[N, M]`."""
    depth = 0
    while True:
        x = x @ arrays[f"{net}.{depth}.weight"] + arrays[f"{net}.{depth}.bias"]
        depth += 1
        if f"{net}.{depth}.weight" not in arrays:
            return x
        x = jnp.tanh(x)


def distribution(layout: Layout, arrays: dict[str, Array], observation: Array) -> dict[str, Array]:
    """What the policy says at each observation: mean and log_std, or normalised logits."""
    out = network(arrays, "policy", observation)
    if layout.gaussian:
        return {"mean": out, "log_std": jnp.broadcast_to(arrays["policy.log_std"], out.shape)}
    edges = np.cumsum(layout.heads)[:-1].tolist()
    parts = [jax.nn.log_softmax(part) for part in jnp.split(out, edges, axis=-1)]
    return {"logits": jnp.concatenate(parts, axis=-1)}


def log_prob(layout: Layout, dist: dict[str, Array], action: Array) -> Array:
    """log pi(action), `[N]`."""
    if layout.gaussian:
        z = (action - dist["mean"]) * jnp.exp(-dist["log_std"])
        return -0.5 * (z * z + 2 * dist["log_std"] + LOG_2PI).sum(axis=-1)
    start, total = 0, 0.0
    for i, size in enumerate(layout.heads):
        chosen = jax.nn.one_hot(action[:, i], size, dtype=dist["logits"].dtype)
        total = total + (dist["logits"][:, start : start + size] * chosen).sum(axis=-1)
        start += size
    return total


def entropy(layout: Layout, dist: dict[str, Array]) -> Array:
    """Entropy at each state, `[N]`."""
    if layout.gaussian:
        return (dist["log_std"] + 0.5 * (1 + LOG_2PI)).sum(axis=-1)
    return -(jnp.exp(dist["logits"]) * dist["logits"]).sum(axis=-1)


def kl(layout: Layout, old: dict[str, Array], new: dict[str, Array]) -> Array:
    """Closed-form KL(old || new) at each state, `[N]`."""
    if layout.gaussian:
        shift = (old["mean"] - new["mean"]) * jnp.exp(-new["log_std"])
        spread = jnp.exp(2 * (old["log_std"] - new["log_std"]))
        gap = new["log_std"] - old["log_std"]
        return (gap + 0.5 * (spread + shift * shift - 1)).sum(axis=-1)
    return (jnp.exp(old["logits"]) * (old["logits"] - new["logits"])).sum(axis=-1)
