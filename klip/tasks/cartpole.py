"""CartPole as lanes: Gymnasium's equations on arrays, in its order of operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klip.tasks.clock import Clock
from klip.tasks.lanes import (
    ALL,
    Action,
    Discrete,
    EpisodeSeed,
    Floats,
    Ints,
    State,
    Step,
    TaskError,
    TaskSpec,
    check_action,
    read_only,
)

_GRAVITY, _POLE, _CART, _LENGTH = 9.8, 0.1, 1.0, 0.5
_MASS, _POLE_LENGTH = _POLE + _CART, _POLE * _LENGTH
_FORCE, _SECONDS = 10.0, 0.02
_FALLEN_X, _FALLEN_ANGLE = 2.4, 12 * 2 * math.pi / 360
_LARGEST = float(np.finfo(np.float32).max)


def describe_cartpole(task: str, limit: int | None) -> TaskSpec:
    """CartPole's sizes, with the time limit that it is registered with."""
    return TaskSpec(task, 4, Discrete(2), limit)


class CartPoleLanes:
    """`lanes` poles on carts; see `Lanes`."""

    def __init__(self, task: str, lanes: int, episode_seed: EpisodeSeed, limit: int | None) -> None:
        self.task, self.lanes = task, lanes
        self.observation_size = 4
        self.action: Action = Discrete(2)
        self._clock = Clock(task, lanes, episode_seed, limit)
        self._motion: Floats = np.zeros((4, lanes))  # [4, N] x, its speed, angle, its speed
        self._fallen: Floats = np.array([[_FALLEN_X], [_FALLEN_ANGLE]])

    @property
    def failed(self) -> dict[int, str]:
        return self._clock.failed  # none: equations do not raise

    @property
    def tracebacks(self) -> dict[int, str]:
        return self._clock.tracebacks

    def reset(self) -> Floats:
        self._clock.begin()
        self._begin(np.arange(self.lanes))
        return self._observe()

    def step(self, action: NDArray[Any]) -> Step:
        check_action(self.task, action, (self.lanes,))
        if np.count_nonzero(action >> 1):
            raise TaskError(f"{self.task}: an action is 0 or 1, and these are {action}")
        self._move(np.where(action, _FORCE, -_FORCE))
        out = np.abs(self._motion[0::2]) > self._fallen
        terminated = out[0] | out[1]
        truncated = self._clock.tick()
        final = observation = self._observe()
        ended = self._clock.advance(terminated | truncated)
        if len(ended):
            self._begin(ended)
            observation = self._observe()
        return Step(observation, np.ones(self.lanes), terminated, truncated, final)

    def state(self, where: slice = ALL) -> dict[str, NDArray[Any]]:
        return self._clock.state(where) | {"motion": self._motion.T[where].copy()}

    def restore(self, where: slice, state: State) -> Floats:
        saved = self._clock.check(where, state)
        motion = saved.array("motion", np.float64, 4)
        # float32 observations could not show a faster pole
        limit = np.array([_FALLEN_X, _LARGEST, _FALLEN_ANGLE, _LARGEST])
        if not np.all(np.abs(motion) <= limit):
            raise TaskError(f"{self.task}: the saved 'motion' is damaged: no pole stands so")
        self._clock.restore(where, saved)
        self._motion[:, where] = motion.T
        return read_only(self._observe()[where])

    def keep(self, chosen: Sequence[int]) -> None:
        self._clock.keep(chosen)
        self.lanes, self._motion = len(chosen), self._motion[:, list(chosen)].copy()

    @property
    def warnings(self) -> Ints:
        return np.zeros(self.lanes, np.int64)

    def close(self) -> None:
        """Nothing to let go of."""

    def _begin(self, lanes: Ints) -> None:
        for lane in lanes:
            self._motion[:, lane] = self._clock.generator(lane).uniform(-0.05, 0.05, 4)

    def _move(self, force: Floats) -> None:
        """Take one Euler step under the forces, [N]."""
        _, x_speed, angle, angle_speed = self._motion
        cos, sin = np.cos(angle), np.sin(angle)
        push = (force + _POLE_LENGTH * np.square(angle_speed) * sin) / _MASS
        angle_force = (_GRAVITY * sin - cos * push) / (
            _LENGTH * (4.0 / 3.0 - _POLE * np.square(cos) / _MASS)
        )
        x_force = push - _POLE_LENGTH * angle_force * cos / _MASS
        # positions move with the speeds from before the step
        self._motion[0::2] += _SECONDS * self._motion[1::2]
        x_speed += _SECONDS * x_force
        angle_speed += _SECONDS * angle_force

    def _observe(self) -> Floats:
        """[N, 4], rounded to float32 as Gymnasium's observations are."""
        return read_only(self._motion.T.astype(np.float32).astype(np.float64, order="C"))
