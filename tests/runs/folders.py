"""Run folders without training: every iteration has a row and arrays that are known."""

import json

import numpy as np

from klip.runs import RunFolder, config_id, folder_of
from klip.runs.store import METRICS

ARRAYS = ("policy/w", "adam/count", "lanes/state")


def fields(seed=0, **more):
    """A config with all that a folder needs of one."""
    base = {"task": "CartPole-v1", "shape": "clip(eps=0.2)", "seed": seed, "steps": 10 * 64,
            "envs": 2, "rollout": 32, "hidden": [8]}  # fmt: skip
    return {**base, **more}


def where(out, config):
    """A run's folder."""
    return folder_of(out, config["task"], config["shape"], config["seed"], config_id(config))


def row(config, k):
    """The metrics of iteration k."""
    value = None if k % 4 == 1 else config["seed"] + k / 7
    return {"iteration": k, "step": 64 * k, "return_mean": value, "kl": k / 3e3}


def arrays(config, k):
    """The state after k iterations."""
    draw = np.random.default_rng([config["seed"], k])
    made = (draw.normal(size=(3, 4)).astype(np.float32), np.array(k), draw.integers(0, 9, (2, 0)))
    return dict(zip(ARRAYS, made, strict=True))


def go_on(folder, until, saves=(), status="running", reason=""):
    """Append rows up to iteration `until`, saving after those in `saves`, the last as `status`."""
    point = folder.checkpoint
    for k in range(point.iteration + 1 if point else 1, until + 1):
        folder.append(row(folder.config, k))
        if k in saves:
            last = k == max(saves)
            folder.save(k, arrays(folder.config, k), *((status, reason) if last else ()))


def make(out, config=None, until=5, saves=(2, 4), status="running", reason=""):
    """A run's folder as a trainer leaves it."""
    config = config or fields()
    folder = RunFolder(where(out, config), config)
    go_on(folder, until, saves, status, reason)
    folder.close()
    return folder.path


def same_arrays(found, config, k):
    """Whether arrays are those of iteration k, in every bit."""
    true = arrays(config, k)
    return set(found) == set(true) and all(
        found[n].dtype == true[n].dtype
        and found[n].shape == true[n].shape
        and found[n].tobytes() == true[n].tobytes()
        for n in true
    )


def opened(path, config=None, **options):
    return RunFolder(path, config or fields(), **options)


def text(until, config=None):
    """The metrics file up to an iteration."""
    rows = [row(config or fields(), k) for k in range(1, until + 1)]
    return "".join(json.dumps(r) + "\n" for r in rows).encode()


def check(folder, iteration, config=None):
    """It stands exactly where the truth was after so many iterations."""
    config = config or fields()
    assert folder.checkpoint.iteration == iteration
    assert same_arrays(folder.checkpoint.arrays, config, iteration)
    assert (folder.path / METRICS).read_bytes() == text(iteration, config)
    assert json.loads((folder.path / "config.json").read_text()) == config


def flip(path, place=-1):
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
