"""Policy and value networks in JAX: distributions, log-probabilities, entropies and KLs.

All parameters of a run lie in one flat vector, which Adam steps and a file holds. What needs no
framework (where they lie, their initial values, acting) is in `klip.ppo.acting`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from klip.ppo.acting import F32, Action, Layout, act, forward, initial, layout_of
from klip.shapes import Array

__all__ = [
    "F32",
    "Action",
    "Layout",
    "act",
    "distribution",
    "entropy",
    "forward",
    "initial",
    "kl",
    "layout_of",
    "log_prob",
    "network",
]

LOG_2PI = float(np.log(2 * np.pi))


def network(arrays: dict[str, Array], net: str, x: Array) -> Array:
    """A network's output in JAX: it takes `[N, D]` to `[N, M]`."""
    depth = 0
    while True:
        x = x @ arrays[f"{net}.{depth}.weight"] + arrays[f"{net}.{depth}.bias"]
        depth += 1
        if f"{net}.{depth}.weight" not in arrays:
            return x
        x = jnp.tanh(x)


def distribution(layout: Layout, arrays: dict[str, Array], observation: Array) -> dict[str, Array]:
    """The policy's distribution at each observation: mean and log_std, or normalised logits."""
    out = network(arrays, "policy", observation)
    if layout.gaussian:
        return {"mean": out, "log_std": jnp.broadcast_to(arrays["policy.log_std"], out.shape)}
    edges = np.cumsum(layout.heads)[:-1].tolist()
    parts = [jax.nn.log_softmax(part) for part in jnp.split(out, edges, axis=-1)]
    return {"logits": jnp.concatenate(parts, axis=-1)}


def log_prob(layout: Layout, dist: dict[str, Array], action: Array) -> Array:
    """log pi(action), `[N]`, in nats."""
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
    """Entropy at each state, `[N]`, in nats."""
    if layout.gaussian:
        return (dist["log_std"] + 0.5 * (1 + LOG_2PI)).sum(axis=-1)
    return -(jnp.exp(dist["logits"]) * dist["logits"]).sum(axis=-1)


def kl(layout: Layout, old: dict[str, Array], new: dict[str, Array]) -> Array:
    """Closed-form KL(old || new) at each state, `[N]`, in nats."""
    if layout.gaussian:
        shift = (old["mean"] - new["mean"]) * jnp.exp(-new["log_std"])
        spread = jnp.exp(2 * (old["log_std"] - new["log_std"]))
        gap = new["log_std"] - old["log_std"]
        return (gap + 0.5 * (spread + shift * shift - 1)).sum(axis=-1)
    return (jnp.exp(old["logits"]) * (old["logits"] - new["logits"])).sum(axis=-1)
