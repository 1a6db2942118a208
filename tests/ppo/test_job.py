"""PPO as a kind of job: labels without executing anything, and costs."""

import dataclasses

import pytest

from klip.engine.job import Entry
from klip.errors import KlipError
from klip.ppo.config import config
from klip.ppo.job import COMPILE, PPO, label, old_samples, seconds, with_steps


def test_labels_execute_nothing():
    assert label({"shape": "clip(eps=0.2)"}) == "clip"
    assert label({"shape": "evil.py:Mine(a=1)"}) == "evil.py:Mine(a=1)"
    assert label({"shape": "of-another-version(a=1)"}) == "of-another-version(a=1)"


def test_costs_grow_with_steps_and_shrink_with_company():
    c = config("Hopper-v4")
    assert seconds([with_steps(c, 500_000)]) < seconds([c])
    pair = [c, dataclasses.replace(c, seed=1)]
    assert seconds(pair) < 2 * seconds([c])
    wider, other = (dataclasses.replace(c, shape=s) for s in ("clip(eps=0.3)", "spo(eps=0.2)"))
    assert seconds([c, wider]) == seconds(pair)  # they share what is compiled
    assert seconds([c, other]) == seconds(pair) + COMPILE
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


def test_a_plan_may_name_a_preset_and_a_grid():
    grid = {"lr": [1e-3, 1e-4], "eps": [0.1]}
    table = {"tasks": ["Pendulum-v1"], "shapes": ["clip", "ramp"], "grid": grid}
    entry = Entry("here", table, {"preset": "sb3", "gamma": 0.9}, [0, 1])
    jobs = PPO.plan([entry])
    assert len({job.id for job in jobs}) == len(jobs) == 8
    assert {job.shape for job in jobs} == {"clip(eps=0.1)", "ramp(eps=0.1, width=0.05)"}
    assert {(job.gamma, job.value_clip) for job in jobs} == {(0.9, 0.0)}
    assert jobs[0] == config("Pendulum-v1", preset="sb3", shape="clip(eps=0.1)", gamma=0.9, lr=1e-3)


@pytest.mark.parametrize(
    ("fields", "grid", "message"),
    [
        ({"preset": "sb4"}, {}, "here: preset='sb4' must be one of paper, sb3"),
        ({}, {"width": [0.1]}, "here: 'width' is no config field, and clip has no such number"),
        ({}, {"lr": 3}, "here: grid has lr=3: give a list"),
        ({}, {"epochs": [2.5]}, "here: epochs=2.5 must be a whole number"),
    ],
)
def test_a_plan_that_means_nothing(fields, grid, message):
    table = {"tasks": ["Pendulum-v1"], "shapes": ["clip"], "grid": grid}
    with pytest.raises(KlipError, match=message):
        PPO.plan([Entry("here", table, fields, [0])])
