"""Returns of a frozen policy: fixed episodes, played in parallel lanes.

Episode k is a function of the policy, the seed and k alone, so neither the number of lanes nor
which episodes end first can change or bias the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klip.engine.random import stream
from klip.errors import KlipError
from klip.policies.loading import Source, policy_in
from klip.policies.policy import Policy
from klip.ppo.arguments import Arguments, arguments_in, spelled
from klip.tasks import Box, Discrete, Lanes, make_lanes

MOST_LANES = 32
TaskArguments = Arguments | Sequence[str]
"""Keyword arguments of a task: a mapping, or words like `size=3`."""
TRAINING_SEEDS = 2**31
"""Environments are reset with seeds below this in training, and from here on in evaluation."""


@dataclass(frozen=True)
class Episode:
    """One episode played to its end."""

    number: int
    seed: int
    """of the environment's reset"""
    total: float
    """the return: the sum of the task's own rewards"""
    length: int
    """in steps of the environment"""
    terminated: bool
    """whether the task ended it; otherwise the time limit did"""
    unstable: bool
    """whether MuJoCo met numbers that it could not go on with, and reset the state midway"""


@dataclass(frozen=True)
class Evaluation:
    """The episodes that a policy played."""

    task: str
    seed: int
    deterministic: bool
    episodes: tuple[Episode, ...]

    def as_dict(self) -> dict[str, Any]:
        """The summary, then every episode; `std` divides by the number of episodes."""
        totals = np.array([e.total for e in self.episodes])
        lengths = np.array([e.length for e in self.episodes])
        ended = sum(e.terminated for e in self.episodes)
        return {
            "task": self.task,
            "seed": self.seed,
            "deterministic": self.deterministic,
            "mean": float(totals.mean()),
            "std": float(totals.std()),
            "min": float(totals.min()),
            "max": float(totals.max()),
            "length_mean": float(lengths.mean()),
            "length_min": int(lengths.min()),
            "length_max": int(lengths.max()),
            "terminated": ended,
            "truncated": len(self.episodes) - ended,
            "unstable": sum(e.unstable for e in self.episodes),
            "episodes": [
                {"return" if k == "total" else k: v for k, v in asdict(e).items()}
                for e in self.episodes
            ],
        }


def evaluate(
    run: Source,
    episodes: int = 20,
    seed: int = 0,
    *,
    sampled: bool = False,
    task: str | None = None,
    task_args: TaskArguments | None = None,
    trust_task: bool = False,
    lanes: int | None = None,
    longest: int = 100_000,
    progress: Callable[[int, int], None] = lambda episodes, steps: None,
    see: Callable[[NDArray[np.float64]], None] = lambda observations: None,
) -> Evaluation:
    """Play episodes 0, 1, ... of a seed, each to its end, with the policy's statistics frozen.

    >>> evaluate("examples/policy", episodes=2).as_dict()["mean"]
    500.0

    Args:
        run: a policy, or the path of a run's folder, a checkpoint file, or an exported folder
        episodes: how many; the same ones for every policy evaluated with the same seed
        seed: of the episodes; training never saw them
        sampled: sample the actions, as in training, instead of taking the likeliest
        task: another task than the policy's own, with the same sizes
        task_args: keyword arguments of the task, such as {"size": 3}; those of the policy's own
            task are what it was trained with
        trust_task: import the policy's own task where it is a `module:Id`, which runs its code
        lanes: how many episodes are played at once; the result does not depend on it
        longest: steps after which an episode of a task without a time limit is an error
        progress: is called with the episodes ended and the steps taken so far
        see: is called with all observations that are acted on, [N, D]

    Returns:
        every episode with its return, in units of the task's rewards, and their summary by
        `as_dict()`

    """
    policy = policy_in(run)
    if episodes < 1 or seed < 0:
        raise KlipError(f"episodes={episodes} must be at least 1, and seed={seed} at least 0")
    task, arguments = chosen_task(policy, task, task_args, trust_task)
    width = min(episodes, lanes or MOST_LANES)
    field = make_lanes(task, width, lambda lane, k: episode_seed(seed, lane + k * width), arguments)
    try:
        check_fit(policy, field)
        play = _Play(policy, field, episodes, seed, sampled, longest)
        steps = 0
        while play.going:
            see(play.observation)
            steps += len(play.numbers)
            play.step()
            progress(len(play.ended), steps)
    finally:
        field.close()
    ordered = sorted(play.ended, key=lambda e: e.number)
    return Evaluation(task, seed, not sampled, tuple(ordered))


class _Play:
    """Lanes with the episodes that they are in; a lane whose share is played is dropped."""

    def __init__(
        self,
        policy: Policy,
        lanes: Lanes,
        episodes: int,
        seed: int,
        sampled: bool,
        longest: int,
    ) -> None:
        self.policy, self.lanes, self.width = policy, lanes, lanes.lanes
        self.episodes, self.seed, self.longest = episodes, seed, longest
        self.sampled = sampled
        self.numbers = np.arange(self.width)  # [N] the episode that each lane is in
        self.total = np.zeros(self.width)
        self.length = np.zeros(self.width, np.int64)
        self.warned = np.zeros(self.width, np.int64)
        self.ended: list[Episode] = []
        self.rngs = [action_stream(seed, k) for k in range(self.width)]
        self.observation = lanes.reset()
        self._check()

    @property
    def going(self) -> bool:
        """Whether there is an episode that has not ended."""
        return len(self.ended) < self.episodes

    def step(self) -> None:
        """One step of every lane that still has episodes to play."""
        policy, lanes, noise = self.policy, self.lanes, None
        if self.sampled:
            noise = np.stack([policy.noise(rng) for rng in self.rngs])
        action = policy.choose(self.observation, noise)
        step = lanes.step(action if isinstance(lanes.action, (Box, Discrete)) else _wide(action))
        self.total += step.reward
        self.length += 1
        self.observation = step.observation
        over = step.terminated | step.truncated
        if over.any():
            self._episodes_over(np.flatnonzero(over), step.terminated)
        if self.going:
            self._check()

    def _episodes_over(self, over: NDArray[np.int64], terminated: NDArray[np.bool_]) -> None:
        warnings = self.lanes.warnings
        for lane in over.tolist():
            if not np.isfinite(self.total[lane]):
                raise self._trouble(lane, f"has the return {self.total[lane]}: mend the task")
            number = int(self.numbers[lane])
            episode = Episode(
                number=number,
                seed=episode_seed(self.seed, number),
                total=float(self.total[lane]),
                length=int(self.length[lane]),
                terminated=bool(terminated[lane]),
                unstable=bool(warnings[lane] > self.warned[lane]),
            )
            self.ended.append(episode)
            self.warned[lane] = warnings[lane]
            self.total[lane], self.length[lane] = 0.0, 0
            self.numbers[lane] += self.width
            self.rngs[lane] = action_stream(self.seed, int(self.numbers[lane]))
        left = np.flatnonzero(self.numbers < self.episodes)
        if 0 < len(left) < len(self.numbers):
            self.lanes.keep(left.tolist())
            self.numbers, self.observation = self.numbers[left], self.observation[left]
            self.total, self.length = self.total[left], self.length[left]
            self.warned, self.rngs = self.warned[left], [self.rngs[lane] for lane in left]

    def _check(self) -> None:
        """Raise for an episode that cannot come to a good end."""
        for lane, reason in self.lanes.failed.items():
            raise self._trouble(lane, f"failed: {reason}")
        finite = np.isfinite(self.observation).all(axis=1) & np.isfinite(self.total)
        for lane in np.flatnonzero(~finite).tolist():
            step = self.length[lane]
            raise self._trouble(
                lane, f"gave an observation or a reward that is not finite at step {step}"
            )
        for lane in np.flatnonzero(self.length >= self.longest).tolist():
            raise self._trouble(
                lane,
                f"has not ended after {self.longest} steps: give the task a time limit "
                "(max_episode_steps)",
            )

    def _trouble(self, lane: int, what: str) -> KlipError:
        number = int(self.numbers[lane])
        seed = episode_seed(self.seed, number)
        return KlipError(f"{self.lanes.task}: episode {number} (reset with seed {seed}) {what}")


def episode_seed(seed: int, number: int) -> int:
    """The seed with which an evaluation resets its environment for an episode."""
    return TRAINING_SEEDS + int(stream(seed, "eval", number).integers(TRAINING_SEEDS))


def action_stream(seed: int, number: int) -> np.random.Generator:
    """Where an episode's sampled actions take their random numbers from."""
    return stream(seed, "eval act", number)


def chosen_task(
    policy: Policy, task: str | None, task_args: TaskArguments | None, trust_task: bool
) -> tuple[str, dict[str, Any]]:
    """The task to play, and its arguments: the policy's own unless given, if it may be imported."""
    given = None if task_args is None else arguments_in(spelled(task_args))
    if task is not None:
        return task, given or {}
    if ":" in policy.task and not trust_task:
        raise KlipError(
            f"the policy's task {policy.task!r} names a module, and importing it runs its code: "
            "if you trust it, give --trust-task (trust_task=True)"
        )
    return policy.task, policy.task_arguments if given is None else given


def check_fit(policy: Policy, lanes: Lanes) -> None:
    """Raise unless the task's observations and actions are those of the policy."""
    task = lanes.task
    if lanes.observation_size != policy.observation_size:
        raise KlipError(
            f"{task} observes {lanes.observation_size} numbers, and the policy takes "
            f"{policy.observation_size}: it was trained on {policy.task}"
        )
    own, heads = policy.action, getattr(lanes.action, "n", None)
    one = isinstance(own, Discrete) and heads == (own.n,)
    if lanes.action != own and not one:
        raise KlipError(
            f"{task} takes {lanes.action}, and the policy gives {own}: it was trained on "
            f"{policy.task}"
        )


def _wide(action: NDArray[Any]) -> NDArray[Any]:
    """[N, K], also where K is 1."""
    return action.reshape(len(action), -1)
