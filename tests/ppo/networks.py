"""Networks for every kind of action, with weights that are not the initial ones."""

import numpy as np
import pytest

from klip.ppo import acting
from klip.tasks import Box, Discrete, MultiDiscrete

SPACES = {
    "box": Box(-np.ones(3, np.float32), np.ones(3, np.float32)),
    "discrete": Discrete(4),
    "multi": MultiDiscrete((3, 2)),
}
every_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())


def make(space, seed=0):
    layout = acting.layout_of(5, space, (16, 8))
    rng = np.random.default_rng(seed)
    vector = acting.initial(layout, seed)
    return layout, vector + rng.normal(0, 0.3, vector.shape).astype(np.float32), rng
