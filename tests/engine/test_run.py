"""`klip.run` and `klip.resume`: to the end with one call, and a second call repeats nothing."""

import dataclasses

import pytest

import klip
from klip.engine import run
from klip.engine.advance import Keeping, advance
from klip.engine.crew import cores_for
from klip.engine.plan import Plan
from klip.errors import KlipError
from klip.ppo import train
from klip.ppo.config import config
from tests.engine.test_finish import SMALL, one_by_one

JOBS = [config("CartPole-v1", seed=seed, **SMALL) for seed in range(2)]
PLAN = """
about = "Tiny."
seeds = 2
[[runs]]
tasks = ["CartPole-v1"]
shapes = ["clip"]
config = { rollout = 16, envs = 2, steps = 64, minibatch = 16, epochs = 1, hidden = [8] }
"""


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture
def in_this_process(monkeypatch):
    """No process is started; how many were asked for is kept."""
    asked = []

    def here(workers, limit=None):
        asked.append(workers)
        return one_by_one

    monkeypatch.setattr(run, "here", here)
    monkeypatch.setattr(train, "here", here)
    return asked


def files(out):
    return {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}


def test_a_plan_is_finished_and_a_second_call_repeats_nothing(plan_file, tmp_path, in_this_process):
    out, heard = tmp_path / "runs", []
    results = klip.run(plan_file, out=out, workers=1, progress=heard.append)
    assert [(r.config, r.status, r.path) for r in results] == [
        (job, "done", Keeping(out).path(job)) for job in JOBS
    ]
    assert in_this_process == [1]
    rows = [(news.run, news.row["iteration"]) for news in heard if news.row is not None]
    assert {(job.id, k) for job in JOBS for k in (0, 1, 2)} == set(rows)
    before = files(out)
    heard.clear()
    again = klip.run(str(plan_file), out=str(out), progress=heard.append)
    assert again == results
    assert [(news.run, news.status) for news in heard] == [(job.id, "done") for job in JOBS]
    assert files(out) == before


def test_a_part_of_a_plan_that_is_given_as_a_value(tmp_path, in_this_process):
    plan = Plan("mine", "Mine.", tuple(JOBS))
    (result,) = klip.run(plan, ["CartPole-v1"], ["clip"], seeds=1, steps=32, out=tmp_path)
    assert result.config == dataclasses.replace(JOBS[0], steps=32)
    with pytest.raises(KlipError, match="has no task 'Ant-v4'"):
        klip.run(plan, ["Ant-v4"], out=tmp_path)
    with pytest.raises(KlipError, match="there is no plan 'papr'"):
        klip.run("papr", out=tmp_path)


def test_resume_goes_on_where_a_run_was_stopped(plan_file, tmp_path, in_this_process):
    """To the same bytes as if nobody had stopped it, and once."""
    (whole,) = klip.run(plan_file, seeds=1, out=tmp_path / "whole")
    out, told = tmp_path / "runs", []
    advance(JOBS[:1], Keeping(out), told.append, stop=lambda: len(told) > 0)
    assert told[-1].status == "stopped"
    (result,) = klip.resume(out)
    assert (result.config, result.status) == (JOBS[0], "done")
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        assert (result.path / name).read_bytes() == (whole.path / name).read_bytes()
    before = files(out)
    assert klip.resume(str(result.path)) == []
    assert files(out) == before


RAISES = """
from klip.shapes import Shape

class Raises(Shape):
    def multiplier(self, s):
        raise ZeroDivisionError("by zero, and\\nmore")
"""


def test_a_run_that_fails_is_raised_when_the_others_have_ended(tmp_path, in_this_process):
    """In a line, with all results; the same from a plan, from a folder, and from klip.train."""
    file, out = tmp_path / "mine.py", tmp_path / "runs"
    file.write_text(RAISES)
    shapes = [f"{file}:Raises", "clip"]
    plan = Plan("mine", "Mine.", tuple(config("CartPole-v1", shape=s, **SMALL) for s in shapes))
    with pytest.raises(klip.Unfinished, match="1 of 2 runs did not end: CartPole-v1 ") as caught:
        klip.run(plan, out=out)
    assert [r.status for r in caught.value.results] == ["failed", "done"]
    assert "ZeroDivisionError: by zero, and" in str(caught.value)
    assert str(caught.value).isprintable()
    with pytest.raises(klip.Unfinished, match="1 of 1 runs did not end"):
        klip.resume(out, run_code=True)
    with pytest.raises(klip.Unfinished, match="ZeroDivisionError"):
        klip.train("CartPole-v1", shapes, 1, out=out, **SMALL)


def test_a_run_that_diverges_has_ended(tmp_path, in_this_process):
    """It is returned, by resume too, and is not trained again."""
    wild = config("CartPole-v1", shape="is", lr=1e30, **SMALL)
    (result,) = klip.run(Plan("wild", "", (wild,)), out=tmp_path)
    assert result.status == "diverged"
    assert klip.resume(tmp_path) == [dataclasses.replace(result, path=result.path.resolve())]


def test_what_is_kept_is_as_asked_for(plan_file, tmp_path, in_this_process, monkeypatch):
    kept = []
    monkeypatch.setattr(run, "finish", lambda found, *rest: kept.append(found.keeping) or [])
    how = {"checkpoint_every": 3.0, "accept_changes": True, "start_over": True}
    klip.run(plan_file, out=tmp_path / "runs", **how)
    advance(JOBS[:1], Keeping(tmp_path / "runs"), lambda news: None, stop=lambda: True)
    klip.resume(tmp_path / "runs", **how)
    expected = Keeping(tmp_path / "runs", 3.0, True, True)
    assert kept == [expected, dataclasses.replace(expected, out=expected.out.resolve())]


def test_a_site_is_here_or_a_cluster_and_not_both():
    here = run.site(1)
    assert (here.cores, here.words) == (1, "here")
    assert run.site().cores == cores_for(None)
    with pytest.raises(KlipError, match="workers is for this machine and ray for a cluster"):
        run.site(1, "auto")
    with pytest.raises(KlipError, match="must lie between 1 and"):
        run.site(0)
