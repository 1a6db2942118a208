"""What every kind of lanes is: the contract between a task and whoever trains on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from klip.errors import KlipError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
State = Mapping[str, NDArray[Any]]

Arguments = Mapping[str, Any]
"""Keyword arguments of an environment."""

ALL = slice(None)
NONE: Arguments = MappingProxyType({})

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
    """One of `n` choices; lanes count them from 0, the environment itself from `start`."""

    n: int
    start: int = 0


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, the k-th one of `n[k]`; `start[k]` is the environment's first."""

    n: tuple[int, ...]
    start: tuple[int, ...] = ()
    """empty: all from 0"""


Action = Box | Discrete | MultiDiscrete


@dataclass(frozen=True)
class TaskSpec:
    """The sizes of a task, which networks and trainer must know."""

    task: str
    observation_size: int
    action: Action
    max_episode_steps: int | None  # None: the environment ends its episodes by itself


class Step(NamedTuple):
    """The result of one step of all lanes; its arrays are new at every step, and read-only."""

    observation: Floats
    """[N, D] what to act on next: where an episode ended, the first of the next episode."""
    reward: Floats
    """[N]"""
    terminated: Bools
    """[N] the task itself ended; nothing of value follows."""
    truncated: Bools
    """[N] the time limit cut the episode; a lane may be both."""
    final: Floats
    """[N, D] the observation before any reset: equal to `observation` where nothing ended.

    If nothing ended in any lane, both are one array.
    """


class Lanes(Protocol):
    """Independent copies of one task: no lane's bits depend on the others, or on their number.

    A run owns a block of neighbouring lanes, and is saved, restored, dropped or lost alone.
    """

    task: str
    lanes: int
    observation_size: int
    action: Action

    @property
    def failed(self) -> dict[int, str]:
        """Lanes whose environment raised, and what it said: one run's error must not end others.

        Such a lane stands still: its observation stays the last good one (zeros if there was
        none), it earns nothing, never ends, and its environment is not called again before
        `reset` or `restore`.
        """

    @property
    def tracebacks(self) -> dict[int, str]:
        """Python's tracebacks of what raised in lanes that failed; none where it was not Python."""

    def reset(self) -> Floats:
        """Start every lane's episode 0; returns the observations, [N, D]."""

    def step(self, action: NDArray[Any]) -> Step:
        """Step every lane, and start the next episode at once where one ended.

        `action` is [N, A] within the bounds for a Box, [N] integers for a Discrete and [N, K] for
        a MultiDiscrete. Its precision matters to the bits: Gymnasium's own actions are float32.
        """

    def state(self, where: slice = ALL) -> dict[str, NDArray[Any]]:
        """All that these lanes need to go on exactly, as arrays whose first axis is the lane.

        Its bytes depend on these lanes alone, so a run's checkpoint does not tell its neighbours.
        """

    def restore(self, where: slice, state: State) -> Floats:
        """Put these lanes where a state says, and no others; returns their observations, [n, D].

        A state that does not fit is a `TaskError`. So is one that does not lead back, or on whose
        way an environment raises (`EnvironmentFailed`): then these lanes stand still.
        """

    def keep(self, chosen: Sequence[int]) -> None:
        """Go on with these lanes only: lane `chosen[i]` becomes lane i, and keeps its seeds.

        Nothing is replayed, so an environment that is not deterministic survives it.
        """

    @property
    def warnings(self) -> Ints:
        """[N] episodes that MuJoCo marked unstable: it resets such a state without a word."""

    def close(self) -> None:
        """Let go of what the environments hold."""


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array, closed to writes: it is the caller's now, and also what a checkpoint keeps."""
    array.setflags(write=False)
    return array


def check_action(task: str, action: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise unless there is one action a lane, of the right size."""
    if action.shape != shape:
        raise TaskError(f"{task}: the actions have shape {action.shape}, and must have {shape}")


def with_rows(array: Floats, where: slice, rows: Floats) -> Floats:
    """A read-only copy of an array in which some rows are others; the old array is the caller's."""
    copy = array.copy()
    copy[where] = rows
    return read_only(copy)
