"""Folders of runs that nobody trained: rows as the trainer writes them, made up."""

import functools
import hashlib
from dataclasses import replace

import numpy as np

from klip.ppo.config import usual_settings
from klip.runs import RunFolder, config_id, folder_of
from klip.runs.portraits import PORTRAIT
from klip.shapes import parse
from klip.theory.portrait import portrait, to_json

FORMS = ("clip(eps=0.2)", "per-sample(eps=0.2)", "clip-phi(eps=0.2)")


def config(task="CartPole-v1", shape="clip(eps=0.2)", seed=0, **more):
    """The paper's config of a task."""
    usual = usual_settings(task)
    return {**usual, "task": task, "shape": shape, "seed": seed, **more}


def rows(config, count, level=100.0):
    """As many iterations; the forms of PPO-Clip get the same, other shapes others."""
    shape = "clip" if config["shape"] in FORMS else config["shape"]
    digest = hashlib.sha256(f"{config['task']} {shape}".encode()).digest()
    draw = np.random.default_rng([config["seed"], *digest[:4]])
    batch = config["envs"] * config["rollout"]
    total = config["steps"] // batch
    offset = 5 * draw.normal() + digest[0] / 32
    for k in range(1, count + 1):
        kill, passing = draw.uniform(0, 0.2, 2)
        yield {
            "iteration": k,
            "step": k * batch,
            "episodes": 3,
            "return_mean": None if k == 2 else float(level * k / total + offset + draw.normal()),
            "kl": float(draw.uniform(0, 0.1)),
            "kill": float(kill),
            "pass": float(passing),
            "inside": float(1 - kill - passing),
            "beta": sorted(draw.normal(size=9).tolist()),
            "beta_kill": None if k == 1 else sorted(draw.normal(size=9).tolist()),
        }


def make_run(out, config, count=None, status="done", reason="", without=(), edit=None, level=100.0):
    """A run's folder as a trainer leaves it; `edit` changes its arrays before they are saved."""
    id = config_id(config)
    folder = RunFolder(folder_of(out, config["task"], config["shape"], config["seed"], id), config)
    total = config["steps"] // (config["envs"] * config["rollout"])
    for row in rows(config, total if count is None else count, level):
        folder.append({name: value for name, value in row.items() if name not in without})
    draw = np.random.default_rng(config["seed"])
    arrays = {"policy/w": draw.normal(size=(4, 3)), "adam.count": np.array(total)}
    if edit is not None:
        edit(arrays)
    folder.save(total if count is None else count, arrays, status, reason)
    folder.close()
    return folder.path


@functools.cache
def _clip():
    return portrait(parse("clip"), profiled=True)


def keep(path, config, **numbers):
    """How a shape looks, in its run's folder, as if it were that of a clip with other numbers."""
    drawn = _clip()
    name = config["shape"].partition("(")[0]
    made = replace(drawn, spelling=config["shape"], name=name, parameters=numbers, formula="mine")
    (path / PORTRAIT).write_bytes(to_json(made))
    return path


def small(**more):
    """Settings of short runs."""
    return {"steps": 20 * 64, "envs": 2, "rollout": 32, **more}


def make_study(out, tasks=("CartPole-v1",), shapes=FORMS, seeds=3, **settings):
    """All shapes on all tasks with all seeds."""
    for task in tasks:
        for shape in shapes:
            for seed in range(seeds):
                make_run(out, config(task, shape, seed, **settings))
    return out


POOLED_TASKS = ("CartPole-v1", "Hopper-v4")
POOLED_SHAPES = (*FORMS[:2], "spo(eps=0.2)")


def make_pooled(out):
    """Two tasks with three shapes and some that do not fit; one run diverged."""
    first, second = POOLED_TASKS
    make_study(out, [first], POOLED_SHAPES, 4, **small())
    make_study(out, [second], POOLED_SHAPES[:2], 3, **small())
    for seed in range(2):
        make_run(out, config(second, POOLED_SHAPES[2], seed, **small()))
    make_run(out, config(second, POOLED_SHAPES[2], 2, **small()), 5, "diverged", "not finite")
    make_run(out, config(second, POOLED_SHAPES[2], 3, **small()), 5, "running")
    make_run(out, config(first, "clip(eps=0.3)", **small()))
    make_run(out, config(first, POOLED_SHAPES[0], **small(lr=1.0)))
    make_study(out, ["Ant-v4"], POOLED_SHAPES[:2], 2, **small())
    make_study(out, ["Walker2d-v4"], POOLED_SHAPES[1:], 3, **small())
    return out


def same(a, b):
    """Whether two studies are the same in every bit."""
    assert len(a.runs) == len(b.runs)
    assert a.trouble == b.trouble
    for x, y in zip(a.runs, b.runs, strict=True):
        for name in ("path", "id", "config", "status", "reason", "history", "notes", "digest"):
            assert getattr(x, name) == getattr(y, name)
        assert [dict(m) for m in x.machines] == [dict(m) for m in y.machines]
        assert x.metrics.keys() == y.metrics.keys()
        for name, column in x.metrics.items():
            assert column.shape == y.metrics[name].shape
            assert column.tobytes() == y.metrics[name].tobytes()
    return True
