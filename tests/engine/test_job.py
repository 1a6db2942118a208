"""Kinds of job: each is found by its name, keeps to the protocol, and survives its way to disk."""

import pytest

from klip.engine import read_plan, shipped_plans
from klip.engine.job import KINDS, iterations_of, kind_in, kind_of, label_of, read_job, with_needs
from klip.errors import KlipError
from klip.runs import config_id
from klip.runs.checkpoint import known_config

JOBS = [job for name in shipped_plans() for job in with_needs(read_plan(name).configs[:1])]


def test_every_kind_is_shipped_with_a_plan_or_needed_by_one():
    assert {job.kind for job in JOBS} == set(KINDS)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.kind} {job.task}")
def test_every_kind_keeps_to_the_protocol(job):
    kind = kind_of(job.kind)
    assert kind_in(job.stored) is kind
    assert read_job(job.stored) == job
    assert job.id == config_id(job.stored)
    assert known_config(job.stored) == job.stored
    assert iterations_of(job.stored) == job.iterations > 0
    assert job.batch > 0
    assert label_of(job).isprintable()
    assert kind.seconds([job]) > 0
    assert kind.measured(job)
    kind.check(job)
    assert {"iteration", "step"} <= set(kind.brief)
    with pytest.raises(KlipError, match="differs in colour"):
        read_job({**job.stored, "colour": 1})


@pytest.mark.parametrize(
    "config",
    [{}, {"steps": 1, "envs": 0, "rollout": 1}, {"steps": "1", "envs": 1, "rollout": 1},
     {"steps": -5, "envs": 1, "rollout": 1}, {"steps": float("inf"), "envs": 1, "rollout": 1},
     {"kind": "tokens"}, {"kind": "chess", "iterations": 5}, {"kind": ["tokens"]}],
)  # fmt: skip
def test_a_config_that_does_not_say_its_iterations(config):
    """From anybody's disk: nothing is believed, and nothing raised."""
    assert iterations_of(config) == 0


def test_a_kind_that_is_not_there():
    with pytest.raises(KlipError, match="no kind of job 'chess': choose ppo, tokens"):
        kind_of("chess")


def test_what_is_needed_comes_first_and_once():
    jobs = read_plan("scratchpad").only(seeds=1).configs
    assert [job.kind for job in with_needs(jobs)] == ["warm-up"] + ["tokens"] * 10
    assert with_needs(with_needs(jobs)) == with_needs(jobs)
