"""Which episode each lane is in, for how long, and which lanes stand still: one for all lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.utils.seeding import np_random
from numpy.typing import DTypeLike, NDArray

from klip.tasks.lanes import ALL, Bools, EpisodeSeed, Ints, State, TaskError

_NONE: Ints = np.zeros(0, np.int64)


class Clock:
    """What every kind of lanes counts and keeps, whatever it simulates.

    Args:
        task: name of the task, for messages
        lanes: how many there are
        episode_seed: (lane, episode) -> the seed of that reset
        limit: steps after which an episode is cut; None: the environment cuts its own

    """

    def __init__(self, task: str, lanes: int, episode_seed: EpisodeSeed, limit: int | None) -> None:
        self.task, self._episode_seed, self._limit = task, episode_seed, limit
        self._lane: Ints = np.arange(lanes)  # [N] the number at construction, which seeds go by
        self._cut = np.array(limit)  # NumPy takes an array twice as fast as a number
        self._pace: Ints = np.ones(lanes, np.int64)  # [N] 0 where the lane stands still
        self.episode: Ints = np.zeros(lanes, np.int64)  # [N]
        self.elapsed: Ints = np.zeros(lanes, np.int64)  # [N] steps since the episode began
        self.failed: dict[int, str] = {}  # lanes that stand still, and why
        self.tracebacks: dict[int, str] = {}  # of what raised in them, if it was Python

    def begin(self) -> None:
        """Go back to the start of every lane's episode 0."""
        self.episode[:] = 0
        self.elapsed[:] = 0
        self._pace[:] = 1
        self.failed, self.tracebacks = {}, {}

    def tick(self) -> Bools:
        """Count one step of every lane; [N] whether it was the last that the time limit allows."""
        self.elapsed += self._pace
        if self._limit is None:
            return np.zeros(len(self.elapsed), np.bool_)
        return self.elapsed >= self._cut

    def advance(self, over: Bools) -> Ints:
        """Go to the next episode where one is over, [N]; the lanes where it is."""
        if not np.count_nonzero(over):
            return _NONE
        lanes = np.flatnonzero(over)
        self.episode[lanes] += 1
        self.elapsed[lanes] = 0
        return lanes

    def stop(self, lane: int, reason: str, traceback: str = "") -> None:
        """Let a lane stand still, so that the others go on."""
        self.failed[lane] = reason
        if traceback:
            self.tracebacks[lane] = traceback
        self._pace[lane] = 0

    def going(self) -> Ints:
        """The lanes that do not stand still."""
        return np.flatnonzero(self._pace)

    def seed(self, lane: int) -> int:
        """The seed of the lane's present episode."""
        return int(self._episode_seed(int(self._lane[lane]), int(self.episode[lane])))

    def generator(self, lane: int) -> np.random.Generator:
        """Gymnasium's random numbers for a reset with the seed of the lane's present episode."""
        return np_random(self.seed(lane))[0]

    def state(self, where: slice = ALL) -> dict[str, NDArray[Any]]:
        """Both counts of some lanes, as they are now."""
        return {"episode": self.episode[where].copy(), "elapsed": self.elapsed[where].copy()}

    def check(self, where: slice, state: State) -> Saved:
        """The saved state of some lanes; raises unless it has both counts, and they can be."""
        saved = Saved(self.task, state, len(self._lane[where]))
        for key in ("episode", "elapsed"):
            saved.counts(key)
        longest = saved.elapsed.max(initial=0)
        if self._limit is not None and longest >= self._limit:
            raise TaskError(
                f"{self.task}: the saved 'elapsed' is damaged: an open episode has {longest} "
                f"steps, and the time limit is {self._limit}"
            )
        return saved

    def restore(self, where: slice, saved: Saved) -> None:
        """Take both counts from a state that was checked, and let these lanes go on."""
        self.episode[where] = saved.counts("episode")
        self.elapsed[where] = saved.elapsed
        self._pace[where] = 1
        for lane in range(len(self._lane))[where]:
            self.failed.pop(lane, None)
            self.tracebacks.pop(lane, None)

    def keep(self, chosen: Sequence[int]) -> None:
        """Go on with these lanes only; raises unless they are some of the lanes, each once.

        >>> clock = Clock("Stairs-v0", 6, lambda lane, episode: lane, limit=None)
        >>> clock.stop(5, "stuck")
        >>> clock.keep([4, 5])
        >>> clock.failed, clock.seed(0)
        ({1: 'stuck'}, 4)
        """
        rows, lanes = list(chosen), len(self._lane)
        if not rows or len(set(rows)) < len(rows) or not set(rows) <= set(range(lanes)):
            raise TaskError(
                f"{self.task}: the lanes to keep are {rows}, and must be some of the {lanes} "
                "lanes, counted from 0, each once"
            )
        self._lane, self._pace = self._lane[rows], self._pace[rows]
        self.episode, self.elapsed = self.episode[rows], self.elapsed[rows]
        self.failed, self.tracebacks = (
            {new: of[old] for new, old in enumerate(rows) if old in of}
            for of in (self.failed, self.tracebacks)
        )


class Saved:
    """The saved state of some lanes, whose arrays are checked as they are taken out."""

    def __init__(self, task: str, state: State, lanes: int) -> None:
        self._task, self._state, self.lanes = task, state, lanes

    @property
    def elapsed(self) -> Ints:
        """[n] steps since the open episodes began."""
        return self.counts("elapsed")

    def counts(self, key: str) -> Ints:
        """[n] numbers that count something, so that none is negative."""
        counts: Ints = self.array(key, np.int64)
        if counts.min(initial=0) < 0:
            raise TaskError(f"{self._task}: the saved {key!r} is damaged: it counts {counts.min()}")
        return counts

    def array(self, key: str, dtype: DTypeLike, *shape: int) -> NDArray[Any]:
        """The array [n, *shape] of a name, or a `TaskError` that says why it cannot be one."""
        task, state, whole = self._task, self._state, (self.lanes, *shape)
        if key not in state:
            raise TaskError(
                f"{task}: the saved state has no {key!r}: it is of another kind of task"
            )
        array = state[key]
        if not isinstance(array, np.ndarray) or array.dtype != np.dtype(dtype):
            kind = getattr(array, "dtype", type(array).__name__)
            raise TaskError(f"{task}: the saved {key!r} is {kind} and must be {np.dtype(dtype)}")
        if array.shape != whole:
            raise TaskError(
                f"{task}: the saved {key!r} has shape {array.shape} and must have {whole}: it was "
                "saved with another task or number of lanes"
            )
        return array
