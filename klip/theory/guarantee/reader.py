"""M of a state's actions as a reader would compute it: the shape's own code, and a fresh context.

The recomputations of refutations rest on it, and the searches do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from klip.shapes import Context, Shape

TYPICAL: Final[Mapping[str, float]] = {
    "entropy": 1.0, "position": 50.0, "length": 101.0, "age": 0.0, "mask": 1.0, "sequence": 0,
    "group": 0, "behaviour_log_ratio": 0.0, "proximal_log_ratio": 0.0, "step": 0.0,
    "progress": 0.0, "effective_size": 1.0, "deviation": 0.0, "second_moment": 0.0,
}  # fmt: skip
"""A fresh sample in the middle of a sequence."""


def facts(
    shape: Shape, context: Mapping[str, float], log_w: Any, advantage: Any, old: Any
) -> Context:
    """What a shape may ask of actions `[..., actions]`, arrays of NumPy or JAX.

    Their old probabilities and the state's KL are the true ones, whatever `context` says.

    >>> from klip.shapes import parse
    >>> x, old = np.log([[1.2, 0.8]]), np.array([0.5, 0.5])
    >>> facts(parse("dppo-tv"), {}, x, np.array([[1.0, -1.0]]), old).old_log_prob.round(3)
    array([[-0.693, -0.693]])
    """
    true = {
        "old_log_prob": np.log(old) + 0 * log_w,
        "kl": (-(old * log_w).sum(-1, keepdims=True)).clip(0) + 0 * log_w,
    }
    known = {**TYPICAL, "reference_log_ratio": log_w, "reward": advantage, **context, **true}
    return Context(**{name: known[name] for name in shape.needs})


def multiplier(
    shape: Shape, context: Mapping[str, float], log_w: Any, advantage: Any, old: Any
) -> Any:
    """M of a state's actions, `[..., actions]`; a closed-form KL pulls as the sampled k3 does."""
    full = np.broadcast_to(advantage, log_w.shape)
    about = facts(shape, context, log_w, full, old)
    m = np.asarray(shape.multiplier(log_w, full, about), dtype=float)
    weight = shape.kl_weight(log_w, full, about)
    if weight is None:
        return m
    return m + (old * weight).sum(axis=-1, keepdims=True) * (1 - np.exp(log_w))
