"""What a run may say before a report believes it."""

import numpy as np
import pytest

import klip
from klip.engine import read_plan
from klip.pages.writing import report_of
from klip.ppo.config import usual_settings
from klip.runs.store import METRICS
from klip.studies.reading import read_study
from klip.studies.sound import odd_setting, sound_columns
from tests.studies.folders import config, make_run, make_study, small


@pytest.mark.parametrize("plan", ["paper", "scratchpad", "stale-replay"])
def test_every_config_of_a_plan_is_sound(plan):
    jobs = read_plan(plan).configs
    assert {odd_setting(job.stored) for job in jobs} == {""}


@pytest.mark.parametrize("value", [None, [], {}, "1", 10**400, float("nan"), True])
@pytest.mark.parametrize("name", ["steps", "lr", "envs", "seed", "place"])
def test_a_number_is_a_number(name, value):
    fields = {**usual_settings("Hopper-v4"), "task": "Hopper-v4", "shape": "clip", name: value}
    assert odd_setting(fields).startswith(f"its config has {name}=")


@pytest.mark.parametrize("more", [{"kind": "tokens"}, {"kind": "tokens", "warmup": 5},
                                  {"kind": []}, {"kind": "none"}, {"hidden": [0]},
                                  {"hidden": "64"}, {"anneal": 1}, {"ratio": 3}])  # fmt: skip
def test_other_fields(more):
    fields = {**usual_settings("Hopper-v4"), "task": "Hopper-v4", "shape": "clip", **more}
    assert odd_setting(fields)
    assert "\n" not in odd_setting(fields)


def test_a_config_as_training_writes_it_is_sound():
    assert odd_setting(klip.Config("CartPole-v1").stored) == ""
    assert odd_setting({**klip.Config("CartPole-v1").stored, "hidden": []}) != ""


def test_columns_of_another_width():
    numbers, lists = np.zeros(3), np.zeros((3, 9))
    given = {"kl": numbers, "beta": lists, "kill": lists, "age.kl": numbers, "beta_kill": numbers}
    given["beta_kill"] = np.full(3, np.nan)
    kept, notes = sound_columns(given)
    assert set(kept) == {"kl", "beta", "beta_kill"}
    assert len(notes) == 2


def test_one_run_that_failed_does_not_spoil_the_report(tmp_path):
    """Whatever its config says; the others are reported, and it is named."""
    make_study(tmp_path, seeds=2, **small())
    odd = [
        config(shape="clip(eps=kl(b=1.0))", **small()),
        config(shape="no such shape", **small()),
        config(shape="", **small()),
        config(seed=9, **small(lr=[1])),
        config(seed=9, **small(hidden="x")),
        config(seed=9, **small(steps=10**12)),
        {"kind": "of another time", "task": "CartPole-v1", "shape": "clip", "seed": 0},
    ]
    for each in odd:
        make_run(tmp_path, {**small(), **each, "steps": 1280}, 0, "failed", "it was \x1b[2J odd")
    path = make_run(tmp_path, config(seed=8, **small(steps=10**12)), 3, "failed")
    (path / METRICS).write_text("{}\n")
    study = read_study(tmp_path)
    assert len(study.trouble) >= 3
    assert {"done", "failed"} <= {run.status for run in study.runs}
    page = report_of(study).page()
    assert "\x1b" not in page
    assert "CartPole-v1" in page
