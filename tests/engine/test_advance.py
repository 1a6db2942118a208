"""A cohort on disk: stopped anywhere and gone on with, every run ends with the same bytes."""

import dataclasses
import json
import random

import numpy as np
import pytest

from klip.engine.advance import Keeping, advance
from klip.ppo.config import config
from klip.runs import read_run
from klip.runs.portraits import read_portrait
from klip.runs.store import TRACEBACK
from tests.ppo import troubled

SMALL = {"rollout": 24, "envs": 2, "steps": 240, "minibatch": 20, "epochs": 2, "hidden": (8, 8)}
SHAPES = ("clip", "adaptive-kl", "spo")
OWN = '''
from dataclasses import dataclass
from klip.shapes import Parameter, Shape, parameter

@dataclass(frozen=True)
class Mine(Shape):
    """m = wA / scale."""

    scale: Parameter = parameter(2.0, above=0)

    def multiplier(self, s):
        return s.w * s.advantage / self.scale
'''


def never():
    return False


def after(calls):
    """Asks to stop at the n-th time somebody looks: at a step, or between two updates."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def train(configs, out, stop=never, every=1e9, **options):
    """What was told, in order."""
    told = []
    advance(configs, Keeping(out, every, **options), told.append, stop)
    return told


def statuses(told):
    """By id, the last status of each run."""
    return {news.run: news.status for news in told}


def ids(configs, statuses):
    return {c.id: status for c, status in zip(configs, statuses, strict=True)}


def files(configs, out):
    """Every byte of every run that counts."""
    paths = [Keeping(out).path(c) for c in configs]
    return [
        [(p / n).read_bytes() for n in ("metrics.jsonl", "checkpoint.safetensors")] for p in paths
    ]


def test_how_a_shape_looks_is_kept_and_changes_nothing_else(tmp_path, monkeypatch):
    """Also of a shape whose code is gone when somebody looks; going on needs it not."""
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    configs = [config("CartPole-v1", shape=s, seed=1, **SMALL) for s in ("clip", "mine.py:Mine")]
    train(configs, tmp_path / "runs")
    (tmp_path / "mine.py").unlink()
    clip, mine = (read_portrait(Keeping(tmp_path / "runs").path(c), c.stored)[0] for c in configs)
    assert (mine.formula, mine.parameters) == ("m = wA / scale.", {"scale": 2.0})
    assert mine.profile["anchor"] == {"outcome": "scale", "constant": 0.5}
    assert clip.profile is None  # a page knows it by name
    monkeypatch.setattr("klip.engine.advance.keep_portrait", lambda *_: None)
    (tmp_path / "mine.py").write_text(OWN)
    train(configs, tmp_path / "without")
    assert files(configs, tmp_path / "runs") == files(configs, tmp_path / "without")


@pytest.mark.parametrize(
    "task", ["CartPole-v1", "Hopper-v4", "Humanoid-v4", "LunarLander-v3", troubled.task("none")]
)
def test_stopped_anywhere(task, tmp_path):
    """At random steps and between updates, again and again, until all is done."""
    configs = [config(task, shape=shape, seed=4, **SMALL) for shape in SHAPES]
    assert set(statuses(train(configs, tmp_path / "whole")).values()) == {"done"}
    rng, lives, done = random.Random(task), 0, set()
    while done != {"done"}:
        done = set(statuses(train(configs, tmp_path / "cut", after(rng.randint(1, 50)))).values())
        assert done <= {"done", "stopped"}
        lives += 1
    assert lives > 3
    assert files(configs, tmp_path / "cut") == files(configs, tmp_path / "whole")


def test_a_shape_that_cannot_start_stops_only_its_run(tmp_path):
    """The others of its cohort end with the bytes that they have without it."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from klip.shapes import Shape\n"
        "class Mine(Shape):\n"
        "    def init(self):\n"
        "        raise ZeroDivisionError('by zero')\n"
        "    def multiplier(self, s):\n"
        "        return s.advantage\n"
    )
    shapes = ("clip", f"{file}:Mine", "spo")
    configs = [config("CartPole-v1", shape=shape, **SMALL) for shape in shapes]
    told = train(configs, tmp_path / "runs")
    assert statuses(told) == ids(configs, ["done", "failed", "done"])
    (failed,) = (news for news in told if news.status == "failed")
    assert failed.reason.startswith("a mistake in the code: ZeroDivisionError: by zero (")
    whole = configs[::2]
    train(whole, tmp_path / "whole")
    assert files(whole, tmp_path / "runs") == files(whole, tmp_path / "whole")


def test_runs_that_stand_at_different_iterations(tmp_path):
    """They join one cohort, each goes on from its own place, and nothing is repeated."""
    configs = [config("Hopper-v4", seed=seed, **SMALL) for seed in range(3)]
    train(configs, tmp_path / "whole")
    train(configs[:1], tmp_path / "cut", after(80))
    train(configs[1:2], tmp_path / "cut", after(30))
    told = train(configs, tmp_path / "cut")
    assert [news.saved for news in told[:3]] == [3, 1, 0]
    assert sum("return_mean" in news.row for news in told) == (5 - 3) + (5 - 1) + 5
    assert files(configs, tmp_path / "cut") == files(configs, tmp_path / "whole")
    assert statuses(train(configs, tmp_path / "cut")) == ids(configs, ["done"] * 3)


def test_environments_in_processes_are_stopped_anywhere_too(tmp_path):
    """The bytes are those of environments here, and a run may change from one way to the other."""
    here = [config(troubled.task("none"), shape=shape, seed=4, **SMALL) for shape in SHAPES[:2]]
    there = [dataclasses.replace(c, processes=2) for c in here]
    train(here, tmp_path / "whole")
    train(there, tmp_path / "cut", after(30))
    train(here, tmp_path / "cut", after(30))
    told = train(there, tmp_path / "cut")
    assert set(statuses(told).values()) == {"done"}
    assert not any(news.notes for news in told)
    for c in here:
        one, other = (read_run(Keeping(tmp_path / out).path(c)) for out in ("whole", "cut"))
        assert one.digest() == other.digest()
        assert other.config["processes"] == 2


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("kind", ["step", "reset"])
def test_a_raising_environments_traceback_is_kept_in_its_runs_folder(kind, processes, tmp_path):
    configs = [
        config(troubled.task(kind), seed=seed, processes=processes, **SMALL)
        for seed in (0, troubled.UNLUCKY)
    ]
    told = train(configs, tmp_path)
    assert statuses(told) == ids(configs, ["done", "failed"])
    fine, failed = (Keeping(tmp_path).path(c) / TRACEBACK for c in configs)
    assert not fine.exists()
    words = {"step": "RuntimeError: the wheel came off", "reset": "OSError: the simulator's"}
    assert words[kind] in failed.read_text()
    assert "troubled.py" in failed.read_text()
    assert words[kind] in read_run(failed.parent).reason
    if not processes:
        troubled.mended.append(True)
        try:
            assert set(statuses(train(configs, tmp_path)).values()) == {"done"}
        finally:
            troubled.mended.clear()
        assert not failed.exists()


def test_a_shapes_traceback_is_kept_too(tmp_path, monkeypatch):
    def raises(*_):
        raise ZeroDivisionError("by nothing")

    (c,) = configs = [config("CartPole-v1", **SMALL)]
    monkeypatch.setattr("klip.ppo.cohort.Cohort.learn", raises)
    assert statuses(train(configs, tmp_path)) == {c.id: "failed"}
    assert "in raises" in (Keeping(tmp_path).path(c) / TRACEBACK).read_text()


def test_checkpoints_come_by_the_clock(tmp_path):
    """Each iteration with an interval of 0; none but the last with a long one; two are kept."""
    (c,) = configs = [config("CartPole-v1", **SMALL)]
    assert [news.saved for news in train(configs, tmp_path / "often", every=0)] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    assert [news.saved for news in train(configs, tmp_path / "once")] == [0, 0, 0, 0, 0, 5]
    assert files(configs, tmp_path / "often") == files(configs, tmp_path / "once")
    names = {path.name for path in Keeping(tmp_path / "often").path(c).iterdir()}
    assert names == {"config.json", "metrics.jsonl", "checkpoint.safetensors",
                     "previous.safetensors", "shape.json", "status.json", "lock"}  # fmt: skip


EXPECTED = {
    "nan-reward": ("diverged", "the reward is nan at step 2 of an episode of environment 1"),
    "inf-reward": ("diverged", "the reward is inf at step 2 of an episode of environment 1"),
    "nan-observation": ("diverged", "observation[1] is nan at step 2"),
    "inf-observation": ("diverged", "observation[1] is inf at step 2"),
    "step": ("failed", "RuntimeError: the wheel came off (environment 1 of the run)"),
    "reset": ("failed", "OSError: the simulator's licence has expired"),
}


@pytest.mark.parametrize("kind", EXPECTED)
@pytest.mark.parametrize("normalise", [True, False])
def test_an_environment_in_trouble(kind, normalise, tmp_path):
    """Its run stops before anything is applied, with a diagnosis; the neighbours' bytes stay."""
    fields = {**SMALL, "normalise_observations": normalise, "normalise_rewards": normalise}
    seeds = (0, troubled.UNLUCKY, 2)
    well = [config(troubled.task("none"), seed=seed, **fields) for seed in seeds]
    ill = [config(troubled.task(kind), seed=seed, **fields) for seed in seeds]
    train(well, tmp_path)
    told = train(ill, tmp_path)
    status, reason = EXPECTED[kind]
    assert statuses(told) == ids(ill, ["done", status, "done"])
    stopped = [news for news in told if news.run == ill[1].id][-1]
    assert reason in stopped.reason
    records = {c: read_run(Keeping(tmp_path).path(c)) for c in (*well, *ill)}
    for i in (0, 2):
        assert records[ill[i]].digest() == records[well[i]].digest()
    mine, sound = records[ill[1]], records[well[1]]
    assert (mine.status, mine.reason) == (status, stopped.reason)
    assert 0 < mine.iteration < ill[1].iterations
    assert mine.rows == sound.rows[: mine.iteration]
    assert all(np.all(np.isfinite(array)) for array in mine.arrays.values())
    again = train(ill[1:2], tmp_path)
    assert again[-1].status == status
    assert reason.split(" at ")[0] in again[-1].reason


def test_an_environment_that_cannot_be_brought_back(tmp_path):
    """It trains, but once stopped it is refused with a message, and nothing of it is lost."""
    c = config(troubled.task("forgetful"), **SMALL)
    assert train([c], tmp_path / "whole")[-1].status == "done"
    train([c], tmp_path, after(60))
    before = files([c], tmp_path)
    told = train([c], tmp_path)
    assert told[-1].status == "failed"
    assert "cannot go on from iteration 2" in told[-1].reason
    assert "is not deterministic" in told[-1].reason
    assert files([c], tmp_path) == before


def test_a_mended_environment_goes_on(tmp_path, monkeypatch):
    """What failed is tried again from where it was, and ends as if nothing had happened."""
    c = config(troubled.task("step"), seed=troubled.UNLUCKY, **SMALL)
    sound = config(troubled.task("none"), seed=troubled.UNLUCKY, **SMALL)
    train([sound], tmp_path)
    assert train([c], tmp_path)[-1].status == "failed"
    monkeypatch.setattr(troubled, "mended", [True])
    told = train([c], tmp_path)
    assert told[-1].status == "done"
    assert len(told) - 1 < c.iterations
    paths = [Keeping(tmp_path).path(each) for each in (c, sound)]
    assert read_run(paths[0]).digest() == read_run(paths[1]).digest()


SHAPES_FILE = """
from klip.shapes import Shape, where

class Late(Shape):
    '''NaN from the third iteration on.'''
    requires = ("step",)
    def multiplier(self, s):
        return where(s.step > 90, float("nan"), s.w * s.advantage)

class Raises(Shape):
    '''Does not compute.'''
    def multiplier(self, s):
        raise ZeroDivisionError("by zero")
"""


def test_a_shape_in_trouble(tmp_path):
    """NaN from a shape, or an exception: that run alone stops, and says so."""
    file = tmp_path / "shapes.py"
    file.write_text(SHAPES_FILE)
    names = ("clip", f"{file}:Late", f"{file}:Raises")
    configs = [config("CartPole-v1", shape=name, **SMALL) for name in names]
    train(configs[:1], tmp_path / "alone")
    told = train(configs, tmp_path / "together")
    assert statuses(told) == ids(configs, ["done", "diverged", "failed"])
    reasons = [{news.run: news.reason for news in told}[c.id] for c in configs]
    assert "the multiplier of the shape is not finite in the update of iteration 3" in reasons[1]
    assert "ZeroDivisionError: by zero" in reasons[2]
    first = files(configs[:1], tmp_path / "alone")
    assert files(configs[:1], tmp_path / "together") == first


def test_unstable_physics_is_counted(tmp_path, monkeypatch):
    """MuJoCo resets a bad state without a word; here the first simulation is given one."""
    from klip.tasks.physics import MujocoLanes

    step, calls = MujocoLanes.step, iter(range(10**6))

    def bad(lanes, action):
        if next(calls) == 30:
            lanes._qvel[0] = 1e12
        return step(lanes, action)

    monkeypatch.setattr(MujocoLanes, "step", bad)
    configs = [config("HalfCheetah-v4", seed=seed, **SMALL) for seed in range(2)]
    train(configs, tmp_path)
    counts = [
        [row["unstable_episodes"] for row in read_run(Keeping(tmp_path).path(c)).rows]
        for c in configs
    ]
    assert counts == [[0, 1, 1, 1, 1], [0, 0, 0, 0, 0]]


def test_what_is_written_in_status(tmp_path):
    """For scripts: how it stands, with versions and processor."""
    (c,) = configs = [config("CartPole-v1", **SMALL)]
    train(configs, tmp_path, after(60))
    path = Keeping(tmp_path).path(c)
    status = json.loads((path / "status.json").read_text())
    assert (status["status"], status["iteration"]) == ("running", 2)
    assert read_run(path).status == "stopped"
    assert status["machines"][0]["jax"]
    assert status["machines"][0]["cpu"]


def test_a_mistake_of_ours_costs_no_state(tmp_path, monkeypatch):
    """In what all runs share: each fails in a line, as it was before, and can go on."""
    from klip.ppo.cohort import Cohort

    configs = [config("CartPole-v1", seed=seed, **SMALL) for seed in range(2)]
    train(configs, tmp_path / "whole")
    collect, calls = Cohort.collect, iter(range(99))

    def wrong(cohort, stop):
        rollouts = collect(cohort, stop)
        return rollouts if next(calls) < 2 else {}["nothing"]

    with monkeypatch.context() as patch:
        patch.setattr(Cohort, "collect", wrong)
        told = train(configs, tmp_path / "cut")
    assert statuses(told) == ids(configs, ["failed", "failed"])
    assert "a mistake in the code: KeyError: 'nothing' (" in told[-1].reason
    assert "\n" not in told[-1].reason
    assert [read_run(Keeping(tmp_path / "cut").path(c)).iteration for c in configs] == [2, 2]
    assert statuses(train(configs, tmp_path / "cut")) == ids(configs, ["done", "done"])
    assert files(configs, tmp_path / "cut") == files(configs, tmp_path / "whole")


def test_a_mistake_in_one_runs_learning_leaves_the_others_alone(tmp_path, monkeypatch):
    from klip.ppo.cohort import Cohort

    configs = [config("CartPole-v1", seed=seed, **SMALL) for seed in range(3)]
    train(configs, tmp_path / "whole")
    learn = Cohort.learn

    def wrong(cohort, i, rollout):
        run = cohort.runs[i]
        return (
            {}["nothing"]
            if (run.config.seed, run.iteration) == (1, 2)
            else learn(cohort, i, rollout)
        )

    with monkeypatch.context() as patch:
        patch.setattr(Cohort, "learn", wrong)
        told = train(configs, tmp_path / "cut")
    assert statuses(told) == ids(configs, ["done", "failed", "done"])
    assert read_run(Keeping(tmp_path / "cut").path(configs[1])).iteration == 2
    train(configs, tmp_path / "cut")
    assert files(configs, tmp_path / "cut") == files(configs, tmp_path / "whole")
