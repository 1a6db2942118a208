"""What do old samples cost? Time of a lag and of a replay, memory of a replay, size of checkpoints.

    python benchmarks/stale.py [--turns 15]

Time: cohorts take turns on one core, an iteration each, and the processor's time counts. A ratio
is the median over turns of the ratio within a turn, so that a machine that is slow for a while is
slow for both sides. The step size is too small to change a parameter: all policies stay the same,
and both sides meet the same episodes, which is checked. (One that learns later falls more often,
and its episodes cost more: 5 % on Hopper.) A lag is held to the same runs without one. A replay is
held to fresh runs with as many gradient steps: with equal ones to the same runs, with growing ones
to runs with as many times more epochs. Memory: a process of its own trains 20 Humanoid runs with a
replay of 4 until the replay is full, checkpoints included, and says the most that it held. Writes
benchmarks/results/stale.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from klip.engine.crew import ENVIRONMENT

os.environ.update(ENVIRONMENT)

from klip.engine.advance import Keeping, advance
from klip.ppo.cohort import Cohort
from klip.ppo.config import config
from klip.ppo.job import old_samples
from klip.runs import read_run

RESULT = Path(__file__).parent / "results" / "stale.json"
LAG_LIMIT, REPLAY_LIMIT, MEMORY_LIMIT = 1.03, 1.10, 1.5e9
EPOCHS = 10
STILL = 1e-30
"""A step size that changes no parameter."""


def pairs(lag: int, replay: int) -> dict[str, tuple[dict[str, Any], dict[str, Any], float]]:
    """What is compared: fields with old samples, fields without, and the most that it may cost."""
    grow = {"replay": replay, "gradient_steps": "grow"}
    return {
        f"lag {lag}": ({"lag": lag}, {}, LAG_LIMIT),
        f"replay {replay}, equal steps": ({"replay": replay}, {}, REPLAY_LIMIT),
        f"replay {replay}, growing steps": (grow, {"epochs": replay * EPOCHS}, REPLAY_LIMIT),
    }


def times(task: str, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Processor seconds of an iteration, in turns, once all is compiled and the replay is full."""
    found = pairs(given.lag, given.replay)
    every = {json.dumps(f): f for old, fresh, _ in found.values() for f in (old, fresh)}
    cohorts = {key: _cohort(task, fields, given) for key, fields in every.items()}
    seconds: dict[str, list[float]] = {key: [] for key in cohorts}
    warm = max(given.replay, given.lag) + 1
    for turn in range(warm + given.turns):
        for key, cohort in cohorts.items():
            began = time.process_time()
            if None in cohort.iterate():
                raise RuntimeError(f"a run of {task} {key} ended")
            if turn >= warm:
                seconds[key].append(time.process_time() - began)
    first, *others = (cohort.observation for cohort in cohorts.values())
    if not all(np.array_equal(first, other) for other in others):
        raise RuntimeError(f"the runs of {task} did not meet the same episodes")
    rows = {}
    for name, (old, fresh, limit) in found.items():
        mine, other = seconds[json.dumps(old)], seconds[json.dumps(fresh)]
        ratios = [a / b for a, b in zip(mine, other, strict=True)]
        rows[name] = {
            "seconds": statistics.median(mine), "fresh": statistics.median(other),
            "ratio": statistics.median(ratios), "limit": limit,
        }  # fmt: skip
    return rows


def _cohort(task: str, fields: dict[str, Any], given: argparse.Namespace) -> Cohort:
    common = {"rollout": given.rollout, "epochs": EPOCHS, "lr": STILL}
    steps = 1000 * given.rollout * config(task).envs
    return Cohort([
        config(task, seed=seed, steps=steps, **common | fields) for seed in range(given.runs)
    ])  # fmt: skip


def memory(given: argparse.Namespace) -> dict[str, float]:
    """The most that a process held which trained with a full replay, in bytes; and as was said."""
    command = [sys.executable, __file__, "--memory", "--runs", str(given.runs)]
    command += ["--rollout", str(given.rollout), "--replay", str(given.replay)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found


def hold(given: argparse.Namespace) -> dict[str, float]:
    """Train on Humanoid until the replay is full and a checkpoint of it is written."""
    steps = (given.replay + 2) * given.rollout
    fields = {"rollout": given.rollout, "steps": steps, "replay": given.replay}
    configs = [config("Humanoid-v4", seed=seed, **fields) for seed in range(given.runs)]
    said, sizes = old_samples(configs), [0]
    with tempfile.TemporaryDirectory() as folder:
        keeping = Keeping(Path(folder), every=0)
        paths = [keeping.path(c) for c in configs]

        def tell(news: object) -> None:
            saved = [path / "checkpoint.safetensors" for path in paths[:1]]
            sizes.extend(path.stat().st_size for path in saved if path.exists())

        advance(configs, keeping, tell)
        for path in paths:
            if (status := read_run(path).status) != "done":
                raise RuntimeError(f"a run is {status}")
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return {"peak": peak, "old samples, said": said.memory, "largest checkpoint": max(sizes),
            "old samples in it, said": said.checkpoint}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", nargs="*", default=["CartPole-v1", "Hopper-v4", "HalfCheetah-v4"])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rollout", type=int, default=2048)
    parser.add_argument("--lag", type=int, default=4)
    parser.add_argument("--replay", type=int, default=4)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULT)
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if given.memory:
        print(json.dumps(hold(given)))
        return 0
    results: dict[str, Any] = {"time": {}}
    for task in given.task:
        results["time"][task] = times(task, given)
        for name, row in results["time"][task].items():
            told = f"{row['ratio']:.3f} of fresh runs, at most {row['limit']}"
            print(f"{task}, {name}: {told}", flush=True)
    results["memory"] = memory(given)
    print(
        "Humanoid-v4: " + ", ".join(f"{k} {v / 1e6:,.0f} MB" for k, v in results["memory"].items())
    )
    given.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    slow = [
        r for rows in results["time"].values() for r in rows.values() if r["ratio"] > r["limit"]
    ]
    fits = results["memory"]["peak"] < MEMORY_LIMIT
    print("all within their limits" if fits and not slow else "NOT within the limits")
    return 0 if fits and not slow else 1


if __name__ == "__main__":
    sys.exit(main())
