"""How long this machine takes for a simulation, beside the one on which costs were measured.

Times that are told before training rest on measured costs of a step. Another machine, or a busy
one, takes longer: so one task is stepped for a fraction of a second first.
"""

from __future__ import annotations

import functools
import time
from typing import Final

import numpy as np

from klip.tasks.lanes import Box
from klip.tasks.make import make_lanes

TASK: Final = "HalfCheetah-v4"
REFERENCE: Final = 33.0
"""Microseconds of a step of one lane, as `microseconds` measures it, where costs were measured."""
LANES, STEPS, TURNS = 8, 10, 25


@functools.cache
def pace() -> float:
    """How many times as long as on that machine a run takes here: 1, or more on a slower one.

    Where only the simulation is faster, learning need not be, and no shorter time is promised.
    """
    return max(microseconds() / REFERENCE, 1.0)


def microseconds() -> float:
    """Of a step of one lane: the median of several turns, since others may use the machine, too."""
    lanes = make_lanes(TASK, LANES, lambda lane, episode: lane)
    assert isinstance(lanes.action, Box)
    size = len(lanes.action.low)
    actions = np.random.default_rng(0).uniform(-1, 1, (TURNS, STEPS, LANES, size))
    took = []
    lanes.reset()
    for turn in actions:
        began = time.perf_counter()
        for action in turn:
            lanes.step(action)
        took.append(time.perf_counter() - began)
    lanes.close()
    return float(np.median(took)) / (STEPS * LANES) * 1e6
