"""The rules of a league: who plays where, with which radius, on which seeds."""

import dataclasses

import pytest

from klip.engine import read_plan
from klip.engine.advance import Keeping
from klip.engine.finish import survey
from klip.errors import KlipError
from klip.shapes import Controller, Shape, catalogue, parse
from klip.studies.league import Course, knob_of, rules_from, scaled
from tests.studies.leagues import play, rules, small, train


@pytest.mark.parametrize("name", [*catalogue(Shape), *catalogue(Controller)])
def test_every_shipped_shape_says_its_knob_and_can_turn_it(name):
    region = parse(name)
    knob = knob_of(region)
    assert scaled(region, knob, 1.0) == str(region)
    if knob:
        turned = parse(scaled(region, knob, 2.0))
        changed = {k for k, v in turned.parameters.items() if v != region.parameters.get(k)}
        assert changed
        assert changed <= set(knob)


def test_the_shipped_league_is_what_was_asked_for():
    stages = read_plan("league").course
    assert isinstance(stages, Course)
    r = stages.rules
    assert 20 <= len(r.shapes) <= 24
    assert {"Hopper-v4", "HalfCheetah-v4", "Walker2d-v4"} == set(r.tasks)
    assert [s.config for s in r.stress] == [{"epochs": 10}, {"epochs": 40}]
    assert (r.factors, r.tuning.seeds, len(r.testing.seeds)) == ((0.5, 1, 2, 4), (1000, 1001), 8)
    assert len(read_plan("league").configs) == (20 * 4 + 1) * 2 * 6


def test_no_shape_of_the_shipped_league_needs_the_probability_of_an_action():
    """Its tasks have continuous actions, of which there are densities alone."""
    stages = read_plan("league").course
    assert isinstance(stages, Course)
    needs = {name: parse(name).initial.needs for name in stages.rules.shapes}
    assert not [name for name, of in needs.items() if "old_log_prob" in of]
    assert "old_log_prob" in parse("dppo-tv").initial.needs


def test_a_stage_has_every_shape_radius_cell_and_seed_once():
    trials = rules().trials("tuning")
    assert len({t.job.id for t in trials}) == len(trials) == (3 * 3 + 1) * 4 * 2
    assert {t.cell for t in trials} == set(rules().cells)
    assert {t.job.epochs for t in trials if t.stress == "K = 2"} == {2}
    assert not {t.job.seed for t in trials} & {t.job.seed for t in rules().trials("testing")}


def test_rules_survive_json():
    import json

    newcomer = rules().with_newcomer("ramp", ["width"])
    for r in (rules(), newcomer):
        assert rules_from(json.loads(json.dumps(r.fields))) == r


def test_a_part_of_a_league_keeps_its_scale():
    part = rules().only(["CartPole-v1"], ["spo"])
    assert part.shapes == ("clip(eps=0.2)", "spo(eps=0.2)")
    assert part.tasks == ("CartPole-v1",)


def test_a_quick_league_is_one_cell_and_says_so():
    stages = read_plan("league").course
    assert isinstance(stages, Course)
    quick = stages.rules.quick()
    assert len(quick.cells) == 1
    assert len(quick.testing.seeds) == 3
    assert quick.testing.config["steps"] == quick.tuning.config["steps"] == 200_000


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"shapes": ["spo", "clip"]}, "the first of the shapes must be clip"),
        ({"factors": [2, 4]}, "with 1 among them"),
        ({"tuning": {"seeds": [3]}}, "seed 3 is also one of"),
        ({"colour": 1}, "'colour' is not known"),
        ({"stress": [{"name": "x", "config": {"epoch": 1}}]}, "no config field is called 'epoch'"),
        ({"shapes": ["clip", "clip + kl-k3"]}, "does not say which parameter sets its radius"),
    ],
)
def test_rules_that_mean_nothing_are_a_line(more, words):
    with pytest.raises(KlipError, match=words):
        rules(**more)


def test_a_league_needs_all_its_parts():
    from klip.studies.league import read_rules
    from tests.studies.leagues import PLAN

    with pytest.raises(KlipError, match="a league needs stress"):
        read_rules({k: v for k, v in PLAN.items() if k != "stress"})


@pytest.mark.parametrize(
    ("shape", "knob", "words"),
    [
        ("clip", (), "plays in the league already"),
        ("ramp", ("length",), "ramp has no parameter 'length' to tune; it has eps, width"),
        ("clip + kl-k3", (), "does not say which parameter sets its radius"),
        ("clip + kl-k3", (), "one or more of shape.eps, penalty.b"),
        ("clip + kl-k2 + kl-k3", ("b",), "'b' several times: give shape.penalty.b, penalty.b"),
        ("topr", ("sign",), "is no number that can be tuned"),
    ],
)
def test_a_newcomer_that_cannot_play_is_a_line(shape, knob, words):
    with pytest.raises(KlipError, match=words):
        rules().with_newcomer(shape, knob)


def test_a_newcomer_may_be_composed_and_its_knob_in_a_part():
    composed = rules().with_newcomer("clip + kl-k3", ["shape.eps", "b"])
    assert {t.job.shape for t in composed.trials("tuning")} == {
        "clip(eps=0.1) + kl-k3(b=0.5)",
        "clip(eps=0.2) + kl-k3(b=1.0)",
        "clip(eps=0.4) + kl-k3(b=2.0)",
    }


def test_a_shape_without_a_number_has_no_radius():
    @dataclasses.dataclass(frozen=True)
    class Plain(Shape):
        def multiplier(self, s):
            return s.w * s.advantage

    assert knob_of(Plain()) == ()


def test_stages_follow_each_other_to_the_end(tmp_path):
    plan, keeping = small(), Keeping(tmp_path)
    assert (plan.stage, plan.only().stage) == ("tuning", "tuning")
    train(plan.configs, tmp_path)
    testing = plan.next(keeping)
    assert testing.stage == "testing"
    assert {c.seed for c in testing.configs} == {0, 1, 2, 3}
    foreseen = {job.id for job in plan.course.all_jobs(keeping)}
    assert foreseen == {c.id for c in (*plan.configs, *testing.configs)}
    train(testing.configs, tmp_path)
    assert testing.next(keeping) is None
    assert not survey(plan.course.all_jobs(keeping), keeping).missing


def test_seeds_and_steps_of_stages_are_the_plans(tmp_path):
    with pytest.raises(KlipError, match="goes in stages, each with seeds and steps of its own"):
        small().only(seeds=2)
    assert small().only(["CartPole-v1"], ["spo"]).course.rules.tasks == ("CartPole-v1",)


def test_playing_on_repeats_nothing(tmp_path):
    play(small(), tmp_path)
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("seed-*/*")}
    play(small(), tmp_path)
    assert stamps == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("seed-*/*")}
    assert dataclasses.is_dataclass(rules())
