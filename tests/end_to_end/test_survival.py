"""Training under SIGKILL: the short form of benchmarks/kills.py."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import kills


@pytest.mark.parametrize(
    ("task", "fields", "kinds"),
    [
        (
            "CartPole-v1",
            ("--steps", "10240", "--lag", "2", "--replay", "3"),
            ["worker", "checkpoint"],
        ),
        (
            "LunarLander-v3",
            ("--steps", "4096", "--envs", "2", "--rollout", "256", "--processes", "2"),
            ["parent"],
        ),
    ],
)
def test_killed_and_gone_on_with(task, fields, kinds, tmp_path, monkeypatch):
    """A worker, the parent, the whole group in the middle of a checkpoint: the bytes are equal.

    On CartPole checkpoints hold old policies and a replay buffer, too.
    """
    monkeypatch.setitem(kills.TASKS, task, fields)
    left = list(kinds)
    strike = kills.strike

    def strike_once(*arguments):  # a run that ended before it is struck is struck next time
        struck = strike(*arguments)
        if struck:
            left.pop(0)
        return struck

    monkeypatch.setattr(kills, "strike", strike_once)
    rng = random.Random(task)
    rng.choice = lambda of: left[0] if of is kills.KINDS else of[0]
    found = kills.try_task(task, len(kinds), rng, tmp_path)
    assert found["runs that differ"] == 0
    assert {kind: found[kind] for kind in kinds} == dict.fromkeys(kinds, 1)
