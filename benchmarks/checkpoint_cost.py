"""What does it cost to keep runs safe? The share of training time that goes into checkpoints.

    python benchmarks/checkpoint_cost.py

Trains a cohort of 20 runs on one core at the default interval, for two intervals and a bit, and
counts the time inside the two things that only safety needs: taking each run's state before every
iteration, and writing checkpoints (encode, checksum, write, sync, rename). Writes
benchmarks/results/checkpoint_cost.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from klip.engine.crew import ENVIRONMENT

os.environ.update(ENVIRONMENT)

from klip.engine.advance import CHECKPOINT_EVERY, Keeping, advance
from klip.ppo import cohort as cohorts
from klip.ppo.config import config
from klip.runs import RunFolder

RESULT = Path(__file__).parent / "results" / "checkpoint_cost.json"
TASKS = ("CartPole-v1", "Hopper-v4", "Humanoid-v4", "LunarLander-v3")
RUNS = 20
LIMIT = 0.02


class Timed:
    """A method whose calls are counted and timed."""

    def __init__(self, owner: type, name: str) -> None:
        self.seconds, self.calls = 0.0, 0
        inner = getattr(owner, name)

        def timed(*args: object, **kwargs: object) -> object:
            began = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began
                self.calls += 1

        setattr(owner, name, timed)


def measure(task: str, intervals: float, states: Timed, saves: Timed) -> dict[str, float]:
    configs = [config(task, seed=seed) for seed in range(RUNS)]
    began: list[float] = []

    def stop() -> bool:
        return bool(began) and time.perf_counter() - began[0] > intervals * CHECKPOINT_EVERY

    def tell(news: object) -> None:
        if not began and getattr(news, "row", {}).get("return_mean", 0) != 0:
            began.append(time.perf_counter())  # compiled, and the first iteration is over
            states.seconds = states.calls = saves.seconds = saves.calls = 0

    with tempfile.TemporaryDirectory() as folder:
        advance(configs, Keeping(Path(folder)), tell, stop)
    total = time.perf_counter() - began[0]
    return {
        "seconds": round(total, 1),
        "checkpoints": saves.calls,
        "seconds in checkpoints": round(saves.seconds, 3),
        "ms a checkpoint": round(1000 * saves.seconds / max(saves.calls, 1), 2),
        "seconds in states": round(states.seconds, 3),
        "share": round((saves.seconds + states.seconds) / total, 5),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", nargs="*", default=list(TASKS))
    parser.add_argument("--intervals", type=float, default=2.2)
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    states, saves = Timed(cohorts.Cohort, "state"), Timed(RunFolder, "save")
    results = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {}
    for task in given.task:
        results[task] = measure(task, given.intervals, states, saves)
        print(task, results[task], flush=True)
        RESULT.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    worst = max(entry["share"] for entry in results.values())
    print(f"at most {worst:.2%} of training time; the limit is {LIMIT:.0%}")
    return 0 if worst < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
