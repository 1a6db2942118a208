"""Runs that would never end, or end in numbers that mean nothing: each says so instead."""

import dataclasses

import numpy as np
import pytest

from klip.engine.advance import Keeping, advance
from klip.ppo.config import config
from klip.runs import read_run
from klip.runs.checkpoint import encode, read
from klip.runs.store import NEWEST
from tests.ppo import troubled

SMALL = {"rollout": 24, "envs": 2, "steps": 240, "minibatch": 20, "epochs": 2, "hidden": (8, 8)}


def train(configs, out):
    told = {}
    advance(configs, Keeping(out, 1e9), lambda news: told.update({news.run: news}))
    return [told[c.id] for c in configs]


@pytest.mark.parametrize("kind", ["big-observation", "big-reward"])
def test_numbers_whose_variance_is_infinite(kind, tmp_path):
    """Divided by it all others would be 0, and the run would be done without having learned."""
    fields = {**SMALL, "normalise_observations": True, "normalise_rewards": True}
    ill = [config(troubled.task(kind), seed=seed, **fields) for seed in (0, troubled.UNLUCKY)]
    told = train(ill, tmp_path)
    assert [news.status for news in told] == ["done", "diverged"]
    what = "observation[1]" if kind == "big-observation" else "return"
    assert f"the variance of the {what} is inf in iteration" in told[1].reason
    arrays = read_run(Keeping(tmp_path).path(ill[1])).arrays.values()
    assert all(np.all(np.isfinite(array)) for array in arrays)


@pytest.mark.parametrize("beyond", [0, 1, 10**9])
def test_a_checkpoint_beyond_the_last_iteration_is_not_trained_for_ever(beyond, tmp_path):
    c = config("CartPole-v1", **SMALL)
    (news,) = train([c], tmp_path)
    assert news.status == "done"
    path = Keeping(tmp_path).path(c) / NEWEST
    forged = dataclasses.replace(read(path), status="running", iteration=c.iterations + beyond)
    path.write_bytes(encode(forged))
    (news,) = train([c], tmp_path)
    assert news.status == "failed"
    assert f"the run has only {c.iterations} iterations" in news.reason
