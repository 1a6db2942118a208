"""Environments as lanes: many independent copies of one task, stepped together.

Every lane gives, bit for bit, what Gymnasium's own environment gives under the same seeds and
actions. Knows shapes, which say how code that the user named is found, and engine, which starts
processes; the trainer, the policies and the commands may import it.
"""

from klip.tasks.lanes import (
    Box,
    Discrete,
    EnvironmentFailed,
    EpisodeSeed,
    Lanes,
    MultiDiscrete,
    Step,
    TaskError,
    TaskSpec,
)
from klip.tasks.make import describe, make_lanes

__all__ = [
    "Box",
    "Discrete",
    "EnvironmentFailed",
    "EpisodeSeed",
    "Lanes",
    "MultiDiscrete",
    "Step",
    "TaskError",
    "TaskSpec",
    "describe",
    "make_lanes",
]
