"""A search that is killed asks the same trials again; what it found is a plan."""

import json
import math

import pytest

from klip.engine import read_plan
from klip.engine.advance import Keeping
from klip.engine.finish import Result, Unfinished
from klip.engine.run import Site
from klip.errors import KlipError
from klip.shapes import numbers, parse
from klip.studies.answering import Ending
from klip.studies.tuning import FIRST_SEED, ask, scored, search
from tests.studies.folders import make_run, small

SITE = Site(None, 2, "here")
OVER = ["lr=1e-5..1e-1", "eps", "anneal"]


class Trainer:
    """Writes runs that nobody trained: the best lr is 1e-3. Dies after so many of them."""

    def __init__(self, dies=None, diverges=()):
        self.trained, self.dies, self.diverges = [], dies, diverges

    def __call__(self, surveyed, runner):
        for job in surveyed.missing:
            if self.dies is not None and len(self.trained) == self.dies:
                raise KeyboardInterrupt
            level = 200 - 60 * abs(math.log10(job.lr) + 3) + 20 * numbers(parse(job.shape))["eps"]
            status = "diverged" if len(self.trained) in self.diverges else "done"
            make_run(surveyed.keeping.out, job.stored, status=status, level=level)
            self.trained.append(job.id)
        return [Result(job, None, "done", "", 0.0) for job in surveyed.jobs]


def asked(over=OVER, shape="clip", **more):
    more = {"trials": 12, "batch": 4, **small(minibatch=16), **more}
    return ask("CartPole-v1", shape, over, **more)


def found(question, out, train=None):
    return search(question, Keeping(out), SITE, train or Trainer())


@pytest.mark.parametrize("dies", [0, 3, 4, 7])
def test_killed_and_asked_again_the_trials_are_the_same(dies, tmp_path):
    question = asked()
    whole = found(question, tmp_path / "whole")
    first = Trainer(dies)
    with pytest.raises(KeyboardInterrupt):
        found(question, tmp_path / "killed", first)
    rest = Trainer()
    again = found(question, tmp_path / "killed", rest)
    assert again == whole
    assert len(first.trained) == dies
    assert len({*first.trained, *rest.trained}) == len(first.trained) + len(rest.trained)
    files = [next((tmp_path / name).glob("study-*.json")) for name in ("whole", "killed")]
    assert files[0].name == files[1].name
    assert files[0].read_bytes() == files[1].read_bytes()


def test_more_trials_go_on_from_those_there_are(tmp_path):
    few = found(asked(), tmp_path)
    train = Trainer()
    more = found(asked(trials=16), tmp_path, train)
    assert more.trials[:12] == few.trials
    assert len(train.trained) == 4
    fewer = found(asked(trials=4), tmp_path, train)
    assert fewer.trials == few.trials[:4]
    assert len(json.loads(next(tmp_path.glob("study-*.json")).read_text())["trials"]) == 16


def test_seeds_for_tuning_are_none_for_testing(tmp_path):
    tuned = found(asked(seeds=2, trials=4), tmp_path)
    seeds = {int(p.name.split("-")[1]) for p in tmp_path.rglob("seed-*")}
    assert seeds == {FIRST_SEED, FIRST_SEED + 1}
    path = tmp_path / "tuned.toml"
    path.write_text(tuned.plan)
    assert not {job.seed for job in read_plan(path).configs} & seeds


@pytest.mark.parametrize("preset", ["paper", "sb3"])
def test_what_was_found_is_a_plan(preset, tmp_path):
    question = asked([*OVER, "activation"], preset=preset, hidden=(8, 8),
                     task_args={"sutton_barto_reward": False})  # fmt: skip
    tuned = found(question, tmp_path)
    assert tuned.best.score == max(trial.score for trial in tuned.trials)
    path = tmp_path / "tuned.toml"
    path.write_text(tuned.plan)
    (job, *others) = read_plan(path).configs
    assert {other.seed for other in others} == set(range(1, 10))
    assert (job.lr, job.anneal) == (tuned.best.knobs["lr"], tuned.best.knobs["anneal"])
    assert job.shape == f"clip(eps={tuned.best.knobs['eps']})"
    trained = question.jobs(tuned.best.knobs)[0].stored
    assert {**job.stored, "seed": FIRST_SEED} == trained


def test_it_finds_what_there_is_to_find(tmp_path):
    tuned = found(asked(["lr=1e-5..1e-1", "anneal"], trials=32, batch=8), tmp_path)
    assert 3e-4 < tuned.best.knobs["lr"] < 3e-3
    assert next(iter(tuned.importance)) == "lr"
    assert json.loads(json.dumps(tuned.fields))["best"]["score"] == tuned.best.score


def test_a_run_that_diverged_counts_low_and_is_no_failure(tmp_path):
    tuned = found(asked(), tmp_path, Trainer(diverges={2, 5}))
    lost = [trial for trial in tuned.trials if None in trial.scores]
    assert len(lost) == 2
    assert all(trial.score <= min(t.score for t in tuned.trials[:4]) for trial in lost)


def test_scores_of_runs_that_diverged():
    good, bad = Ending(30.0, 20.0, 12.0, ""), Ending(None, None, float("nan"), "")
    assert scored("area", [[good], [bad]], [5.0]) == [(20.0, (20.0,)), (5.0, (None,))]
    assert scored("final", [[bad]], []) == [(0.0, (None,))]


def test_a_run_that_failed_stops_the_search(tmp_path):
    def failing(surveyed, runner):
        return [Result(job, None, "failed", "it raised", None) for job in surveyed.jobs]

    with pytest.raises(Unfinished, match="it raised"):
        found(asked(), tmp_path, failing)


def test_trials_that_another_version_asked_for_are_not_mixed_in(tmp_path):
    found(asked(), tmp_path)
    path = next(tmp_path.glob("study-*.json"))
    kept = json.loads(path.read_text())
    kept["trials"][5]["knobs"]["lr"] = 0.5
    path.write_text(json.dumps({**kept, "optuna": "3.0"}))
    with pytest.raises(KlipError, match=r"trial 5 of .* was another one, asked for by optuna 3.0"):
        found(asked(), tmp_path)
    for damaged in ("{", "[" * 9999, json.dumps({**kept, "trials": [5]})):
        path.write_text(damaged)
        with pytest.raises(KlipError, match="is damaged: delete it"):
            found(asked(), tmp_path)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"trials": 0}, "trials=0 must be at least 1"),
        ({"batch": 1.5}, "batch=1.5 must be a whole number"),
        ({"seeds": 0}, "seeds=0 must be at least 1"),
        ({"seed": -1}, "seed=-1 must be at least 0"),
        ({"metric": "best"}, "metric='best' must be one of final, area"),
        ({"lr": 1e-3}, "lr is given and searched over"),
        ({"preset": "sb4"}, "preset='sb4' must be one of"),
        ({"over": ["eps=-1..1"]}, "eps=-1.0 must be greater than 0"),
        ({"over": ["gamma=0.9,1.5"]}, "gamma=1.5 must lie between 0 and 1"),
        ({"over": ["rollout=1,8"], "rollout": 32}, "rollout is given and searched over"),
        ({"over": ["epochs=0,8"]}, "epochs=0 must be at least 1"),
        ({"over": ["activation=tanh,sine"]}, "activation='sine' must be one of"),
        ({"shape": "clap"}, "did you mean clip"),
    ],
)
def test_a_question_that_means_nothing_is_a_line(more, message):
    with pytest.raises(KlipError, match=message) as caught:
        asked(**more)
    assert "\n" not in str(caught.value)
