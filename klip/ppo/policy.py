"""Policy and value networks in JAX: distributions, log-probabilities, entropies and KLs.

All parameters of a run lie in one flat vector, which Adam steps and a file holds. What needs no
framework (where they lie, their initial values, acting) is in `klip.ppo.acting`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

from klip.ppo.acting import (
    F32,
    LEAST_STD,
    NORM_EPS,
    Action,
    Layout,
    Start,
    actor,
    bounded,
    forward,
    initial,
    layers,
    layout_of,
)
from klip.shapes import Array

__all__ = [
    "F32",
    "Action",
    "Layout",
    "Start",
    "actor",
    "bounded",
    "distribution",
    "entropy",
    "forward",
    "initial",
    "kl",
    "layers",
    "layout_of",
    "log_prob",
    "network",
]

LOG_2, LOG_2PI = float(np.log(2)), float(np.log(2 * np.pi))
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)
NODES, WEIGHTS = _NODES.astype(np.float32), (_WEIGHTS / np.sqrt(2 * np.pi)).astype(np.float32)
"""E f(z) of a standard normal z is about the sum of WEIGHTS f(NODES)."""


ACTIVATIONS: Final[dict[str, Callable[[Array], Array]]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "swish": jax.nn.swish,
}


def network(layout: Layout, arrays: dict[str, Array], net: str, x: Array) -> Array:
    """A network's output in JAX: it takes `[N, D]` to `[N, M]`."""
    activate, last = ACTIVATIONS[layout.activation], len(layout.widths(net))
    for depth in range(last + 1):
        name = layout.layer(net, depth)
        x = x @ arrays[f"{name}.weight"] + arrays[f"{name}.bias"]
        if depth < last:
            if layout.layer_norm:
                x = x - x.mean(axis=-1, keepdims=True)
                x = x * jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + NORM_EPS)
                x = x * arrays[f"{name}.scale"] + arrays[f"{name}.shift"]
            x = activate(x)
    return x


def distribution(layout: Layout, arrays: dict[str, Array], observation: Array) -> dict[str, Array]:
    """The policy's distribution at each observation: mean and log_std, or normalised logits.

    A squashed policy has those of the Gaussian below the tanh.
    """
    out = network(layout, arrays, "policy", observation)
    if layout.gaussian:
        if layout.state_std:
            out, wide = jnp.split(out, 2, axis=-1)
            return {"mean": out, "log_std": jnp.log(jax.nn.softplus(wide) + LEAST_STD)}
        return {"mean": out, "log_std": jnp.broadcast_to(arrays["policy.log_std"], out.shape)}
    edges = np.cumsum(layout.heads)[:-1].tolist()
    parts = [jax.nn.log_softmax(part) for part in jnp.split(out, edges, axis=-1)]
    return {"logits": jnp.concatenate(parts, axis=-1)}


def log_slope(x: Array) -> Array:
    """log(1 - tanh(x)^2), without loss where tanh is nearly 1."""
    return 2 * (LOG_2 - x - jax.nn.softplus(-2 * x))


def log_prob(layout: Layout, dist: dict[str, Array], action: Array) -> Array:
    """log pi(action), `[N]`, in nats; of a squashed policy the density of tanh(action)."""
    if layout.gaussian:
        z = (action - dist["mean"]) * jnp.exp(-dist["log_std"])
        within = -0.5 * (z * z + 2 * dist["log_std"] + LOG_2PI).sum(axis=-1)
        return within - log_slope(action).sum(axis=-1) if layout.squash else within
    start, total = 0, 0.0
    for i, size in enumerate(layout.heads):
        chosen = jax.nn.one_hot(action[:, i], size, dtype=dist["logits"].dtype)
        total = total + (dist["logits"][:, start : start + size] * chosen).sum(axis=-1)
        start += size
    return total


def entropy(layout: Layout, dist: dict[str, Array]) -> Array:
    """Entropy at each state, `[N]`, in nats.

    With tanh it is H(Gaussian) + E[log(1 - tanh^2)], the mean by 16 Gauss-Hermite nodes.
    """
    if layout.gaussian:
        within = dist["log_std"] + 0.5 * (1 + LOG_2PI)
        if layout.squash:
            at = dist["mean"][..., None] + jnp.exp(dist["log_std"])[..., None] * NODES
            within = within + (log_slope(at) * WEIGHTS).sum(axis=-1)
        return within.sum(axis=-1)
    return -(jnp.exp(dist["logits"]) * dist["logits"]).sum(axis=-1)


def kl(layout: Layout, old: dict[str, Array], new: dict[str, Array]) -> Array:
    """Closed-form KL(old || new) at each state, `[N]`, in nats; a tanh does not change it."""
    if layout.gaussian:
        shift = (old["mean"] - new["mean"]) * jnp.exp(-new["log_std"])
        spread = jnp.exp(2 * (old["log_std"] - new["log_std"]))
        gap = new["log_std"] - old["log_std"]
        return (gap + 0.5 * (spread + shift * shift - 1)).sum(axis=-1)
    return (jnp.exp(old["logits"]) * (old["logits"] - new["logits"])).sum(axis=-1)
