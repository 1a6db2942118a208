"""Every other Gymnasium environment as lanes: a loop over Gymnasium's own copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from klip.tasks.clock import Clock
from klip.tasks.lanes import (
    ALL,
    Action,
    Bools,
    Box,
    Discrete,
    EnvironmentFailed,
    EpisodeSeed,
    Floats,
    Ints,
    State,
    Step,
    TaskError,
    TaskSpec,
    check_action,
    read_only,
    with_rows,
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
        self._dtype = np.dtype(space.dtype)
        self._start: Any = getattr(space, "start", None)  # the number of the first choice
        self._shape = _action_shape(spec.action)
        self._clock = Clock(task, lanes, episode_seed, None)
        self._taken: list[list[NDArray[Any]]] = [[] for _ in range(lanes)]  # in the open episode
        self._observation: Floats = np.zeros((lanes, self.observation_size))

    @property
    def failed(self) -> dict[int, str]:
        return self._clock.failed

    def reset(self) -> Floats:
        self._clock.begin()
        observation = np.zeros((self.lanes, self.observation_size))
        self._begin(range(self.lanes), observation)
        self._observation = read_only(observation)
        return observation

    def step(self, action: NDArray[Any]) -> Step:
        check_action(self.task, action, (self.lanes, *self._shape))
        actions = np.array(action, dtype=self._dtype)
        final = self._observation.copy()
        reward = np.zeros(self.lanes)
        terminated: Bools = np.zeros(self.lanes, np.bool_)
        truncated: Bools = np.zeros(self.lanes, np.bool_)
        for lane in range(self.lanes):
            if lane in self.failed:
                continue
            try:
                final[lane], reward[lane], terminated[lane], truncated[lane] = self._one(
                    lane, actions[lane]
                )
            except EnvironmentFailed as error:
                self._clock.stop(lane, str(error))
        self._clock.tick()
        observation = final
        ended = self._clock.advance(terminated | truncated)
        if len(ended):
            observation = final.copy()
            self._begin(ended.tolist(), observation)
        self._observation = read_only(observation)
        return Step(observation, reward, terminated, truncated, read_only(final))

    def state(self, where: slice = ALL) -> dict[str, NDArray[Any]]:
        taken = self._taken[where]
        longest = max(map(len, taken), default=0)
        actions = np.zeros((len(taken), longest, *self._shape), self._dtype)
        for row, steps in zip(actions, taken, strict=True):
            if steps:
                row[: len(steps)] = steps
        return self._clock.state(where) | {
            "actions": actions,  # [n, T, ...] of the open episodes, zeros where one is shorter
            "observation": self._observation[where].copy(),
        }

    def restore(self, where: slice, state: State) -> Floats:
        saved = self._clock.check(where, state)
        elapsed = saved.elapsed
        longest = int(elapsed.max(initial=0))
        actions = saved.array("actions", self._dtype, longest, *self._shape)
        observation = saved.array("observation", np.float64, self.observation_size)
        self._clock.restore(where, saved)
        self._observation = with_rows(self._observation, where, observation)
        block = range(self.lanes)[where]
        try:
            for row, lane in enumerate(block):
                self._replay(lane, actions[row, : elapsed[row]], observation[row])
        except TaskError as error:
            for lane in block:  # some may be there, and some not: together they are no run
                self._clock.stop(lane, str(error))
            raise
        return read_only(observation.copy())

    def keep(self, chosen: Sequence[int]) -> None:
        self._clock.keep(chosen)
        for lane, env in enumerate(self._envs):
            if lane not in chosen:
                _close(env)
        self.lanes = len(chosen)
        self._envs = [self._envs[lane] for lane in chosen]
        self._taken = [self._taken[lane] for lane in chosen]
        self._observation = read_only(self._observation[list(chosen)])

    @property
    def warnings(self) -> Ints:
        return np.zeros(self.lanes, np.int64)

    def close(self) -> None:
        for env in self._envs:
            _close(env)

    def _begin(self, lanes: Iterable[int], observation: Floats) -> None:
        """Reset some lanes, and write their first observations into [N, D]."""
        for lane in lanes:
            try:
                observation[lane] = self._reset(lane)
            except EnvironmentFailed as error:
                self._clock.stop(lane, str(error))

    def _reset(self, lane: int) -> Floats:
        """Reset one lane by the seed of its present episode; its first observation, [D]."""
        self._taken[lane] = []
        with self._blame(lane, "resetting"):
            if self.task in _KEEPS_ITS_WORLD:
                self._envs[lane].close()
                self._envs[lane] = make_environment(self.task)
            observation, _ = self._envs[lane].reset(seed=self._clock.seed(lane))
            return self._checked(observation)

    def _one(self, lane: int, action: Any) -> tuple[Floats, float, bool, bool]:
        """Step one lane; its observation [D], reward, and both ways to end."""
        with self._blame(lane, "stepping"):
            # the environment gets a copy, so that it cannot change what is kept for a replay
            choice = action.copy() if self._start is None else action + self._start
            observation, reward, terminated, truncated, _ = self._envs[lane].step(choice)
            result = self._checked(observation), float(reward), bool(terminated), bool(truncated)
        self._taken[lane].append(action.copy())  # alone: not the rows of all lanes
        return result

    def _replay(self, lane: int, actions: NDArray[Any], expected: Floats) -> None:
        """Bring one lane to where its open episode was; raises if its actions lead elsewhere."""
        observation, led = self._reset(lane), ""
        for count, action in enumerate(actions, 1):
            observation, _, terminated, truncated = self._one(lane, action)
            if terminated or truncated:
                led = f"its end at action {count}, and it was open when it was saved"
                break
        if not led and observation.tobytes() != expected.tobytes():
            with np.errstate(all="ignore"):
                gap = np.abs(observation - expected).max()
            led = f"another observation (by {gap:.3g}) than the one saved"
        if led:
            raise TaskError(
                f"{self.task} is not deterministic: the seed and the {len(actions)} actions of "
                f"lane {lane}'s open episode led to {led}; let its reset(seed) set everything "
                "anew, or start this run from the beginning"
            )

    def _checked(self, observation: Any) -> Floats:
        row = np.asarray(observation, np.float64)
        if row.shape != (self.observation_size,):
            raise ValueError(
                f"an observation of shape {row.shape}, and its space says "
                f"({self.observation_size},)"
            )
        return row

    @contextmanager
    def _blame(self, lane: int, doing: str) -> Iterator[None]:
        """Turn what an environment raises into an error that says in which lane it was raised."""
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise EnvironmentFailed(self.task, lane, doing, reason) from error


def _close(env: Environment) -> None:
    """Close an environment; one that raises on its way out must not keep the others from theirs."""
    with suppress(Exception):
        env.close()


def _action_shape(action: Action) -> tuple[int, ...]:
    """The shape of one lane's action."""
    if isinstance(action, Box):
        return (len(action.low),)
    return () if isinstance(action, Discrete) else (len(action.n),)
