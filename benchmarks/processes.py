"""How much faster does a slow environment go in processes of its own, and are its bytes the same?

    python benchmarks/processes.py [--lanes 8] [--steps 100] [--processes 0 1 2 4]

Two environments take so many milliseconds a step: one computes, as a simulator does, and one waits,
as for a simulator elsewhere. Of several turns the fastest counts, since the machine may be shared.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from klip.tasks import make_lanes


class Slow(gymnasium.Env[Any, Any]):
    """A walk whose every step takes its time."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (8,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, milliseconds: float = 1.0, waits: bool = False) -> None:
        self.seconds, self.waits = milliseconds / 1000, waits

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start somewhere."""
        super().reset(seed=seed)
        self.at = self.np_random.normal(size=8)
        return self.at.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Go a little, and take long over it."""
        self.at = np.sin(self.at + 0.1 * (2 * int(action) - 1))
        if self.waits:
            time.sleep(self.seconds)
        else:
            until = time.thread_time() + self.seconds  # of this core, whoever else uses it
            while time.thread_time() < until:
                pass
        return self.at.copy(), float(self.at.sum()), False, False, {}


def measured(given: dict[str, Any], lanes: int, steps: int, processes: int) -> tuple[float, str]:
    """Seconds for so many steps of all lanes, and a digest of all that they gave."""
    task, arguments = f"{Path(__file__).name}:Slow", {"max_episode_steps": 50, **given}
    field = make_lanes(task, lanes, lambda n, k: 1000 * n + k, arguments, processes)
    try:
        digest = hashlib.sha256(field.reset().tobytes())
        began = time.perf_counter()
        for t in range(steps):
            step = field.step((np.arange(lanes) + t) % 2)
            for array in step:
                digest.update(array.tobytes())
        return time.perf_counter() - began, digest.hexdigest()
    finally:
        field.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--milliseconds", type=float, nargs="*", default=[0.1, 1.0, 10.0])
    parser.add_argument("--processes", type=int, nargs="*", default=[0, 1, 2, 4])
    args = parser.parse_args()
    os.chdir(Path(__file__).parent)
    print(f"{args.lanes} lanes, {len(os.sched_getaffinity(0))} cores; steps of all lanes a second")
    print(f"{'a step':<20}" + "".join(f"{p or 'here':>12}" for p in args.processes))
    for waits in (False, True):
        for ms in args.milliseconds:
            arguments = {"milliseconds": ms, "waits": waits}
            rates, digests = [], set()
            for processes in args.processes:
                turns = [
                    measured(arguments, args.lanes, args.steps, processes)
                    for _ in range(args.turns)
                ]
                rates.append(args.lanes * args.steps / min(seconds for seconds, _ in turns))
                digests |= {digest for _, digest in turns}
            assert len(digests) == 1, "the bytes differ"
            name = f"{'waits' if waits else 'computes'} {ms:g} ms"
            print(f"{name:<20}" + "".join(f"{rate:>12,.0f}" for rate in rates), flush=True)
    print("the bytes were the same")


if __name__ == "__main__":
    main()
