"""Environments as a user would write and register them."""

from __future__ import annotations

import itertools
import os

import gymnasium
import numpy as np
from gymnasium import spaces

FLAT = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class Corridor(gymnasium.Env):
    """A walk that ends at +-3, with a noisy reading; `start` numbers the choices from 1."""

    def __init__(self, action=None, observation=FLAT, start=(0.0, "")):
        assert isinstance(start, tuple)
        self.start = start[0]
        self.observation_space = observation
        self.action_space = spaces.Discrete(3, start=1) if action is None else action

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.start
        return self._see(), {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is no choice"
        self.at += float(np.sum(np.asarray(action, np.float64) - 2.0)) * 0.5
        if isinstance(action, np.ndarray):
            action[:] = 0  # an environment may spoil what it is given
        return self._see(), self.at, abs(self.at) >= 3, False, {}

    def _see(self):
        return np.array([self.at, self.np_random.normal()], np.float32)


UNLUCKY = 666


class Breaks(Corridor):
    """Raises on a step to the right, and in a reset by the seed `UNLUCKY`."""

    broken = False

    def reset(self, *, seed=None, options=None):
        self._break_if(seed == UNLUCKY, "the wheel is missing")
        return super().reset(seed=seed)

    def step(self, action):
        self._break_if(action == 3, "the wheel came off")
        return super().step(action)

    def _break_if(self, bad, reason):
        if self.broken:
            raise AssertionError("called again")
        self.broken = bad
        if bad:
            raise RuntimeError(reason)


class Deadly(Corridor):
    """A step to the right ends its process."""

    def step(self, action):
        if action == 3:
            os._exit(9)
        return super().step(action)


class Chatty(Corridor):
    """Prints what nobody asked for."""

    def step(self, action):
        print("hello")
        return super().step(action)


class Forgetful(Corridor):
    """Its resets are not a function of the seed alone."""

    resets = itertools.count()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 1e-3 * next(self.resets)
        return self._see(), {}


class Liar(Corridor):
    """Observes something other than its space says."""

    def _see(self):
        return np.zeros(3, np.float32)


OBSERVATIONS = {
    "Dict": spaces.Dict({"a": FLAT}),
    "Tuple": spaces.Tuple((FLAT, FLAT)),
    "Image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "Matrix": spaces.Box(0, 1, (2, 2), np.float32),
    "Number": spaces.Discrete(16),
    "Growing": spaces.Sequence(FLAT),
}
ACTIONS = {
    "Switches": spaces.MultiBinary(3),
    "Grid": spaces.Box(-1, 1, (2, 2), np.float32),
    "Counts": spaces.Box(0, 9, (2,), np.int64),
}

gymnasium.register("Corridor-v0", Corridor, max_episode_steps=15)
gymnasium.register("Breaks-v0", Breaks, max_episode_steps=6)
gymnasium.register("Deadly-v0", Deadly)
gymnasium.register("Chatty-v0", Chatty)
gymnasium.register("Forgetful-v0", Forgetful)
gymnasium.register("Liar-v0", Liar)
gymnasium.register(
    "TwoCorridors-v0", Corridor, kwargs={"action": spaces.MultiDiscrete([4, 4], start=[1, 1])}
)
for name, space in OBSERVATIONS.items():
    gymnasium.register(f"{name}-v0", Corridor, kwargs={"observation": space})
for name, space in ACTIONS.items():
    gymnasium.register(f"{name}-v0", Corridor, kwargs={"action": space})
