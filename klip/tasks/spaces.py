"""Gymnasium's spaces as the small values that Klip works with, or an error that says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from klip.tasks.lanes import Action, Box, Discrete, MultiDiscrete, TaskError, read_only

_REGISTER = "register the wrapped environment under an id of your own"


def observation_size_of(task: str, space: spaces.Space[Any]) -> int:
    """D of a flat Box observation; an error that names a wrapper for any other."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return int(space.shape[0])
    if isinstance(space, spaces.Box) and len(space.shape) == 3:
        raise TaskError(
            f"{task} observes images of shape {space.shape}, and Klip's networks take flat "
            "vectors: turn each image into features, or wrap the environment in gymnasium.wrappers."
            f"ResizeObservation and FlattenObservation, and {_REGISTER}"
        )
    if isinstance(space, spaces.Discrete):
        raise TaskError(
            f"{task} observes one of {space.n} numbers, and Klip's networks take flat vectors: "
            f"wrap it in gymnasium.wrappers.FlattenObservation (one-hot), and {_REGISTER}"
        )
    if space.is_np_flattenable:
        raise TaskError(
            f"{task} observes a {_name(space)}, and Klip's networks take flat vectors: wrap it "
            f"in gymnasium.wrappers.FlattenObservation, and {_REGISTER}"
        )
    raise TaskError(
        f"{task} observes a {_name(space)}, which has no fixed size: wrap it in "
        f"gymnasium.wrappers.TransformObservation to a flat Box, and {_REGISTER}"
    )


def action_of(task: str, space: spaces.Space[Any]) -> Action:
    """The action space as a value; an error for one that no policy here can act in."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        if np.issubdtype(space.dtype, np.floating):
            return Box(read_only(space.low.copy()), read_only(space.high.copy()))
    elif isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    elif isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        start = tuple(int(n) for n in space.start)
        return MultiDiscrete(tuple(int(n) for n in space.nvec), start)
    raise TaskError(
        f"{task} takes actions in {space}, and Klip acts in a flat Box of real numbers, a "
        "Discrete or a flat MultiDiscrete: wrap it in gymnasium.wrappers.TransformAction, "
        f"and {_REGISTER}"
    )


def _name(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Box):
        return f"Box of shape {space.shape}"
    return type(space).__name__
