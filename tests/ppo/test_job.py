"""PPO as a kind of job: labels without executing anything, and costs."""

import dataclasses

import pytest

from klip.errors import KlipError
from klip.ppo.config import config
from klip.ppo.job import PPO, label, seconds, with_steps


def test_labels_execute_nothing():
    assert label({"shape": "clip(eps=0.2)"}) == "clip"
    assert label({"shape": "evil.py:Mine(a=1)"}) == "evil.py:Mine(a=1)"
    assert label({"shape": "of-another-version(a=1)"}) == "of-another-version(a=1)"


def test_costs_grow_with_steps_and_shrink_with_company():
    c = config("Hopper-v4")
    assert seconds([with_steps(c, 500_000)]) < seconds([c])
    pair = [c, dataclasses.replace(c, seed=1)]
    assert seconds(pair) < 2 * seconds([c])
    assert PPO.measured(config("Hopper-v5"))
    assert not PPO.measured(config("Pendulum-v1"))


def test_fewer_steps_than_a_rollout():
    with pytest.raises(KlipError, match="less than one rollout"):
        with_steps(config("CartPole-v1"), 10)
