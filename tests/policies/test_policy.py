"""A policy acts as the trainer did, and refuses what is not one."""

import dataclasses

import gymnasium
import numpy as np
import pytest

from klip.engine.random import stream
from klip.errors import KlipError
from klip.policies import load
from klip.policies.policy import policy_of
from klip.ppo import policy as trainer
from klip.ppo.normalise import Moments, normalise
from klip.tasks import Box, Discrete, MultiDiscrete
from tests.policies.runs import arrays_of, config_of

BOX = Box(np.array([-1, -0.5], np.float32), np.array([1, 0.25], np.float32))
ACTIONS = {
    "box": (BOX, 0),
    "wide box": (Box(np.array([-0.3]), np.array([0.3])), 0),
    "unbounded box": (Box(np.float32([-np.inf]), np.float32([np.inf])), 0),
    "discrete": (Discrete(3), 0),
    "from one": (Discrete(4), 1),
    "several": (MultiDiscrete((2, 3, 4)), [0, 5, -1]),
}


def made(kind, size=6, **fields):
    action, start = ACTIONS[kind]
    config = config_of("Any-v0", **fields)
    return policy_of(config, arrays_of(config, size, action, start))


def trainers(policy, observation, noise):
    """What the trainer's own functions give for one environment of one run."""
    x = observation[None, None].astype(np.float32)
    if policy.moments is not None:
        moments = Moments(policy.moments.mean, policy.moments.variance, np.ones(1))
        x = normalise(observation[None, None], moments, 10.0)
    draw = trainer.actor(policy.layout, dict(policy.arrays), noise[None, None, None])
    raw = draw(x, 0)[0, 0]
    if isinstance(policy.action, Box):
        return trainer.bounded(policy.layout, raw, policy.action)
    return raw + policy.start


@pytest.fixture(params=ACTIONS)
def kind(request):
    return request.param


KINDS = {
    "relu": {"activation": "relu", "value_hidden": (5,)},
    "swish": {"activation": "swish", "layer_norm": True},
    "elu, shared": {"activation": "elu", "shared_trunk": True, "layer_norm": True},
    "squashed": {"state_std": True, "squash": True},
    "squashed, shared": {"squash": True, "shared_trunk": True},
}
every_network = pytest.mark.parametrize("networks", KINDS.values(), ids=KINDS.keys())


@every_network
def test_every_kind_of_network_acts_as_the_trainer_does(networks):
    policy = made("box", **networks)
    rows = 3 * stream(0, "seen").standard_normal((30, 6))
    for i, observation in enumerate(rows):
        noise = policy.noise(np.random.default_rng(i))
        expected = trainers(policy, observation, noise)
        given = policy.act(observation, deterministic=False, rng=np.random.default_rng(i))
        assert given.tobytes() == expected.tobytes()
    likeliest = trainers(policy, rows[0], np.zeros(2, np.float32))
    np.testing.assert_allclose(policy.act(rows[0]), likeliest, rtol=1e-6)
    assert policy.value(rows).shape == (30,)
    for name, value in networks.items():
        assert getattr(policy.layout, name) == value


def test_an_activation_that_there_is_not():
    config = config_of("Any-v0")
    with pytest.raises(KlipError, match="its config says activation='sine', which cannot be"):
        policy_of({**config, "activation": "sine"}, arrays_of(config, 6, BOX))


@pytest.mark.parametrize("normalised", [True, False])
def test_the_bits_are_the_trainers(kind, normalised):
    policy = made(kind, normalise_observations=normalised, hidden=(64, 64))
    for i in range(50):
        observation = 3 * stream(i, "seen").standard_normal(6)
        noise = policy.noise(np.random.default_rng(i))
        expected = trainers(policy, observation, noise)
        given = policy.act(observation, deterministic=False, rng=np.random.default_rng(i))
        assert given.tobytes() == expected.tobytes()


def test_deterministic_is_sampling_without_noise(kind):
    policy = made(kind)
    rows = stream(0, "seen").standard_normal((40, 6))
    if policy.layout.gaussian:
        still = np.zeros((40, policy.noise_size), np.float32)
        assert np.array_equal(policy.act(rows), policy.choose(rows, still))
    else:
        parts = np.split(policy.outputs(rows), np.cumsum(policy.layout.heads)[:-1], axis=1)
        best = np.stack([part.argmax(axis=1) for part in parts], axis=1) + policy.start
        assert np.array_equal(policy.act(rows).reshape(40, -1), best)
        assert len(np.unique(best, axis=0)) > 1, "the test would see nothing"


def test_an_action_does_not_depend_on_its_batch(kind):
    policy = made(kind, size=40, hidden=(64, 64))
    rows = stream(0, "seen").standard_normal((33, 40))
    whole = policy.act(rows)
    for size in (1, 2, 5, 32):
        assert np.array_equal(policy.act(rows[:size]), whole[:size])
    assert np.array_equal(policy.act(rows[7]), whole[7])
    assert np.array_equal(policy.value(rows)[7], policy.value(rows[7]))
    assert len(policy.act(rows[:0])) == 0


def test_actions_are_as_the_environment_takes_them(kind):
    policy = made(kind)
    rng = np.random.default_rng(0)
    rows = 30 * rng.standard_normal((50, 6))
    match policy.action:
        case Box(low=low, high=high):
            space = gymnasium.spaces.Box(low, high, dtype=low.dtype)
        case Discrete(n=n):
            space = gymnasium.spaces.Discrete(n, start=int(policy.start))
        case multi:
            space = gymnasium.spaces.MultiDiscrete(multi.n, start=policy.start)
    for sampled in (False, True):
        actions = policy.act(rows, deterministic=not sampled, rng=rng)
        assert all(space.contains(action) for action in actions)
        assert space.contains(policy.act(rows[0], deterministic=not sampled, rng=rng))


def test_sampling_follows_the_distribution():
    policy = made("box")
    row = np.zeros((4000, 6))
    free = dataclasses.replace(policy, action=Box(np.full(2, -9.0), np.full(2, 9.0)))
    drawn = free.act(row, deterministic=False, rng=np.random.default_rng(0))
    assert np.allclose(drawn.mean(axis=0), free.act(row[0]), atol=0.05)
    assert np.allclose(drawn.std(axis=0), np.exp(policy.arrays["policy.log_std"][0]), rtol=0.05)


def test_using_it_changes_nothing(runs):
    policy = load(runs["Hopper-v4"])
    before = {name: array.tobytes() for name, array in policy.arrays.items()}
    mean = policy.moments.mean.copy()
    observation = np.full(11, 1e6)
    first = policy.act(observation)
    for _ in range(3):
        policy.act(np.tile(observation, (5, 1)), deterministic=False, rng=np.random.default_rng(1))
    assert np.array_equal(policy.act(observation), first)
    assert {name: array.tobytes() for name, array in policy.arrays.items()} == before
    assert np.array_equal(policy.moments.mean, mean)
    with pytest.raises(ValueError, match="read-only"):
        policy.moments.mean[:] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.limit = 3
    with pytest.raises(TypeError):
        policy.config["task"] = "Other-v0"


@pytest.mark.parametrize(
    "observation", [np.zeros(5), np.zeros((2, 5)), np.zeros((1, 1, 6)), 3.0, "abc", [[1], [2, 3]]]
)
def test_another_size_is_refused(observation):
    with pytest.raises(KlipError, match=r"takes \[6\] or \[N, 6\]"):
        made("box").act(observation)


def test_a_sample_needs_random_numbers():
    with pytest.raises(KlipError, match="give rng="):
        made("box").act(np.zeros(6), deterministic=False)


def test_lists_are_observations_too():
    policy = made("discrete")
    assert policy.act([0] * 6) == policy.act(np.zeros(6, np.float32))
    assert policy.observation_size == 6
    assert policy.action == Discrete(3)
    assert policy.config["shape"] == "clip(eps=0.2)"


DAMAGE = {
    "no parameters": (lambda a: [a.pop(k) for k in list(a) if k.startswith("policy")], "train it"),
    "no weights": (lambda a: a.pop("policy.0.weight"), "policy.0.weight"),
    "no value": (lambda a: a.pop("value.1.bias"), "value.1.bias"),
    "no bounds": (lambda a: a.pop("action.low"), "action.heads"),
    "no upper bound": (lambda a: a.pop("action.high"), "action.high"),
    "no statistics": (lambda a: a.pop("observation.mean"), "observation.mean"),
    "flat weights": (lambda a: a.update({"policy.0.weight": np.zeros(9, "f4")}), "two axes"),
    "wrong size": (lambda a: a.update({"policy.1.weight": np.zeros((2, 2), "f4")}), "shape"),
    "no width": (lambda a: a.update({"policy.1.bias": np.zeros(0, "f4")}), "shape"),
    "other numbers": (lambda a: a.update({"policy.1.bias": np.zeros(8, "i4")}), "int32"),
    "text as numbers": (lambda a: a.update({"action.low": np.zeros(2, "u1")}), "uint8"),
    "not finite": (lambda a: a["policy.0.bias"].fill(np.nan), "not finite"),
    "crossed bounds": (lambda a: a.update({"action.low": np.float32([2, 2])}), "bounds"),
    "negative variance": (lambda a: a["observation.variance"].fill(-1), "impossible"),
    "surplus layer": (lambda a: a.update({"policy.9.weight": np.zeros((1, 1), "f4")}), "no array"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_policy_is_refused(damage):
    config = config_of("Any-v0")
    arrays = {k: np.array(v) for k, v in arrays_of(config, 6, BOX).items()}
    spoil, named = DAMAGE[damage]
    spoil(arrays)
    with pytest.raises(KlipError, match=named):
        policy_of(config, arrays)


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"action.heads": np.array([], "i8")}, "counts of choices"),
        ({"action.heads": np.array([0])}, "counts of choices"),
        ({"action.heads": np.array([3.0])}, "integer"),
        ({"action.start": np.array([0, 0])}, "2 numbers for 1"),
        ({"action.start": np.array([0.5])}, "integer"),
    ],
)
def test_choices_that_cannot_be_are_refused(arrays, named):
    config = config_of("Any-v0")
    with pytest.raises(KlipError, match=named):
        policy_of(config, {**arrays_of(config, 6, Discrete(3)), **arrays})


@pytest.mark.parametrize(
    "fields",
    [
        {"normalise_observations": "yes"},
        {"observation_clip": None},
        {"observation_clip": True},
        {"observation_clip": -1.0},
    ],
)
def test_a_config_that_cannot_be_is_refused(fields):
    config = config_of("Any-v0")
    with pytest.raises(KlipError, match=r"cannot be|impossible"):
        policy_of({**config, **fields}, arrays_of(config, 6, BOX))
