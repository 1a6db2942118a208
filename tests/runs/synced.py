"""Runs to be synced, without training, and what TensorBoard reads of them."""

import json
from contextlib import contextmanager

import numpy as np

from klip.runs import RunFolder, config_id, folder_of
from klip.runs.sinks import scalars


def config_of(seed=0, shape="clip(eps=0.2)"):
    config = {"task": "Hopper-v4", "shape": shape, "seed": seed, "steps": 64 * 8}
    return config | {"envs": 1, "rollout": 64, "hidden": [64, 64], "anneal": True}


def row(k, lift=0.0):
    """A row as the trainer writes it: numbers, None, lists."""
    rng = np.random.default_rng(k)
    return {
        "iteration": k,
        "step": 64 * k,
        "episodes": k % 3,
        "return_mean": None if k % 3 == 0 else 10.0 * k + 1 / 3 + lift,
        "kl": 1e-3 / k,
        "inside": 0.75,
        "kill_positive": 0.1,
        "grad_norm": 0.1 + k,
        "beta": np.sort(rng.normal(size=9)).tolist(),
        "beta_kill": None if k == 1 else np.sort(rng.normal(size=9)).tolist(),
        "epoch.kill": [0.0, 0.1, None],
        "controller.beta": 1.5,
    }


def path_of(out, seed=0, shape="clip(eps=0.2)"):
    config = config_of(seed, shape)
    return folder_of(out, config["task"], config["shape"], seed, config_id(config))


@contextmanager
def training(out, upto, seed=0, lift=0.0):
    """A run that is being trained, gone on with from its checkpoint to iteration `upto`."""
    folder = RunFolder(path_of(out, seed), config_of(seed))
    for k in range(folder.checkpoint.iteration if folder.checkpoint else 0, upto):
        folder.append(row(k + 1, lift))
    yield folder
    folder.close()


def train(out, upto, status="running", seed=0, lift=0.0):
    """The folder of a run that nobody trains, with a checkpoint at iteration `upto`."""
    with training(out, upto, seed, lift) as folder:
        folder.save(upto, {"w": np.zeros(2)}, status)
    return folder.path


def rows_of(path):
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def events_of(folder):
    """Every scalar of a folder as TensorBoard reads it: tag -> [(step, value)]."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    return found, {
        tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]
    }


def expected(rows, cast=np.float32):
    found = {}
    for each in rows:
        for tag, value in scalars(each).items():
            found.setdefault(tag, []).append((each["step"], float(cast(value))))
    return found


def files_of(folder):
    found = (path for path in folder.iterdir() if "tfevents" in path.name)
    return sorted(path for path in found if path.stat().st_size)
