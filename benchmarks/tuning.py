"""Trials an hour: `klip tune` against Optuna that drives Stable-Baselines3, one process a core.

    python benchmarks/tuning.py [--task HalfCheetah-v4] [--steps 100000] [--rounds 2] [--batch 32]

Both search lr, eps and epochs with Optuna's sampler, at the same number of steps a trial, on all
cores. They take turns in one run of this script, so that a slow moment of the machine meets both: a
batch of ours, starts of processes and compiling included, then as many trials of theirs as there
are cores, in processes that have been started before. Writes benchmarks/results/tuning.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import klip
from klip.runs.machine import this_machine

RESULT = Path(__file__).parent / "results" / "tuning.json"
OVER = ("lr=3e-5..3e-3", "eps=0.05..0.8", "epochs=3,5,10")
EPOCHS = (3, 5, 10)
TARGET = 5.0
UNNORMALISED = ("CartPole-v1", "LunarLander-v3", "Pendulum-v1")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="HalfCheetah-v4")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--serve", type=int, metavar="CORE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve, options.task, options.steps)
        return 0
    cores = sorted(os.sched_getaffinity(0))
    line = [sys.executable, __file__, "--task", options.task, "--steps", str(options.steps)]
    crew = [
        subprocess.Popen(
            [*line, "--serve", str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for core in cores
    ]
    took = {"klip": 0.0, "sb3": 0.0}
    trials = {"klip": 0, "sb3": 0}
    try:
        for process in crew:
            answer(process, None)
        study = their_study()
        with tempfile.TemporaryDirectory() as out:
            for turn in range(1, options.rounds + 1):
                began = time.perf_counter()
                klip.tune(
                    options.task, "clip", OVER, trials=turn * options.batch, batch=options.batch,
                    preset="sb3", out=out, steps=options.steps, **settings(options.task),
                )  # fmt: skip
                middle = time.perf_counter()
                their_turn(study, crew)
                took["klip"] += middle - began
                took["sb3"] += time.perf_counter() - middle
                trials = {"klip": turn * options.batch, "sb3": turn * len(crew)}
                print({name: round(rate(trials, took, name)) for name in took}, flush=True)
    finally:
        for process in crew:
            process.kill()
    hourly = {name: rate(trials, took, name) for name in took}
    factor = hourly["klip"] / hourly["sb3"]
    whole = {
        "task": options.task, "steps": options.steps, "batch": options.batch, "cores": len(cores),
        "trials": trials, "seconds": took, "trials_an_hour": hourly, "factor": factor,
        "machine": dict(this_machine(("optuna", "stable-baselines3", "torch", "jax"))),
    }  # fmt: skip
    RESULT.write_text(json.dumps(whole, indent=1, default=str) + "\n")
    print(f"{factor:.1f} times as many trials an hour (at least {TARGET:g} are wanted); {RESULT}")
    return 0 if factor >= TARGET else 1


def rate(trials: dict[str, int], took: dict[str, float], name: str) -> float:
    return 3600 * trials[name] / took[name]


def settings(task: str) -> dict[str, Any]:
    wanted = task not in UNNORMALISED
    return {"normalise_observations": wanted, "normalise_rewards": wanted}


def their_study() -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=0)
    return optuna.create_study(direction="maximize", sampler=sampler)


def their_turn(study: Any, crew: list[subprocess.Popen[str]]) -> None:
    """A trial on every core."""
    asked = []
    for _ in crew:
        trial = study.ask()
        knobs = {
            "learning_rate": trial.suggest_float("lr", 3e-5, 3e-3, log=True),
            "clip_range": trial.suggest_float("eps", 0.05, 0.8, log=True),
            "n_epochs": trial.suggest_categorical("epochs", EPOCHS),
        }
        asked.append((trial, knobs))
    with ThreadPoolExecutor(len(crew)) as pool:
        scores = pool.map(answer, crew, [knobs for _, knobs in asked])
        for (trial, _), score in zip(asked, scores, strict=True):
            study.tell(trial, score)


def answer(process: subprocess.Popen[str], knobs: dict[str, Any] | None) -> float:
    """What a process of theirs says to knobs; to None, that it is there."""
    assert process.stdin is not None
    assert process.stdout is not None
    if knobs is not None:
        process.stdin.write(json.dumps(knobs) + "\n")
        process.stdin.flush()
    text = process.stdout.readline()
    if not text:
        raise SystemExit("a process of Stable-Baselines3 ended early: see what it printed above")
    return float(text)


def serve(core: int, task: str, steps: int) -> None:
    """Train a trial for each line of knobs; say its mean return of the last tenth of episodes."""
    os.sched_setaffinity(0, {core})
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    import numpy as np
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize

    torch.set_num_threads(1)
    print(0.0, file=answers, flush=True)
    for text in sys.stdin:
        env: VecEnv = make_vec_env(task, n_envs=1, seed=1000)
        monitor = env.envs[0]  # type: ignore[attr-defined]
        if task not in UNNORMALISED:
            env = VecNormalize(env, gamma=0.99)
        agent = PPO("MlpPolicy", env, seed=1000, device="cpu", **json.loads(text))
        agent.learn(steps // agent.n_steps * agent.n_steps)
        returns = monitor.get_episode_rewards()
        last = returns[-max(len(returns) // 10, 1) :]
        print(float(np.mean(last)) if last else 0.0, file=answers, flush=True)


if __name__ == "__main__":
    sys.exit(main())
