"""Samples for any shape: log-ratios, advantages, and a context with whatever it needs."""

import numpy as np
from hypothesis import strategies as st

from klip.shapes import Context

# Where each context field lives; fields of every kind are drawn, a shape takes what it needs.
RANGES = {
    "old_log_prob": (-12.0, -0.01),
    "kl": (0.0, 0.1),
    "entropy": (0.0, 3.0),
    "position": (0.0, 40.0),
    "length": (41.0, 80.0),
    "age": (0.0, 16.0),
    "mask": (1.0, 1.0),
    "sequence": (0.0, 3.0),
    "group": (0.0, 3.0),
    "behaviour_log_ratio": (-2.0, 2.0),
    "proximal_log_ratio": (-2.0, 2.0),
    "reference_log_ratio": (-2.0, 2.0),
    "reward": (-1.0, 1.0),
    "step": (0.0, 1e6),
    "effective_size": (0.01, 1.0),
    "deviation": (0.0, 4.0),
    "second_moment": (0.0, 0.2),
}


def draw_samples(shape, rng, size, reach):
    """Float64 arrays: log-ratios within +-reach, advantages of both signs and zero, context."""
    wide = rng.uniform(-reach, reach, size)
    near = rng.normal(0.0, 0.3, size)
    log_ratio = np.where(rng.random(size) < 0.5, wide, near)
    advantage = rng.choice([-2.0, -1.0, -0.3, 0.0, 0.3, 1.0, 2.0], size) * rng.uniform(0.5, 1, size)
    given = {name: rng.uniform(*RANGES[name], size) for name in shape.needs}
    return log_ratio, advantage, given


def convert(given, to):
    """A context whose every field went through `to`."""
    return Context(**{name: to(value) for name, value in given.items()})


seeds = st.integers(0, 2**32 - 1)
