"""Whether lanes give Gymnasium's bits: every fast task, many seeds, long random-action runs.

    python benchmarks/same_environment.py [--seeds 20] [--steps 2000] [--workers 2]

Prints a table and ends with status 1 if a single bit differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from os import chdir

import gymnasium
import numpy as np

from klip.tasks import Box, make_lanes
from klip.tasks.robots import ROBOTS

TASKS = ("CartPole-v1", *ROBOTS, "LunarLander-v3", "Pendulum-v1")


@dataclass(frozen=True)
class Comparison:
    task: str
    steps: int
    episodes: int
    differing: int  # numbers whose bits differ, over all that a step returns
    seconds: float


def episode_seed(lane: int, episode: int) -> int:
    return 100_000 * lane + episode


def actions_of(task: str, lanes: int, steps: int, dtype: type = np.float32) -> np.ndarray:
    """[T, N, ...] random actions: each lane has its own stream, whatever the number of lanes."""
    action = make_lanes(task, 1, episode_seed).action
    streams = [np.random.default_rng([7, lane]) for lane in range(lanes)]
    if isinstance(action, Box):
        low, high = action.low, action.high
        rows = np.stack([r.uniform(low, high, (steps, len(low))) for r in streams], axis=1)
        within: np.ndarray = np.clip(rows.astype(dtype), low.astype(dtype), high.astype(dtype))
        return within
    return np.stack([r.integers(0, action.n, steps) for r in streams], axis=1)


def differing(a: object, b: object) -> int:
    """How many float64 numbers have other bits; NaN equals only the same NaN."""
    left = np.atleast_1d(np.asarray(a, np.float64)).view(np.uint64)
    return int(np.count_nonzero(left != np.atleast_1d(np.asarray(b, np.float64)).view(np.uint64)))


def compare(
    task: str, actions: np.ndarray, seed: Callable[[int, int], int] = episode_seed
) -> Comparison:
    """Lanes against one Gymnasium environment a lane, under the same actions [T, N, ...]."""
    began = time.perf_counter()
    steps, lanes = actions.shape[:2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # v4 is called out of date at every make
        envs = [gymnasium.make(task, disable_env_checker=True) for _ in range(lanes)]
    fast = make_lanes(task, lanes, seed)
    episode = [0] * lanes
    observation = fast.reset()
    wrong = sum(
        differing(observation[i], env.reset(seed=seed(i, 0))[0]) for i, env in enumerate(envs)
    )
    for action in actions:
        step = fast.step(action)
        for i, env in enumerate(envs):
            final, reward, terminated, truncated, _ = env.step(action[i])
            observation = final
            if terminated or truncated:
                episode[i] += 1
                observation, _ = env.reset(seed=seed(i, episode[i]))
            theirs = (observation, reward, terminated, truncated, final)
            wrong += sum(
                differing(ours[i], other) for ours, other in zip(step, theirs, strict=True)
            )
    for env in envs:
        env.close()
    fast.close()
    return Comparison(task, steps * lanes, sum(episode), wrong, time.perf_counter() - began)


def compare_seeds(task: str, seeds: int, steps: int) -> Comparison:
    return compare(task, actions_of(task, seeds, steps))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    args = parser.parse_args()
    print(f"{'task':<16}{'steps':>9}{'episodes':>10}{'bits differ':>13}{'seconds':>9}")
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        chdir(scratch)  # MuJoCo logs to the working directory
        with ProcessPoolExecutor(args.workers) as pool:
            jobs = [pool.submit(compare_seeds, t, args.seeds, args.steps) for t in args.tasks]
            for job in jobs:
                r = job.result()
                failed |= r.differing > 0
                row = f"{r.task:<16}{r.steps:>9,}{r.episodes:>10,}{r.differing:>13,}"
                print(f"{row}{r.seconds:>9.0f}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
