"""What is there of some jobs, what is missing, and how it is finished."""

import signal

import pytest

from klip.engine import finish as module
from klip.engine.advance import Keeping, Progress, advance
from klip.engine.finish import estimate, finish, survey
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
