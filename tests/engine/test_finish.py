"""What is there of some jobs, what is missing, and how it is finished."""

import dataclasses
import signal

import pytest

from klip.engine import finish as module
from klip.engine.advance import Keeping, Progress, advance
from klip.engine.finish import HERE, LONG, estimate, finish, foreseen, survey
from klip.engine.schedule import schedule
from klip.errors import KlipError
from klip.lab.config import TokenConfig, Warmup
from klip.ppo.config import config

SMALL = {"rollout": 16, "envs": 2, "steps": 64, "minibatch": 16, "epochs": 1, "hidden": (8,)}
JOBS = [config("CartPole-v1", seed=seed, **SMALL) for seed in range(3)]


def one_by_one(jobs, keeping, stop):
    """A runner in this process."""
    for job in jobs:
        told = []
        advance([job], keeping, told.append, stop)
        yield from told


def test_only_what_is_missing_is_trained(tmp_path):
    keeping, heard = Keeping(tmp_path), []
    advance(JOBS[1:2], keeping, lambda news: None)
    found = survey(JOBS, keeping)
    assert list(found.ended) == [JOBS[1].id]
    assert found.missing == (JOBS[0], JOBS[2])
    assert "2 of 3 runs are missing, 0.0 million steps: about" in estimate(found, 1, "here")
    results = finish(found, one_by_one, heard.append)
    assert [(r.config, r.status, r.path) for r in results] == [
        (c, "done", keeping.path(c)) for c in JOBS
    ]
    assert heard[0].run == JOBS[1].id
    again = survey(JOBS, keeping)
    assert again.missing == ()
    assert estimate(again, 1, "here") == "all 3 runs have ended"
    assert [r.final_return for r in finish(again, one_by_one)] == [r.final_return for r in results]


def test_what_missing_runs_need_is_missing_too(tmp_path):
    w = Warmup(digits=1, layers=1, width=16, heads=2, steps=2, batch=4)
    runs = [TokenConfig("g", name, "clip", warmup=w) for name in ("a", "b")]
    found = survey(runs, Keeping(tmp_path))
    assert found.missing == (w, *runs)
    assert "2 of 2 runs are missing and 1 that they need" in estimate(found, 2, "here")
    advance([w], Keeping(tmp_path), lambda news: None)
    assert survey(runs, Keeping(tmp_path)).missing == tuple(runs)


def test_a_library_that_is_missing_is_named_before_anything_starts(tmp_path, monkeypatch):
    def version(name):
        raise module.PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", version)
    with pytest.raises(KlipError, match=r"need gymnasium.*klip-rl\[gymnasium\]"):
        finish(survey(JOBS, Keeping(tmp_path / "runs")), one_by_one)
    assert not (tmp_path / "runs").exists()


def test_a_config_is_checked_before_anything_starts(tmp_path):
    """Also one that nobody checked when it was made."""
    for wrong, message in (
        (dataclasses.replace(JOBS[0], gamma=2.0), "gamma=2.0 must lie between"),
        (TokenConfig("g", "a", "clip", minibatches=7), "minibatches=7 must divide"),
    ):
        with pytest.raises(KlipError, match=message):
            finish(survey([JOBS[1], wrong], Keeping(tmp_path / "runs")), one_by_one)
        assert not (tmp_path / "runs").exists()


def test_what_cannot_run_here_is_said_per_task(tmp_path):
    """And nothing that has ended is asked about."""
    jobs = [
        config(task, **SMALL)
        for task in ("CartPole-v1", "Pendulum-v1", "Nothing-v0", "nosuch:Env-v0", "CartPole-v1")
    ]
    keeping = Keeping(tmp_path / "runs")
    with pytest.raises(KlipError) as caught:
        finish(survey(jobs, keeping), one_by_one)
    said = str(caught.value)
    assert "there is no environment Nothing-v0" in said
    assert "the module nosuch cannot be imported" in said
    assert said.endswith("; leave that out with --task CartPole-v1 Pendulum-v1")
    assert "\n" not in said
    assert not keeping.out.exists()
    with pytest.raises(KlipError, match=r"Nothing-v0: .*module:Id-v0 or file\.py:Id-v0$"):
        finish(survey(jobs[2:3], keeping), one_by_one)
    assert [r.status for r in finish(survey(jobs[:2], keeping), one_by_one)] == ["done"] * 2


def test_an_interval_that_is_none(tmp_path):
    with pytest.raises(KlipError, match="checkpoint_every=-1 must be 0 seconds or more"):
        survey(JOBS, Keeping(tmp_path, -1))


def test_ctrl_c_is_raised_when_all_is_saved(tmp_path):
    said = []

    def runner(jobs, keeping, stop):
        signal.raise_signal(signal.SIGINT)
        assert stop()
        yield from (Progress(job.id, "stopped") for job in jobs)

    with pytest.raises(KeyboardInterrupt):
        finish(survey(JOBS, Keeping(tmp_path)), runner, say=said.append)
    assert "Ctrl-C: saving the runs" in said[0]


def test_a_long_time_is_told_at_the_pace_of_this_machine(monkeypatch):
    """Not that of a cluster's machines, and not for what is over before it matters."""
    monkeypatch.setattr("klip.tasks.pace.pace", lambda: 3.0)
    long = [config("Hopper-v4", seed=seed) for seed in range(4)]
    there = schedule(long, 2)
    assert there.seconds > LONG
    assert foreseen(long, 2, HERE) == dataclasses.replace(there, seconds=3 * there.seconds)
    assert foreseen(long, 2, "of the Ray cluster") == there
    assert foreseen(JOBS, 2, HERE) == schedule(JOBS, 2)
