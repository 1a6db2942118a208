"""The first update of a run from given weights and a given rollout."""

import jax.numpy as jnp
import numpy as np

from klip.ppo.advantages import preparation
from klip.ppo.member import program
from klip.ppo.optimising import optimiser
from klip.ppo.replay import orders
from klip.ppo.update import Learner, epochs
from klip.shapes import numbers, parse, structure


def updated(c, layout, vector, rollout):
    """The batch, the order of its samples in each epoch, and what the epochs left behind."""
    value, (rows, there) = parse(c.shape), orders(c, 0, 1)
    names, vector = numbers(value), jnp.asarray(vector)
    batch = preparation(layout, program(c))(vector, rollout)
    sizes = np.array([c.lr, c.value_lr] if c.value_lr else c.lr, np.float32)
    outcome = epochs(layout, program(c), structure(value), tuple(names))(
        Learner(vector, optimiser(c).init(vector)), {},
        np.array(list(names.values()), np.float32), batch, rows, there, sizes,
        np.float32(0), np.float32(0),
    )  # fmt: skip
    return batch, rows, outcome
