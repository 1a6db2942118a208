"""PPO as a kind of job: labels without executing anything, and costs."""

import dataclasses

import pytest

from klip.errors import KlipError
from klip.ppo.config import config
from klip.ppo.job import PPO, label, old_samples, seconds, with_steps


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


def test_gradient_steps_that_grow_cost_time():
    equal, grow = (
        config("Hopper-v4", replay=4, gradient_steps=steps) for steps in ("equal", "grow")
    )
    assert seconds([equal]) == seconds([config("Hopper-v4")]) < seconds([grow])


def test_old_samples_of_a_cohort():
    """Each run keeps its own, and one learns at a time."""
    c = config("Hopper-v4", replay=4)
    one, two = old_samples([c]), old_samples([c, dataclasses.replace(c, seed=1)])
    assert 0 < one.memory < two.memory < 2 * one.memory
    assert one.checkpoint == two.checkpoint
    assert old_samples([config("Hopper-v4")]).memory == 0
