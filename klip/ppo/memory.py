"""What a run keeps of old samples and policies, in bytes, known before it starts.

JAX is not imported here: a command says what its runs will take before any of them starts.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from klip.ppo.acting import Layout
from klip.ppo.config import Config

RECORDED: Final = ("value", "advantage", "target")
"""What is kept of plain GAE with `trace="recorded"`."""


class Kept(NamedTuple):
    """Bytes that the old samples and policies of one run take."""

    checkpoint: int
    """in each of its two checkpoints; an episode that a time limit cut adds an observation"""
    memory: int
    """between iterations: the rollouts and policies, and those of the last checkpoint"""
    batch: int
    """while it learns, which runs do one by one: all rollouts as samples, and once more in order"""


def bytes_kept(layout: Layout, c: Config) -> Kept:
    """What one run keeps of old samples and policies; nothing where every sample is fresh."""
    if c.fresh:
        return Kept(0, 0, 0)
    slot = sum(
        math.prod(shape) * np.dtype(kind).itemsize for shape, kind in sizes_kept(layout, c).values()
    )
    past = c.lag * 4 * sum(math.prod(shape) for _, shape in layout.shapes)
    checkpoint = (c.replay - 1) * slot + past
    return Kept(checkpoint, 2 * checkpoint + slot, 2 * c.replay * slot)


def sizes_kept(layout: Layout, c: Config) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of each array that is kept of a rollout, but for episodes cut off."""
    steps, envs, outputs = c.rollout, c.envs, sum(layout.heads)
    chosen = outputs if layout.gaussian else len(layout.heads)
    policy = ("mean", "log_std") if layout.gaussian else ("logits",)
    recorded = RECORDED if c.trace == "recorded" else ()
    shapes: dict[str, tuple[int, ...]] = {
        "observation": (steps, envs, layout.observation),
        "last": (envs, layout.observation),
        "action": (steps, envs, chosen),
        "reward": (steps, envs),
        "ended": (steps, envs),
        "old_log_prob": (c.batch,),
        **{f"old.{name}": (c.batch, outputs) for name in policy},
        **{f"recorded.{name}": (c.batch,) for name in recorded},
    }
    kinds: dict[str, Any] = {} if layout.gaussian else {"action": np.int64}
    return {name: (shape, kinds.get(name, np.float32)) for name, shape in shapes.items()}
