"""Environments that get into trouble in one episode of one run: module:Trouble-<kind>-v0."""

import itertools

import gymnasium
import numpy as np
from gymnasium import spaces

from klip.engine.random import EpisodeSeeds

KINDS = ("none", "nan-reward", "inf-reward", "big-reward", "nan-observation", "inf-observation",
         "big-observation", "step", "reset")  # fmt: skip
BIG = 1e300
UNLUCKY = 1  # the seed of the run that meets it
EPISODE, STEP = 9, 2
MODULE = __name__
mended: list[bool] = []  # not empty: the trouble is over


class Walk(gymnasium.Env):
    """A walk to the right is paid, and ends after some steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, trouble="none"):
        self.trouble = trouble

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.unlucky = seed == EpisodeSeeds()(UNLUCKY, 1, EPISODE) and not mended
        self.at, self.steps = self.np_random.normal(), 0
        if self.unlucky and self.trouble == "reset":
            raise OSError("the simulator's licence has expired")
        return self._see(), {}

    def step(self, action):
        assert np.all(np.isfinite(action))
        self.at += float(action[0]) + 0.1 * self.np_random.normal()
        self.steps += 1
        now = self.unlucky and self.steps == STEP
        reward = self.at
        if now and self.trouble == "step":
            raise RuntimeError("the wheel came off")
        if now and self.trouble.endswith("reward"):
            reward = number(self.trouble)
        observation = self._see()
        if now and self.trouble.endswith("observation"):
            observation[1] = number(self.trouble)
        return observation, reward, abs(self.at) > 5, self.steps >= 7, {}

    def _see(self):
        return np.array([self.at, self.steps])


def number(trouble):
    return BIG if trouble.startswith("big") else float(trouble[:3])


def task(kind):
    return f"{MODULE}:Trouble-{kind}-v0"


class Forgetful(Walk):
    """Its episodes are not a function of the seed and the actions."""

    resets = itertools.count()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at += 1e-9 * next(self.resets)
        return self._see(), {}


gymnasium.register("Trouble-forgetful-v0", Forgetful)
for kind in KINDS:
    gymnasium.register(f"Trouble-{kind}-v0", Walk, kwargs={"trouble": kind})
