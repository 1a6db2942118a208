"""What every kind of lanes is: the contract between a task and whoever trains on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from klip.errors import KlipError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
State = Mapping[str, NDArray[Any]]

EpisodeSeed = Callable[[int, int], int]
"""(lane, episode, counted from 0) -> the seed of that reset. Pure, so that nothing is stored."""


class TaskError(KlipError):
    """A task that does not exist, or that Klip cannot train on; the message says what to do."""


class EnvironmentFailed(TaskError):
    """An environment raised while it was made, reset or stepped.

    `lane` is the lane it happened in, `reason` what the environment said.
    """

    def __init__(self, task: str, lane: int, doing: str, reason: str) -> None:
        super().__init__(f"{task} failed in lane {lane} while {doing}: {reason}")
        self.lane, self.reason = lane, reason


@dataclass(frozen=True, eq=False)
class Box:
    """Real actions between bounds, in the precision of the environment's own bounds.

    >>> Box(np.float32([-1]), np.float32([1])) == Box(np.float32([-1]), np.float32([1]))
    True
    """

    low: NDArray[Any]  # [A]
    high: NDArray[Any]  # [A]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self._bytes() == other._bytes()

    def __hash__(self) -> int:
        return hash(self._bytes())

    def _bytes(self) -> tuple[str, bytes, bytes]:
        return self.low.dtype.str, self.low.tobytes(), self.high.tobytes()


@dataclass(frozen=True)
class Discrete:
    """One of `n` choices, 0 to n - 1."""

    n: int


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, the k-th one of `n[k]`."""

    n: tuple[int, ...]


Action = Box | Discrete | MultiDiscrete


@dataclass(frozen=True)
class TaskSpec:
    """What a network and a trainer must know about a task."""

    task: str
    observation_size: int
    action: Action
    max_episode_steps: int | None  # None: the environment ends its episodes by itself


class Step(NamedTuple):
    """What one step of all lanes gave; the arrays are new at every step, and read-only."""

    observation: Floats
    """[N, D] what to act on next: where an episode ended, the first one of the next episode."""
    reward: Floats
    """[N]"""
    terminated: Bools
    """[N] the task itself ended; nothing of value follows."""
    truncated: Bools
    """[N] the time limit cut the episode; a lane may be both."""
    final: Floats
    """[N, D] the observation before any reset: equal to `observation` where nothing ended."""


class Lanes(Protocol):
    """Independent copies of one task: no lane's bits depend on the others, or on their number."""

    task: str
    lanes: int
    observation_size: int
    action: Action

    def reset(self) -> Floats:
        """Start every lane's episode 0; the observations, [N, D]."""

    def step(self, action: NDArray[Any]) -> Step:
        """Step every lane, and start the next episode at once where one ended.

        `action` is [N, A] within the bounds for a Box, [N] integers for a Discrete and [N, K] for
        a MultiDiscrete. Its precision matters to the bits: Gymnasium's own actions are float32.
        """

    def state(self) -> dict[str, NDArray[Any]]:
        """All that is needed to go on exactly, as plain arrays."""

    def restore(self, state: State) -> Floats:
        """Go on from a state; the observations to act on, [N, D], as they were."""

    @property
    def warnings(self) -> int:
        """How many episodes MuJoCo marked unstable: it resets such a state without a word."""

    def close(self) -> None:
        """Let go of what the environments hold."""


class Clock:
    """Which episode each lane is in and for how long: the same for every kind of lanes."""

    def __init__(self, lanes: int, episode_seed: EpisodeSeed, limit: int | None) -> None:
        self._episode_seed, self._limit = episode_seed, limit
        self.episode: Ints = np.zeros(lanes, np.int64)  # [N]
        self.elapsed: Ints = np.zeros(lanes, np.int64)  # [N] steps since the episode began

    def begin(self) -> None:
        """Go back to the start of every lane's episode 0."""
        self.episode[:] = 0
        self.elapsed[:] = 0

    def tick(self) -> Bools:
        """Count one step of every lane; whether it was the last that the time limit allows, [N]."""
        self.elapsed += 1
        if self._limit is None:
            return np.zeros(len(self.elapsed), np.bool_)
        return self.elapsed >= self._limit

    def advance(self, ended: Ints) -> None:
        """Go to the next episode in the lanes that ended."""
        self.episode[ended] += 1
        self.elapsed[ended] = 0

    def seed(self, lane: int) -> int:
        """The seed of the lane's present episode."""
        return int(self._episode_seed(int(lane), int(self.episode[lane])))

    def state(self) -> dict[str, NDArray[Any]]:
        """Both counts, as they are now."""
        return {"episode": self.episode.copy(), "elapsed": self.elapsed.copy()}

    def restore(self, state: State) -> None:
        """Take both counts from a state."""
        self.episode[:] = state["episode"]
        self.elapsed[:] = state["elapsed"]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array, closed to writes: it is the caller's now, and also what a checkpoint keeps."""
    array.flags.writeable = False
    return array


def check_action(task: str, action: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise unless there is one action a lane, of the right size."""
    if action.shape != shape:
        raise TaskError(f"{task}: the actions have shape {action.shape}, and must have {shape}")


def check_state(task: str, state: State, expected: Mapping[str, NDArray[Any]]) -> None:
    """Raise unless `state` has the entries and array shapes of `expected`."""
    for key, array in expected.items():
        if key not in state:
            raise TaskError(
                f"{task}: the saved state has no {key!r}: it is of another kind of task"
            )
        if state[key].shape != array.shape:
            raise TaskError(
                f"{task}: the saved {key!r} has shape {state[key].shape} and must have "
                f"{array.shape}: it was saved with another task or number of lanes"
            )
