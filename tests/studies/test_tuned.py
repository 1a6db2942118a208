"""Tuning on some seeds, testing on others: what is chosen, and that it is chosen once."""

import json
import shutil

import pytest

import klip
from klip.engine.advance import Keeping
from klip.engine.plan import read_plan
from klip.errors import KlipError
from klip.studies.tuned import choose, read
from tests.studies.folders import make_run
from tests.studies.leagues import TINY, play

PLAN = {
    "kind": "tuned",
    "tasks": ["CartPole-v1", "Acrobot-v1"],
    "config": TINY,
    "tuning": {
        "seeds": 2,
        "families": [
            {"name": "fixed", "shapes": ["kl(b=0.5)", "kl(b=1)"]},
            {"name": "spo", "shapes": ["spo", "spo(eps=0.4)"]},
        ],
    },
    "testing": {"seeds": [10, 11, 12], "shapes": ["clip"]},
}


def with_(**more):
    return {**PLAN, **more}


@pytest.fixture
def played(tmp_path):
    out = tmp_path / "runs"
    return out, play(read("small", PLAN), out)


def test_the_best_of_each_family_is_tested_on_seeds_that_it_has_not_seen(played):
    """`leagues.level` makes SPO best with 0.4."""
    out, made = played
    assert len(made) == 2 * 4 * 2 + 2 * 3 * 3
    tested = read("small", PLAN).next(Keeping(out))
    for task in PLAN["tasks"]:
        fixed, *others = sorted({j.shape for j in tested.configs if j.task == task}, key=len)
        assert fixed in ("kl(b=0.5)", "kl(b=1.0)")
        assert others == ["spo(eps=0.4)", "clip(eps=0.2)"]
    assert {job.seed for job in tested.configs} == {10, 11, 12}
    assert tested.next(Keeping(out)) is None


def test_each_task_has_a_choice_of_its_own_and_a_run_that_diverged_is_the_lowest(tmp_path):
    plan = read("small", PLAN)
    for job in plan.configs:
        best = job.shape == ("kl(b=0.5)" if job.task == "CartPole-v1" else "kl(b=1.0)")
        fails = job.shape == "spo(eps=0.4)" and job.seed == 1
        make_run(
            tmp_path, job.stored, level=90.0 if best or fails else 50.0,
            status="diverged" if fails else "done",
        )  # fmt: skip
    scores = choose(plan.course.rules, Keeping(tmp_path))
    tested = plan.next(Keeping(tmp_path)).configs
    chosen = {(job.task, job.shape) for job in tested if job.shape.startswith("kl")}
    assert chosen == {("CartPole-v1", "kl(b=0.5)"), ("Acrobot-v1", "kl(b=1.0)")}
    spo = scores["CartPole-v1"]["spo"]
    assert spo["spo(eps=0.4)"] <= spo["spo(eps=0.2)"]


def test_the_choice_is_kept_whatever_happens_to_the_runs(played):
    out, _ = played
    rules = read("small", PLAN).course.rules
    before, text = choose(rules, Keeping(out)), (out / rules.file.name).read_bytes()
    shutil.rmtree(out / "CartPole-v1")
    assert choose(rules, Keeping(out)) == before
    assert (out / rules.file.name).read_bytes() == text
    (out / rules.file.name).unlink()
    with pytest.raises(KlipError, match="nothing is tuned again after a look at tests"):
        choose(rules, Keeping(out))


def test_a_pack_carries_the_choice(played, tmp_path):
    out, _ = played
    klip.pack(out, tmp_path / "packed")
    assert play(read("small", PLAN), tmp_path / "new", have=[tmp_path / "packed"]) == []


@pytest.mark.parametrize("scores", [[], {"CartPole-v1": {}}, {"CartPole-v1": [1]}, 3])
def test_scores_that_are_none_are_refused_though_the_seal_is_right(tmp_path, scores):
    rules = read("small", PLAN).course.rules
    rules.file.write(Keeping(tmp_path), {"scores": scores})
    with pytest.raises(KlipError, match="damaged or was edited"):
        choose(rules, Keeping(tmp_path))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tuning": {"families": []}}, "there must be .*families"),
        ({"tuning": {"families": [{"shapes": ["clip"]}]}}, "a name of its own"),
        ({"tuning": {"families": [{"name": "a", "shapes": "clip"}]}}, "must be a list of names"),
        ({"tuning": {**PLAN["tuning"], "seeds": [10]}}, "seed 10 is also one of"),
        ({"tasks": []}, "tasks must be a list of names"),
        ({"testing": 3}, "there must be a table"),
        ({"config": {"stepz": 3}}, "stepz"),
        ({"runs": []}, "'runs' is not known"),
    ],
)
def test_bad_rules_are_named(change, says):
    with pytest.raises(KlipError, match=says):
        read("small", with_(**change))


def test_a_part_of_it_is_some_tasks_with_all_shapes():
    plan = read("small", PLAN)
    assert {job.task for job in plan.only(["Acrobot-v1"]).configs} == {"Acrobot-v1"}
    with pytest.raises(KlipError, match="no task 'Ant-v4'"):
        plan.only(["Ant-v4"])
    with pytest.raises(KlipError, match="needs all of them"):
        plan.only(shapes=["spo"])


def test_the_shipped_plan_says_its_whole_length(tmp_path):
    """14 settings x 3 seeds, then 2 + 3 settings x 5 seeds, on two tasks."""
    plan = read_plan("scalar-tuned")
    assert len(plan.course.all_jobs(Keeping(tmp_path))) == 2 * (14 * 3 + 5 * 5)
    assert json.dumps(plan.course.rules.fields)
