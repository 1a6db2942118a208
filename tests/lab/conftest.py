"""A plan that trains in seconds: one digit, one layer, and its runs, trained once."""

import dataclasses

import pytest
import torch

from klip.engine import read_plan
from klip.engine.advance import Keeping, advance
from klip.lab.config import TokenConfig, Warmup
from klip.lab.training import TokenRun
from klip.runs import read_run

TINY = Warmup(
    digits=1, slip=0.2, layers=1, width=32, heads=2, steps=250, batch=64, learning_rate=1e-2
)
PLAN = """
about = "Tiny."
kind = "tokens"
seeds = 2

[config]
iterations = 6
prompts = 8
completions = 4
epochs = 3
minibatches = 2
learning_rate = 3e-3
evaluate_every = 2
held_out = 8
shown = 2

[config.warmup]
digits = 1
slip = 0.2
layers = 1
width = 32
heads = 2
steps = 250
batch = 64
learning_rate = 1e-2

[[runs]]
group = "position"
arms = [
    { name = "plain clip", shape = "clip(eps=0.1)" },
    { name = "sharp <answer>", shape = "clip(eps=from-end(tail=0.05, body=0.2, count=1))", \
against = "wide clip" },
    { name = "wide clip", shape = "clip(eps=0.3)" },
]

[[runs]]
group = "age"
config = { replay = 3 }
arms = [
    { name = "constant epsilon", shape = "clip(eps=0.1)" },
    { name = "hard drop", shape = "max-age(limit=1) * clip(eps=0.1)" },
]
"""


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def home(tmp_path_factory, one_thread):
    """A folder with the warm-ups of seeds 0 and 1."""
    out = tmp_path_factory.mktemp("lab")
    for seed in (0, 1):
        assert train(dataclasses.replace(TINY, seed=seed), out).status == "done"
    return out


def train(job, out, stop=lambda: False, **keeping):
    """Train a job in this process; the last that was heard of it."""
    told = []
    advance([job], Keeping(out, **keeping), told.append, stop)
    return told[-1]


def start(home, c):
    """The run of a config, before its first iteration."""
    return TokenRun(c, dict(read_run(Keeping(home).path(c.warmup)).arrays))


def begun(home, out):
    """A folder in which the warm-ups of `home` are done."""
    (out / "addition").mkdir(parents=True)
    (out / "addition" / "warm-up").symlink_to(home / "addition" / "warm-up")
    return out


@pytest.fixture(scope="session")
def plan_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "tiny.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="session")
def trained(home, plan_file):
    """The folder with all runs of the tiny plan, done."""
    for c in read_plan(plan_file).configs:
        assert train(c, home).status == "done"
    return home


def tiny(shape="clip(eps=0.1)", **fields):
    """A config that fits the warm-ups in `home`."""
    usual = dict(
        iterations=6, prompts=8, completions=4, epochs=3, minibatches=2, learning_rate=3e-3,
        evaluate_every=2, held_out=8, shown=2, warmup=TINY,
    )  # fmt: skip
    return TokenConfig("group", "arm", shape, **{**usual, **fields})
