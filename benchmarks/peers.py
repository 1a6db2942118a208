"""One peer as one process on one core: Stable-Baselines3 or SBX, a rollout each time it is asked.

    python benchmarks/peers.py {sb3,sbx} TASK [--core 0] [--seed 0]

Runs in the peers' own environment and knows nothing of Klip. Each line on its standard input asks
for one rollout and the epochs on it; each line on its standard output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

STEPS = 2048
# What both have in common with the paper. Neither normalises advantages over the whole rollout,
# and only one can clip the value loss, so both keep their own, slightly cheaper, ways there.
PROTOCOL: dict[str, Any] = {
    "n_steps": STEPS,
    "n_epochs": 10,
    "batch_size": 64,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "policy_kwargs": {"net_arch": {"pi": [64, 64], "vf": [64, 64]}},  # tanh, in both
}
UNNORMALISED = ("CartPole-v1", "LunarLander-v3")
VERSIONED = ("stable-baselines3", "sbx-rl", "torch", "jax", "gymnasium", "mujoco", "numpy")

Answer = dict[str, Any]


def serve(
    core: int, start: Callable[[], Callable[[], Answer]], hello: Callable[[], Answer]
) -> None:
    """Pin the process, build what is to be timed, say hello, then answer every line with a turn."""
    os.sched_setaffinity(0, {core})
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    turn = start()
    print(json.dumps(hello()), file=answers, flush=True)
    for _ in sys.stdin:
        print(json.dumps(turn()), file=answers, flush=True)


def start(peer: str, task: str, seed: int) -> Callable[[], Answer]:
    """Build the peer's agent; the function that trains it for one rollout."""
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize

    torch.set_num_threads(1)
    env: VecEnv = make_vec_env(task, n_envs=1, seed=seed)
    if task not in UNNORMALISED:
        env = VecNormalize(env, gamma=PROTOCOL["gamma"])
    algorithm: Any = import_module({"sb3": "stable_baselines3", "sbx": "sbx"}[peer]).PPO
    model = algorithm("MlpPolicy", env, seed=seed, device="cpu", **PROTOCOL)

    def turn() -> Answer:
        began = time.perf_counter()
        model.learn(STEPS, reset_num_timesteps=False)
        return {"steps": STEPS, "seconds": time.perf_counter() - began}

    return turn


def arguments(args: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=("sb3", "sbx"))
    parser.add_argument("task")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(args)


if __name__ == "__main__":
    given = arguments()
    serve(
        given.core,
        lambda: start(given.peer, given.task, given.seed),
        lambda: {"versions": {name: version(name) for name in VERSIONED}},
    )
