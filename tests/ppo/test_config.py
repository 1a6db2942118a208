"""What is refused before anything starts, and what a run's id depends on."""

import dataclasses
import json

import numpy as np
import pytest

from klip.engine.fields import whole
from klip.errors import KlipError
from klip.ppo.config import Config, check, check_task, config, lockstep_key


def test_the_papers_defaults():
    hopper = config("Hopper-v4")
    assert (hopper.envs, hopper.rollout, hopper.iterations) == (1, 2048, 488)
    assert (hopper.epochs, hopper.minibatch, hopper.lr) == (10, 64, 3e-4)
    cart = config("CartPole-v1")
    assert (cart.envs, cart.rollout, cart.iterations) == (4, 128, 195)
    assert not cart.normalise_observations
    assert not cart.normalise_rewards


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 511}, "less than one rollout of 4 x 128 = 512"),
        ({"minibatch": 513}, "larger than a rollout of 4 x 128 = 512"),
        ({"rollout": 0}, "rollout=0 must be at least 1"),
        ({"gamma": 1.5}, "gamma=1.5 must lie between 0 and 1"),
        ({"lr": 0.0}, "lr=0.0 must be greater than 0"),
        ({"hidden": ()}, "hidden"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**63}, "seed=9223372036854775808 must be a whole number below 2"),
        ({"steps": 2048.5}, "steps=2048.5 must be a whole number"),
        ({"anneal": "no"}, "anneal='no' must be true or false"),
        ({"normalise_advantages": "batch"}, "must be one of rollout, minibatch, weighted, none"),
        ({"lr": float("inf")}, "lr=inf must be a finite number"),
        ({"adam_b1": 1.0}, "adam_b1=1.0 must be at least 0 and less than 1"),
        ({"processes": -1}, "processes=-1 must be at least 0"),
        ({"task_args": {"a": object()}}, "task_args has a=<object"),
        ({"learning_rate": 1.0}, "no config field is called 'learning_rate'"),
        ({"shape": "clap"}, "did you mean clip"),
        ({"shape": "clip(eps=by-age)"}, "needs age, and there is none with lag=0 and replay=1"),
        ({"shape": "truncate * clip"}, "needs behaviour_log_ratio, and there is none"),
        ({"lag": -1}, "lag=-1 must be at least 0"),
        ({"replay": 0}, "replay=0 must be at least 1"),
        ({"lag": 195}, r"lag=195 is longer than the run of 195 iterations \(100000 steps in"),
        ({"replay": 200}, "replay=200 is longer than the run of 195 iterations"),
        ({"ratio": "both"}, "must be one of behaviour, decoupled, proximal"),
        ({"replay": 2, "age_weights": "1 2 3"}, "as many numbers as replay=2"),
        ({"replay": 2, "age_weights": "0 1"}, "the first above 0"),
        ({"replay": 2, "age_weights": "young"}, "must be uniform, geppo, or"),
        ({"lag": 1, "ratio": "decoupled", "shape": "truncate * clip"}, "would do so once more"),
        ({"correction_cap": 0.0}, "correction_cap=0.0 must be greater than 0"),
        ({"shape": "position-aware"}, "needs length"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(KlipError, match=message):
        config("CartPole-v1", **fields)


def test_an_unknown_task_suggests_near_ones():
    with pytest.raises(KlipError, match="Hopper"):
        check_task(config("Hoper-v4"))
    with pytest.raises(KlipError, match="steps all its copies in one call"):
        check_task(config("CartPole-v1", processes=2))
    with pytest.raises(KlipError, match=r"Pendulum-v1 could not be made: TypeError.*colour"):
        check_task(config("Pendulum-v1", task_args={"colour": 1}))


def test_a_config_is_checked_when_it_is_made():
    """However it is made; and whole numbers may be written as floats."""
    assert config("CartPole-v1", steps=1e5, seed=np.int64(3)) == config("CartPole-v1", seed=3)
    assert Config("CartPole-v1", steps=2.048e3).iterations == 1
    assert type(dataclasses.replace(config("CartPole-v1"), steps=1024.0).iterations) is int
    with pytest.raises(KlipError, match="anneal='no' must be true or false"):
        Config("CartPole-v1", anneal="no")
    with pytest.raises(KlipError, match="seed="):
        dataclasses.replace(config("CartPole-v1"), seed=2**63)


def test_ids_of_runs_from_before_there_were_arguments_of_tasks():
    """What they are a function of is spelled, and hashed, as it was."""
    assert config("Hopper-v4").id == "0cd5f1855f"
    assert config("CartPole-v1", seed=3, lr=1e-3, shape="spo").id == "03180726bd"
    stored = config("Hopper-v4").stored
    assert not stored.keys() & {"task_args", "task_code", "processes"}
    assert whole(Config, json.loads(json.dumps(stored))) == config("Hopper-v4")


def test_arguments_of_a_task_make_another_run_and_processes_do_not():
    one = config("Pendulum-v1", task_args={"g": 9, "b": (1, 2)})
    assert one == config("Pendulum-v1", task_args="b=(1, 2), g=9")
    assert one.arguments == {"g": 9, "b": (1, 2)}
    assert one.id != config("Pendulum-v1").id
    assert whole(Config, json.loads(json.dumps(one.stored))) == one
    many = config("Pendulum-v1", processes=4)
    assert many.stored["processes"] == 4
    assert many.id == config("Pendulum-v1").id


def test_a_task_in_a_file_that_was_edited_is_another_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n")
    before = config("mine.py:Env-v0")
    assert config("mine:Env-v0").task_code == before.task_code != ""
    assert config("json:Env-v0").task_code == ""
    file.write_text("x = 2\n")
    assert config("mine.py:Env-v0").id != before.id
    with pytest.raises(KlipError, match=r"the file of the task mine\.py:Env-v0 has changed"):
        check(before)
    check(dataclasses.replace(before, task_code=""))  # from before tasks had digests


def test_equal_runs_have_equal_ids():
    assert config("CartPole-v1", shape="clip").id == config("CartPole-v1", shape="clip(eps=0.2)").id
    ids = {config("CartPole-v1", **f).id for f in ({}, {"seed": 1}, {"lr": 1e-3}, {"shape": "spo"})}
    assert len(ids) == 4


def test_lockstep_needs_equal_sizes_only():
    base = config("CartPole-v1")
    same = config("CartPole-v1", seed=3, shape="spo", lr=1e-3, gamma=0.9)
    assert lockstep_key(base) == lockstep_key(same)
    assert lockstep_key(base) != lockstep_key(config("CartPole-v1", rollout=64))


def test_what_is_collected_and_what_is_learned_from():
    """Two numbers; gradient steps are as many as without replay, unless asked to grow."""
    c = config("CartPole-v1", replay=4)
    assert (c.batch, c.learned, c.passes) == (512, 2048, 10)
    assert config("CartPole-v1", replay=4, gradient_steps="grow").passes == 40
    assert not c.fresh
    assert not config("CartPole-v1", lag=1).fresh
    assert config("CartPole-v1").fresh


def test_shapes_hear_of_age_with_a_lag_or_a_replay():
    for old in ({"lag": 1}, {"replay": 2}):
        check(config("CartPole-v1", shape="clip(eps=by-age)", **old))
    with pytest.raises(KlipError, match="needs length"):
        config("CartPole-v1", shape="position-aware", lag=1)


def test_weights_by_age():
    assert config("CartPole-v1", replay=3, age_weights="2, 1 0").newest_first == (2.0, 1.0, 0.0)
    geppo = config("CartPole-v1", replay=4, age_weights="geppo").newest_first
    assert np.array(geppo) / 4 == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert config("CartPole-v1", replay=4).newest_first == (1.0,) * 4


def test_fields_of_old_samples_change_no_id_of_before():
    """At their defaults they are not stored."""
    old = {"lag", "replay", "gradient_steps", "ratio", "correction_cap", "trace", "age_weights"}
    assert not old & config("Hopper-v4").stored.keys()
    assert config("Hopper-v4", lag=1).id != config("Hopper-v4").id
    mine = config("Hopper-v4", lag=1, replay=2, age_weights="2 1", ratio="decoupled")
    assert mine.stored["lag"] == 1
    assert whole(Config, json.loads(json.dumps(mine.stored))) == mine
