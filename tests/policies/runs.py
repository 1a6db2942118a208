"""Run folders as the trainer writes them, without training."""

from __future__ import annotations

import dataclasses

import numpy as np

from klip.engine.job import kind_of
from klip.engine.random import stream
from klip.ppo.acting import Start, initial, layout_of
from klip.ppo.config import NETWORKS, Config
from klip.runs import RunFolder, config_id, folder_of
from klip.tasks import Box, Discrete, describe

SMALL = {"hidden": (8, 8), "steps": 64, "rollout": 16, "minibatch": 16}


def config_of(task, **fields):
    return dataclasses.asdict(Config(task=task, **{**SMALL, **fields}))


def action_arrays(action, start=None):
    if isinstance(action, Box):
        return {"action.low": action.low, "action.high": action.high}
    start = action.start or 0 if start is None else start
    heads = action.n if isinstance(action, Discrete) else list(action.n)
    return {
        "action.heads": np.array(heads, np.int64),
        "action.start": np.broadcast_to(np.int64(start), np.shape(heads)).copy(),
    }


def arrays_of(config, observation, action, start=None, seed=7):
    """Parameters that act differently at different observations, and statistics."""
    networks = {name: config[name] for name in NETWORKS if name in config}
    layout = layout_of(observation, action, tuple(config["hidden"]), **networks)
    vector = initial(layout, seed, Start(-0.5))
    vector += 0.2 * stream(seed, "test").standard_normal(vector.size, np.float32)
    rng = stream(seed, "statistics")
    statistics = {
        "observation.mean": rng.standard_normal(observation),
        "observation.variance": rng.uniform(0.1, 2, observation),
        "observation.count": np.array(1e4),
        "return.mean": np.array(0.0),
        "return.variance": np.array(1.0),
        "return.count": np.array(1e4),
        "adam.mu": np.zeros_like(vector),
        "adam.nu": np.zeros_like(vector),
        "adam.count": np.array(4, np.int32),
        "lanes.elapsed": np.zeros(1, np.int64),
    }
    return {**layout.split(vector), **statistics, **action_arrays(action, start)}


def write_run(folder, task, *, status="done", saves=1, arrays=None, config=None, **fields):
    """A folder below `folder`, with `saves` checkpoints; what the trainer would have left."""
    config = config or config_of(task, **fields)
    if arrays is None:
        spec = describe(task)
        arrays = arrays_of(config, spec.observation_size, spec.action)
    path = folder_of(folder, task, config["shape"], config["seed"], config_id(_plain(config)))
    run = RunFolder(path, config, libraries=kind_of("ppo").libraries)
    try:
        for k in range(1, saves + 1):
            run.append(
                {"iteration": k, "step": 16 * k, "return_mean": None if k == 1 else 10.0 * k}
            )
            run.save(k, arrays, status if k == saves else "running")
    finally:
        run.close()
    return path


def _plain(config):
    return {k: list(v) if isinstance(v, tuple) else v for k, v in config.items()}
