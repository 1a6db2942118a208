"""What is refused before anything starts, and what a run's id depends on."""

import pytest

from klip.errors import KlipError
from klip.ppo.config import config, lockstep_key


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
        ({"learning_rate": 1.0}, "no config field is called 'learning_rate'"),
        ({"shape": "clap"}, "did you mean clip"),
        ({"shape": "clip(eps=by-age)"}, "needs age"),
        ({"shape": "position-aware"}, "needs length"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(KlipError, match=message):
        config("CartPole-v1", **fields)


def test_an_unknown_task_suggests_near_ones():
    with pytest.raises(KlipError, match="Hopper"):
        config("Hoper-v4")


def test_equal_runs_have_equal_ids():
    assert config("CartPole-v1", shape="clip").id == config("CartPole-v1", shape="clip(eps=0.2)").id
    ids = {config("CartPole-v1", **f).id for f in ({}, {"seed": 1}, {"lr": 1e-3}, {"shape": "spo"})}
    assert len(ids) == 4


def test_lockstep_needs_equal_sizes_only():
    base = config("CartPole-v1")
    same = config("CartPole-v1", seed=3, shape="spo", lr=1e-3, gamma=0.9)
    assert lockstep_key(base) == lockstep_key(same)
    assert lockstep_key(base) != lockstep_key(config("CartPole-v1", rollout=64))
