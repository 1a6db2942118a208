"""Presets are fields: which, on which task, and how a run of one is called."""

import json

import pytest

from klip.engine.labels import labels_of
from klip.errors import KlipError
from klip.ppo.config import Config, config, settings_in, usual_settings
from klip.ppo.presets import PRESETS, fields_of, named, shape_of
from klip.ppo.train import plan

OTHERS = [name for name in PRESETS if name != "paper"]


def test_the_papers_preset_is_what_there_is_without_one():
    for task in ("Hopper-v4", "CartPole-v1", "LunarLander-v3"):
        assert config(task, preset="paper") == config(task)
        assert config(task, preset="paper").id == config(task).id
    assert config("Hopper-v4").id == "0cd5f1855f"


@pytest.mark.parametrize("preset", OTHERS)
def test_a_preset_is_a_set_of_fields_and_a_field_beside_it_wins(preset):
    c = config("Pendulum-v1", preset=preset)
    assert all(getattr(c, name) == value for name, value in PRESETS[preset].fields.items()
               if name != "shape")  # fmt: skip
    assert config("Pendulum-v1", preset=preset, lr=0.01, shape="spo").lr == 0.01
    spelled = {name: getattr(c, name) for name in fields_of(preset, "Pendulum-v1")}
    assert Config("Pendulum-v1", **spelled) == c, "its name is not part of a run"


def test_a_preset_does_not_take_what_the_paper_sets_for_a_task():
    c = config("CartPole-v1", preset="sb3")
    assert (c.envs, c.rollout, c.normalise_observations) == (1, 2048, False)
    assert c.steps == config("CartPole-v1").steps, "but for how long it is trained"
    assert config("LunarLander-v3", preset="sb3").gamma == 0.99


def test_cleanrl_has_a_script_for_choices_and_one_for_real_numbers():
    box, choices = (config(task, preset="cleanrl") for task in ("Pendulum-v1", "CartPole-v1"))
    assert (box.envs, box.minibatch, box.epochs, box.lr) == (1, 64, 10, 3e-4)
    assert (choices.envs, choices.minibatch, choices.epochs, choices.lr) == (4, 128, 4, 2.5e-4)
    assert (box.steps, choices.steps) == (1_000_000, 500_000)
    assert {box.time_limits, choices.time_limits} == {"end"}
    assert box.normalise_observations > choices.normalise_observations


def test_shapes_of_presets():
    assert shape_of("brax") == "clip(eps=0.3)"
    assert plan("Pendulum-v1", seeds=1, preset="brax")[0].shape == "clip(eps=0.3)"
    assert plan("Pendulum-v1", seeds=1)[0].shape == "clip(eps=0.2)"
    assert plan("Pendulum-v1", "spo", 1, preset="brax")[0].shape == "spo(eps=0.2)"


def test_an_unknown_preset_names_those_there_are():
    for wrong in ("sb4", None, 3):
        with pytest.raises(KlipError, match="must be one of paper, sb3, cleanrl, spinning-up"):
            config("CartPole-v1", preset=wrong)


@pytest.mark.parametrize("preset", OTHERS)
def test_a_run_is_called_by_its_preset_and_what_differs_from_it(preset):
    jobs = [config("Pendulum-v1", shape="clip"), config("Pendulum-v1", shape="clip", preset=preset),
            config("Pendulum-v1", shape="clip", preset=preset, adam_b1=0.5)]  # fmt: skip
    first, second, third = labels_of(jobs)
    assert first == "clip"
    assert second.endswith(f"preset {preset}")
    assert "adam_b1 0.5" in third
    assert f"preset {preset}" in third


def test_naming_a_preset_tells_settings_apart():
    """No two configs have the same settings."""
    usual = usual_settings("Pendulum-v1")
    assert "preset" not in named(usual, usual)
    fields = [{}, {"anneal": False}, {"value_weight": 1.0}]
    jobs = [config("Pendulum-v1", preset=preset, **f) for preset in PRESETS for f in fields]
    ids = {job.id for job in jobs}
    assert len({json.dumps(settings_in(job.stored), sort_keys=True) for job in jobs}) == len(
        {json.dumps({**job.stored, "shape": ""}, sort_keys=True) for job in jobs}
    )
    assert len(ids) > 8
