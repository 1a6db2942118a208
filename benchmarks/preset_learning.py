"""Does `--preset sb3` learn what Stable-Baselines3 learns? Both on three tasks, compared by seeds.

    python benchmarks/preset_learning.py [--task TASK...] [--steps 300000] [--max-seeds 20]

Seeds are added on both sides as `klip compare` adds them, until its intervals say that the preset
is better, worse, or equivalent within the margin, of all tasks together and of each. Stable-
Baselines3 trains in one pinned process a core. What is done stays in --out, and the same command
goes on from there. MuJoCo tasks normalise observations and rewards, on both sides (VecNormalize).
Writes benchmarks/results/preset_learning.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

import klip
from klip.runs import final_return
from klip.studies.answering import Ending, Pair, Readings, look, outcome
from klip.studies.reading import columns, read_one
from klip.studies.sequential import LEVEL, looks
from klip.studies.study import area_per_step

RESULT = Path(__file__).parent / "results" / "preset_learning.json"
TASKS = ("CartPole-v1", "Hopper-v4", "HalfCheetah-v4")
UNNORMALISED = ("CartPole-v1", "LunarLander-v3", "Pendulum-v1")
MARGIN = 0.10
OURS, THEIRS = "preset sb3", "Stable-Baselines3"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", nargs="*", default=list(TASKS))
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--max-seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("preset-learning"))
    parser.add_argument("--one", nargs=2, metavar=("TASK", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        task, seed = options.one
        train_theirs(task, int(seed), options.steps, options.out)
        return 0
    pair = Pair(OURS, THEIRS, "final", 1 - LEVEL)
    seen: list[Readings] = []
    for seeds in looks(options.max_seeds):
        sides: list[dict[str, list[Ending]]] = [
            {task: theirs(task, seeds, options.steps, options.out) for task in options.task},
            {task: ours(task, seeds, options.steps, options.out) for task in options.task},
        ]
        seen.append(look(sides[0], sides[1], MARGIN, pair.alpha))
        last = seen[-1].pooled["final"]
        ends = "-" if last.low is None else f"{last.low:.4g} to {last.high:.4g}"
        print(f"{seeds} seeds: {last.difference:.4g} ({ends}), {last.answer}", flush=True)
        if last.answer != "open":
            break
    found = Pair(OURS, THEIRS, "final", pair.alpha, tuple(seen))
    whole = {"steps": options.steps, "margin": MARGIN, **found.fields}
    RESULT.write_text(json.dumps(whole, indent=1, default=str) + "\n")
    print(f"{OURS} against {THEIRS}: {found.answer}; {RESULT}")
    return 0 if found.answer in ("equivalent", "open") else 1


def settings(task: str) -> dict[str, Any]:
    """What differs from the preset."""
    wanted = task not in UNNORMALISED
    return {"normalise_observations": wanted, "normalise_rewards": wanted}


def ours(task: str, seeds: int, steps: int, out: Path) -> list[Ending]:
    """Train what is missing of the first seeds; how each ended."""
    results = klip.train(
        task, seeds=seeds, preset="sb3", steps=steps, out=out / "klip", **settings(task)
    )
    return [outcome(read_one(result.path)) for result in results]


def theirs(task: str, seeds: int, steps: int, out: Path) -> list[Ending]:
    """The same of theirs."""
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)

    def one(seed: int) -> Ending:
        path = place(task, seed, steps, out)
        if not path.exists():
            core = cores.get()
            command = [sys.executable, __file__, "--one", task, str(seed)]
            command += ["--steps", str(steps), "--out", str(out)]
            try:
                subprocess.run(["taskset", "-c", str(core), *command], check=True)
            finally:
                cores.put(core)
        return ending(json.loads(path.read_text()))

    with ThreadPoolExecutor(cores.qsize()) as pool:
        return list(pool.map(one, range(seeds)))


def place(task: str, seed: int, steps: int, out: Path) -> Path:
    return out / "sb3" / f"{task}-{steps}-{seed}.json"


def ending(rows: Sequence[dict[str, Any]]) -> Ending:
    """What a comparison needs to know of their run."""
    table = columns(rows)
    returns = table["return_mean"]
    known = returns[~np.isnan(returns)]
    digest = hashlib.sha256(returns.tobytes()).hexdigest()
    final, area = final_return(rows), area_per_step(table["step"], returns)
    return Ending(final, area, float(known[0]), digest)


def train_theirs(task: str, seed: int, steps: int, out: Path) -> None:
    """One run of theirs, as rows of mean returns of the episodes that ended in each rollout."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize

    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []

    class Watch(BaseCallback):
        ended: list[float] = []  # noqa: RUF012

        def _on_step(self) -> bool:
            self.ended += [i["episode"]["r"] for i in self.locals["infos"] if "episode" in i]
            return True

        def _on_rollout_end(self) -> None:
            mean = float(np.mean(self.ended)) if self.ended else None
            rows.append({"step": self.num_timesteps, "return_mean": mean})
            self.ended = []

    env: VecEnv = make_vec_env(task, n_envs=1, seed=seed)
    if settings(task)["normalise_observations"]:
        env = VecNormalize(env, gamma=0.99)
    agent = PPO("MlpPolicy", env, seed=seed, device="cpu")
    whole = steps // agent.n_steps * agent.n_steps  # iterations that are not cut
    agent.learn(whole, callback=Watch())
    path = place(task, seed, steps, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(rows))
    aside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
