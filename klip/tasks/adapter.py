"""Every other Gymnasium environment as lanes: Gymnasium's own copies, here or in processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klip.tasks.clock import Clock
from klip.tasks.copies import Copies, Copy, Failure, Here
from klip.tasks.lanes import (
    ALL,
    NONE,
    Action,
    Arguments,
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
from klip.tasks.processes import InProcesses


def describe_environment(task: str, arguments: Arguments = NONE) -> TaskSpec:
    """The sizes of any Gymnasium environment, from a copy made for the purpose."""
    copy = Copy(task, arguments)
    copy.close()
    return copy.spec


class GymnasiumLanes:
    """`lanes` environments, each called by itself; see `Lanes`.

    An environment cannot be asked for its state. What is saved instead is each open episode's
    actions: resetting with the same seed and repeating them leads back to the same place.
    """

    def __init__(
        self,
        task: str,
        lanes: int,
        episode_seed: EpisodeSeed,
        arguments: Arguments = NONE,
        processes: int = 0,
    ) -> None:
        first = Copy(task, arguments)
        spec, self._dtype = first.spec, first.dtype
        self.task, self.lanes = task, lanes
        self.observation_size, self.action = spec.observation_size, spec.action
        self._copies: Copies
        if processes:
            first.close()
            self._copies = InProcesses(task, arguments, lanes, processes)
        else:
            self._copies = Here(first, task, arguments, lanes)
        self._copy = list(range(lanes))  # the number of each lane's copy
        self._shape = _action_shape(spec.action)
        self._clock = Clock(task, lanes, episode_seed, None)
        self._taken: list[list[NDArray[Any]]] = [[] for _ in range(lanes)]  # in the open episode
        self._observation: Floats = np.zeros((lanes, self.observation_size))

    @property
    def failed(self) -> dict[int, str]:
        return self._clock.failed

    @property
    def tracebacks(self) -> dict[int, str]:
        return self._clock.tracebacks

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
        going = [lane for lane in range(self.lanes) if lane not in self.failed]
        outcomes = self._copies.step({self._copy[lane]: actions[lane] for lane in going})
        for lane, outcome in zip(going, outcomes.values(), strict=True):
            if isinstance(outcome, Failure):
                self._stop(lane, outcome)
                continue
            final[lane], reward[lane], terminated[lane], truncated[lane] = outcome
            self._taken[lane].append(actions[lane].copy())  # alone: not the rows of all lanes
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
        taken = [list(actions[row, : elapsed[row]]) for row in range(len(block))]
        try:
            self._replay(block, taken, observation)
        except TaskError as error:
            for lane in block:  # some may be there, and some not: together they are no run
                self._clock.stop(lane, str(error), "\n".join(getattr(error, "__notes__", ())))
            raise
        return read_only(observation.copy())

    def keep(self, chosen: Sequence[int]) -> None:
        self._clock.keep(chosen)
        self._copies.drop([self._copy[lane] for lane in range(self.lanes) if lane not in chosen])
        self.lanes = len(chosen)
        self._copy = [self._copy[lane] for lane in chosen]
        self._taken = [self._taken[lane] for lane in chosen]
        self._observation = read_only(self._observation[list(chosen)])

    @property
    def warnings(self) -> Ints:
        return np.zeros(self.lanes, np.int64)

    def close(self) -> None:
        self._copies.close()

    def _begin(self, lanes: Iterable[int], observation: Floats) -> None:
        """Reset some lanes, and write their first observations into [N, D]."""
        chosen = list(lanes)
        seeds = {self._copy[lane]: (self._clock.seed(lane), ()) for lane in chosen}
        for lane, played in zip(chosen, self._copies.play(seeds).values(), strict=True):
            self._taken[lane] = []
            if isinstance(played, Failure):
                self._stop(lane, played)
            else:
                observation[lane] = played.observation

    def _stop(self, lane: int, failure: Failure) -> None:
        error = EnvironmentFailed(self.task, lane, failure.doing, failure.reason)
        self._clock.stop(lane, str(error), failure.traceback)

    def _replay(
        self, lanes: Sequence[int], taken: Sequence[list[NDArray[Any]]], expected: Floats
    ) -> None:
        """Bring lanes to where their open episodes were; raises if actions lead elsewhere."""
        episodes = {
            self._copy[lane]: (self._clock.seed(lane), actions)
            for lane, actions in zip(lanes, taken, strict=True)
        }
        replayed = self._copies.play(episodes).values()
        for lane, actions, row, played in zip(lanes, taken, expected, replayed, strict=True):
            self._taken[lane] = actions
            if isinstance(played, Failure):
                error = EnvironmentFailed(self.task, lane, played.doing, played.reason)
                error.add_note(played.traceback)
                raise error
            led = ""
            if played.ended:
                led = f"its end at action {played.ended}, and it was open when it was saved"
            elif played.observation.tobytes() != row.tobytes():
                with np.errstate(all="ignore"):
                    gap = np.abs(played.observation - row).max()
                led = f"another observation (by {gap:.3g}) than the one saved"
            if led:
                raise TaskError(
                    f"{self.task} is not deterministic: the seed and the {len(actions)} actions of "
                    f"lane {lane}'s open episode led to {led}; let its reset(seed) set everything "
                    "anew, or start this run from the beginning"
                )


def _action_shape(action: Action) -> tuple[int, ...]:
    """The shape of one lane's action."""
    if isinstance(action, Box):
        return (len(action.low),)
    return () if isinstance(action, Discrete) else (len(action.n),)
