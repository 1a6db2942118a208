"""Every other Gymnasium environment as lanes: a loop over Gymnasium's own copies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from klip.tasks.lanes import (
    Bools,
    Box,
    Clock,
    Discrete,
    EnvironmentFailed,
    EpisodeSeed,
    Floats,
    MultiDiscrete,
    State,
    Step,
    TaskError,
    TaskSpec,
    check_action,
    check_state,
    read_only,
)
from klip.tasks.lookup import make_environment
from klip.tasks.spaces import action_of, observation_size_of

Environment = gymnasium.Env[Any, Any]

_KEEPS_ITS_WORLD = frozenset({"BipedalWalker-v3", "BipedalWalkerHardcore-v3"})
"""Environments whose seeded reset still depends on the episodes before it.

They keep one Box2D world, so the same seed and actions give other last bits in a used copy than
in a new one. Each of their episodes gets a new copy: an episode is then a function of its seed
and actions, without which no run could be resumed exactly.
"""


def describe_environment(task: str) -> TaskSpec:
    """The sizes of any Gymnasium environment, from a copy made for the purpose."""
    env = make_environment(task)
    try:
        return _spec(task, env)
    finally:
        env.close()


def _spec(task: str, env: Environment) -> TaskSpec:
    size = observation_size_of(task, env.observation_space)
    limit = env.spec.max_episode_steps if env.spec is not None else None
    return TaskSpec(task, size, action_of(task, env.action_space), limit)


class GymnasiumLanes:
    """`lanes` environments stepped one after the other; see `Lanes`.

    An environment cannot be asked for its state. What is saved instead is each open episode's
    actions: resetting with the same seed and repeating them leads back to the same place.
    """

    def __init__(self, task: str, lanes: int, episode_seed: EpisodeSeed) -> None:
        first = make_environment(task)
        spec = _spec(task, first)
        self.task, self.lanes = task, lanes
        self.observation_size, self.action = spec.observation_size, spec.action
        self._envs = [first, *(make_environment(task) for _ in range(lanes - 1))]
        space = first.action_space
        self._dtype = space.dtype
        self._start: Any = getattr(space, "start", None)  # the number of the first choice
        self._shape = _action_shape(spec.action, lanes)
        self._clock = Clock(lanes, episode_seed, None)
        self._history: deque[NDArray[Any]] = deque()  # [N, ...] of each step still needed
        self._observation: Floats = np.zeros((lanes, self.observation_size))

    def reset(self) -> Floats:
        self._clock.begin()
        self._history.clear()
        observation = np.empty((self.lanes, self.observation_size))
        for lane in range(self.lanes):
            observation[lane] = self._begin(lane)
        self._observation = read_only(observation)
        return observation

    def step(self, action: NDArray[Any]) -> Step:
        check_action(self.task, action, self._shape)
        actions = np.array(action, dtype=self._dtype)
        final = np.empty((self.lanes, self.observation_size))
        reward = np.empty(self.lanes)
        terminated: Bools = np.empty(self.lanes, np.bool_)
        truncated: Bools = np.empty(self.lanes, np.bool_)
        for lane in range(self.lanes):
            final[lane], reward[lane], terminated[lane], truncated[lane] = self._one(
                lane, actions[lane]
            )
        self._clock.tick()
        self._history.append(actions)
        observation = final
        if np.count_nonzero(ended := terminated | truncated):
            lanes = np.flatnonzero(ended)
            self._clock.advance(lanes)
            observation = final.copy()
            for lane in lanes.tolist():
                observation[lane] = self._begin(lane)
            longest = int(self._clock.elapsed.max())
            while len(self._history) > longest:
                self._history.popleft()
        self._observation = read_only(observation)
        return Step(observation, reward, terminated, truncated, read_only(final))

    def state(self) -> dict[str, NDArray[Any]]:
        steps = [np.empty((0, *self._shape), self._dtype), *(a[None] for a in self._history)]
        return self._clock.state() | {
            "actions": np.concatenate(steps),  # [T, N, ...] of the longest open episode
            "observation": self._observation.copy(),
        }

    def restore(self, state: State) -> Floats:
        actions = state.get("actions", np.empty(0))
        like = self.state() | {"actions": np.empty((len(actions), *self._shape))}
        check_state(self.task, state, like)
        self._clock.restore(state)
        self._history = deque(np.array(step, self._dtype) for step in actions)
        observation = np.empty((self.lanes, self.observation_size))
        for lane in range(self.lanes):
            observation[lane] = self._replay(lane, actions)
            if observation[lane].tobytes() != state["observation"][lane].tobytes():
                gap = np.abs(observation[lane] - state["observation"][lane]).max()
                raise TaskError(
                    f"{self.task} is not deterministic: the seed and the "
                    f"{self._clock.elapsed[lane]} actions of lane {lane}'s open episode led to "
                    f"another observation (by {gap:.3g}) than the one saved; let its reset(seed) "
                    "set everything anew, or start this run from the beginning"
                )
        self._observation = read_only(observation)
        return observation

    @property
    def warnings(self) -> int:
        return 0

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _begin(self, lane: int) -> Floats:
        """Reset one lane by the seed of its present episode; its first observation, [D]."""
        with self._blame(lane, "resetting"):
            if self.task in _KEEPS_ITS_WORLD:
                self._envs[lane].close()
                self._envs[lane] = make_environment(self.task)
            observation, _ = self._envs[lane].reset(seed=self._clock.seed(lane))
            return self._checked(observation)

    def _one(self, lane: int, action: Any) -> tuple[Floats, float, bool, bool]:
        """Step one lane."""
        with self._blame(lane, "stepping"):
            # the environment gets a copy, so that it cannot change what is kept for a replay
            choice = action.copy() if self._start is None else action + self._start
            observation, reward, terminated, truncated, _ = self._envs[lane].step(choice)
            return self._checked(observation), float(reward), bool(terminated), bool(truncated)

    def _replay(self, lane: int, actions: NDArray[Any]) -> Floats:
        """Bring one lane to where its open episode was; the observation there, [D]."""
        observation = self._begin(lane)
        steps = int(self._clock.elapsed[lane])
        for action in actions[len(actions) - steps :, lane]:
            observation, *_ = self._one(lane, action)
        return observation

    def _checked(self, observation: Any) -> Floats:
        seen = np.asarray(observation, np.float64)
        if seen.shape != (self.observation_size,):
            raise ValueError(
                f"an observation of shape {seen.shape}, and its space says "
                f"({self.observation_size},)"
            )
        return seen

    @contextmanager
    def _blame(self, lane: int, doing: str) -> Iterator[None]:
        """Say in which lane an environment raised, and what."""
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise EnvironmentFailed(self.task, lane, doing, reason) from error


def _action_shape(action: Box | Discrete | MultiDiscrete, lanes: int) -> tuple[int, ...]:
    if isinstance(action, Box):
        return (lanes, len(action.low))
    return (lanes,) if isinstance(action, Discrete) else (lanes, len(action.n))
