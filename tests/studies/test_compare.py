"""Seeds are added until it is clear; whatever kills it, the answer is the same."""

import numpy as np
import pytest

import klip
from klip.engine import run
from klip.engine.advance import Keeping
from klip.engine.finish import Result, Unfinished
from klip.engine.run import Site
from klip.errors import KlipError
from klip.runs import read_run
from klip.studies import compare as module
from klip.studies.compare import answer, ask
from klip.studies.sequential import FIRST
from tests.engine.test_finish import SMALL, one_by_one
from tests.studies.folders import make_run, small

LEVELS = {"clip": 100.0, "spo": 160.0, "is": 101.0}
SITE = Site(None, 2, "here")


class Trainer:
    """Writes runs that nobody trained; a shape's level is known. Dies after so many of them."""

    def __init__(self, dies=None):
        self.trained, self.dies = [], dies

    def __call__(self, surveyed, runner):
        for job in surveyed.missing:
            if self.dies is not None and len(self.trained) == self.dies:
                raise KeyboardInterrupt
            self.trained.append(job.id)
            name = job.shape.partition("(")[0]
            make_run(surveyed.keeping.out, job.stored, level=LEVELS.get(name, 100.0))
        return [Result(job, None, "done", "", 0.0) for job in surveyed.jobs]


def asked(*shapes, task="CartPole-v1", **more):
    return ask(shapes, task, **{**small(minibatch=16), **more})


def answered(question, out, train=None, budget=None):
    return answer(question, Keeping(out), SITE, budget, train or Trainer())


def test_a_large_difference_stops_early(tmp_path):
    train = Trainer()
    found = answered(asked("clip", "spo"), tmp_path, train)
    (pair,) = found.pairs
    assert (pair.answer, found.stopped) == ("better", "clear")
    assert pair.looks[-1].seeds < 20
    assert len(train.trained) == len(set(train.trained)) == 2 * pair.looks[-1].seeds


def test_the_same_runs_are_equivalent_at_the_first_look(tmp_path):
    found = answered(asked("clip", "per-sample"), tmp_path)
    assert [(p.answer, p.looks[-1].seeds) for p in found.pairs] == [("equivalent", FIRST)]


def test_a_pair_that_is_answered_gets_no_more_seeds(tmp_path):
    found = answered(asked("clip", "per-sample", "is", max_seeds=8), tmp_path)
    assert [(p.answer, p.looks[-1].seeds) for p in found.pairs] == [("equivalent", 6), ("open", 8)]
    assert found.stopped == "max_seeds"
    assert len(list(tmp_path.rglob("seed-*"))) == 6 + 8 + 8


@pytest.mark.parametrize("dies", [0, 1, 11, 12, 13, 17])
def test_killed_and_asked_again_the_answer_is_the_same(dies, tmp_path):
    question = asked("clip", "is", max_seeds=10)
    whole = answered(question, tmp_path / "whole")
    first, second = Trainer(dies), Trainer()
    with pytest.raises(KeyboardInterrupt):
        answered(question, tmp_path / "parts", first)
    again = answered(question, tmp_path / "parts", second)
    assert again.fields == whole.fields
    assert not set(first.trained) & set(second.trained)


def test_runs_beyond_the_answer_do_not_change_it(tmp_path):
    early = answered(asked("clip", "spo"), tmp_path)
    for job in asked("clip", "spo").jobs(("clip", "spo"), 30):
        if not Keeping(tmp_path).path(job).exists():
            make_run(tmp_path, job.stored, level=500.0)
    train = Trainer()
    assert answered(asked("clip", "spo"), tmp_path, train).fields == early.fields
    assert train.trained == []


def test_several_tasks(tmp_path):
    question = asked("clip", "spo", task=("CartPole-v1", "Hopper-v4"))
    found = answered(question, tmp_path).fields
    assert found["unit"] == "normalised score"
    assert found["pairs"][0]["tasks"].keys() == {"CartPole-v1", "Hopper-v4"}
    assert found["pairs"][0]["margin"] == 0.05


def test_more_pairs_have_wider_intervals(tmp_path):
    one = answered(asked("clip", "is", max_seeds=8), tmp_path).pairs[0].looks[-1]
    two = answered(asked("clip", "is", "spo", max_seeds=8), tmp_path).pairs[0].looks[-1]
    assert two.low < one.low < one.high < two.high


def test_a_budget_that_ends_leaves_it_open(tmp_path, monkeypatch):
    clock = iter(np.arange(0.0, 1e6, 20.0).tolist())
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    found = answered(asked("clip", "is"), tmp_path, budget=100.0)
    assert (found.stopped, found.pairs[0].answer) == ("budget", "open")
    assert found.pairs[0].looks[-1].seeds >= FIRST


def test_a_budget_too_small_for_the_first_look_is_said_before_anything_starts(tmp_path):
    train = Trainer()
    with pytest.raises(KlipError, match=r"budget=3 s is too small for the first look: its 12 "):
        answered(asked("clip", "is"), tmp_path, train, budget=3.0)
    assert train.trained == []


def test_runs_that_failed_are_an_error_and_no_answer(tmp_path):
    def fails(surveyed, runner):
        return [Result(job, tmp_path, "failed", "a mistake", None) for job in surveyed.jobs]

    with pytest.raises(Unfinished, match="a mistake"):
        answered(asked("clip", "is"), tmp_path, fails)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"shapes": ["clip"]}, "give two shapes or more"),
        ({"shapes": "clip"}, "give two shapes or more"),
        ({"shapes": ["clip", "clip(eps=0.2)"]}, "named twice"),
        ({"shapes": ["clip", "nix"]}, "no shape is called 'nix'"),
        ({"task": ()}, "needs a task"),
        ({"task": ("Hopper-v4", "Hopper-v4")}, "a task is named twice"),
        ({"metric": "best"}, "metric='best' must be one of final, area"),
        ({"margin": 0.0}, "margin=0.0 must lie between 0 and 1"),
        ({"max_seeds": 4}, "max_seeds=4 is too few for the first look"),
        ({"epochs": 0}, "epochs=0 must be at least 1"),
        ({"colour": 1}, "no config field is called 'colour'"),
    ],
)
def test_a_question_that_means_nothing_is_a_line(given, words):
    with pytest.raises(KlipError, match=words):
        ask(**{"shapes": ["clip", "spo"], "task": "CartPole-v1", **given})


def test_from_python_with_training(tmp_path, monkeypatch):
    """Two forms of one shape, really trained: every run is the same."""
    monkeypatch.setattr(module, "site", lambda workers, ray: run.Site(one_by_one, 1, "here"))
    found = klip.compare(["clip", klip.PerSample()], "CartPole-v1", out=tmp_path, **SMALL)
    assert [(p.answer, p.looks[-1].seeds) for p in found.pairs] == [("equivalent", FIRST)]
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    again = klip.compare(["clip", klip.PerSample()], "CartPole-v1", out=tmp_path, **SMALL)
    assert again.fields == found.fields
    assert stamps == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    assert read_run(next(tmp_path.rglob("seed-0-*"))).status == "done"
