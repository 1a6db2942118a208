"""Labels tell jobs apart that differ in more than their seed."""

import dataclasses

import pytest

from klip.engine.labels import labels, labels_of
from klip.lab.config import TokenConfig, Warmup
from klip.ppo.config import Config

RUN = Config("Hopper-v4")


def test_only_settings_that_differ_and_are_not_usual_are_named():
    other = dataclasses.replace(RUN, gamma=0.9)
    assert labels_of([other]) == ["clip"]
    assert labels_of([RUN, other]) == ["clip", "clip, gamma 0.9"]
    two = dataclasses.replace(other, hidden=(8, 8), anneal=False, shape="spo(eps=0.2)")
    assert labels_of([RUN, other, two]) == [
        "clip", "clip, gamma 0.9", "spo, gamma 0.9, anneal no, hidden 8-8",
    ]  # fmt: skip


def test_tasks_are_apart():
    small = Config("CartPole-v1", envs=4, rollout=128, steps=100_000,
                   normalise_observations=False, normalise_rewards=False)  # fmt: skip
    assert labels_of([RUN, small]) == ["clip", "clip"]
    assert labels_of([small, dataclasses.replace(small, envs=1)]) == ["clip", "clip, envs 1"]


def test_what_does_not_change_results_is_no_setting():
    assert labels_of([RUN, dataclasses.replace(RUN, processes=2)]) == ["clip", "clip"]


def test_edited_code_is_another_row():
    mine = dataclasses.replace(RUN, shape="my.py:Mine(a=1)", code="aaa")
    edited = dataclasses.replace(mine, code="bbb")
    assert labels_of([RUN, mine, edited]) == [
        "clip", "my.py:Mine(a=1), code aaa", "my.py:Mine(a=1), code bbb",
    ]  # fmt: skip
    tasks = [dataclasses.replace(RUN, task="my.py:Env-v0", task_code=code) for code in "ab"]
    assert labels_of(tasks) == ["clip, task's code a", "clip, task's code b"]
    args = [dataclasses.replace(RUN, task_args={"size": size}) for size in (1, 2)]
    assert labels_of(args) == ["clip, task_args size=1", "clip, task_args size=2"]


def test_arms_of_token_runs():
    run = TokenConfig("position", "plain", "clip")
    longer = dataclasses.replace(run, warmup=Warmup(steps=2000), iterations=9)
    assert labels_of([run, run.warmup, longer]) == [
        "plain", "warm-up", "plain, iterations 9, warmup.steps 2,000",
    ]  # fmt: skip
    assert labels_of([run, dataclasses.replace(run, arm="other", place=1, shape="spo")]) == [
        "plain", "other",
    ]  # fmt: skip
    same = dataclasses.replace(run, shape="spo")
    assert labels_of([run, same]) == ["plain, clip", "plain, spo"]


@pytest.mark.parametrize("odd", [{"kind": "of-tomorrow"}, {"lr": [[]]}, {"hidden": {"a": 1}}])
def test_configs_of_another_version_have_labels_too(odd):
    config = {"task": "t", "shape": "evil.py:Mine", "seed": 0}
    assert labels([config | odd])[0].startswith("evil.py:Mine")
    assert len(labels([config, config | odd, {"task": "t", "seed": 0}])) == 3
