"""Gymnasium's own environments, called one by one: here, or by another process for us."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from klip.tasks.lanes import Arguments, Floats, TaskSpec
from klip.tasks.lookup import make_environment
from klip.tasks.spaces import action_of, observation_size_of

_KEEPS_ITS_WORLD = frozenset({"BipedalWalker-v3", "BipedalWalkerHardcore-v3"})
"""Environments whose seeded reset still depends on the episodes before it.

They keep one Box2D world, so the same seed and actions give other last bits in a used copy than
in a new one. Each of their episodes gets a new copy: an episode is then a function of its seed
and actions, without which no run could be resumed exactly.
"""


RAISED = (Exception, SystemExit)
"""What an environment may raise: `sys.exit()` in one must not end its neighbours."""


class Transition(NamedTuple):
    """What one step gave."""

    observation: Floats  # [D]
    reward: float
    terminated: bool
    truncated: bool


class Played(NamedTuple):
    """Where an episode is after some actions."""

    observation: Floats  # [D]
    ended: int
    """which of the actions ended it, counted from 1; 0: it is open"""


class Failure(NamedTuple):
    """What an environment raised."""

    doing: str
    reason: str
    """in a line"""
    traceback: str


class Copies(Protocol):
    """Copies of one environment, by number; none is called after it was dropped."""

    def play(
        self, episodes: Mapping[int, tuple[int, Sequence[NDArray[Any]]]]
    ) -> dict[int, Played | Failure]:
        """Reset some copies by a seed each, and take the actions that follow it."""

    def step(self, actions: Mapping[int, NDArray[Any]]) -> dict[int, Transition | Failure]:
        """Take one action in each of some copies."""

    def drop(self, numbers: Sequence[int]) -> None:
        """Close some copies."""

    def close(self) -> None:
        """Close all copies."""


class Copy:
    """One environment: what it gives is checked, and what it raises is a `Failure`."""

    def __init__(self, task: str, arguments: Arguments) -> None:
        self._task, self._arguments = task, arguments
        self.env = make_environment(task, arguments)
        limit = self.env.spec.max_episode_steps if self.env.spec is not None else None
        size = observation_size_of(task, self.env.observation_space)
        self.spec = TaskSpec(task, size, action_of(task, self.env.action_space), limit)
        space: gymnasium.Space[Any] = self.env.action_space
        self.dtype = np.dtype(space.dtype)
        self._start: Any = getattr(space, "start", None)  # the number of the first choice

    def play(self, seed: int, actions: Sequence[NDArray[Any]]) -> Played | Failure:
        """Reset by a seed, then take actions until they or the episode end."""
        try:
            if self._task in _KEEPS_ITS_WORLD:
                self.env.close()
                self.env = make_environment(self._task, self._arguments)
            observation = self._checked(self.env.reset(seed=seed)[0])
            if not np.isfinite(observation).all():
                place = int(np.flatnonzero(~np.isfinite(observation))[0])
                raise ValueError(f"observation[{place}] is {observation[place]}")
        except RAISED as error:
            return failure("resetting", error)
        for count, action in enumerate(actions, 1):
            outcome = self.step(action)
            if isinstance(outcome, Failure):
                return outcome
            observation = outcome.observation
            if outcome.terminated or outcome.truncated:
                return Played(observation, count)
        return Played(observation, 0)

    def step(self, action: NDArray[Any]) -> Transition | Failure:
        """Take one action."""
        try:
            # the environment gets a copy, so that it cannot change what is kept for a replay
            choice = action.copy() if self._start is None else action + self._start
            observation, reward, terminated, truncated, _ = self.env.step(choice)
            return Transition(
                self._checked(observation), float(reward), bool(terminated), bool(truncated)
            )
        except RAISED as error:
            return failure("stepping", error)

    def close(self) -> None:
        """Close it; one that raises on its way out must not keep the others from theirs."""
        with suppress(*RAISED):
            self.env.close()

    def _checked(self, observation: Any) -> Floats:
        row = np.asarray(observation, np.float64)
        if row.shape != (self.spec.observation_size,):
            raise ValueError(
                f"an observation of shape {row.shape}, and its space says "
                f"({self.spec.observation_size},)"
            )
        return row


class Here:
    """Copies in this process, called one after the other."""

    def __init__(self, first: Copy, task: str, arguments: Arguments, count: int) -> None:
        more = (Copy(task, arguments) for _ in range(count - 1))
        self.copies = dict(enumerate([first, *more]))

    def play(
        self, episodes: Mapping[int, tuple[int, Sequence[NDArray[Any]]]]
    ) -> dict[int, Played | Failure]:
        return {number: self.copies[number].play(*each) for number, each in episodes.items()}

    def step(self, actions: Mapping[int, NDArray[Any]]) -> dict[int, Transition | Failure]:
        return {number: self.copies[number].step(action) for number, action in actions.items()}

    def drop(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.copies.pop(number).close()

    def close(self) -> None:
        self.drop(list(self.copies))


def failure(doing: str, error: BaseException) -> Failure:
    """What is being raised, in a line and whole."""
    return Failure(doing, f"{type(error).__name__}: {error}", traceback.format_exc())
