"""The compiled epochs, against whole-network losses written the usual way."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from klip.errors import KlipError
from klip.ppo import policy
from klip.ppo.advantages import preparation
from klip.ppo.config import Config
from klip.ppo.member import program
from klip.ppo.update import TROUBLES, Learner, epochs, optimiser
from klip.shapes import (
    SPO,
    Clip,
    Controller,
    PerSample,
    Shape,
    numbers,
    parse,
    structure,
    where,
)
from klip.shapes.region import FEEDBACK_FIELDS
from klip.tasks import Box
from klip.theory import diagnostics
from klip.theory.diagnostics import Observed, totals
from tests.ppo.test_advantages import rollout

SIZE = 4


def setting(**fields):
    """A learner, a batch whose policy has already moved, and a config of one rollout."""
    fields = {"rollout": 60, "envs": 3, "minibatch": 60, "epochs": 1, "steps": 180, **fields}
    c = Config("x", **fields)
    rng = np.random.default_rng(0)
    box = Box(-np.ones(2, np.float32), np.ones(2, np.float32))
    layout = policy.layout_of(SIZE, box, (16,))
    r = rollout(rng)._replace(action=rng.normal(size=(60, 3, 2)).astype(np.float32))
    old = policy.initial(layout, 0)
    batch = preparation(layout, program(c))(old, r)
    moved = jnp.asarray(old + rng.normal(0, 0.15, old.shape).astype(np.float32))
    return c, layout, Learner(moved, optimiser(c).init(moved)), batch


def run(c, layout, learner, batch, shape, orders=None, lr=3e-4, progress=0.25):
    value = parse(shape) if isinstance(shape, str) else shape
    names = numbers(value)
    if orders is None:
        rng = np.random.default_rng(1)
        orders = np.stack([rng.permutation(c.batch) for _ in range(c.epochs)])
    update = epochs(layout, program(c), structure(value), tuple(names))
    return update(
        learner,
        {k: jnp.float32(v) for k, v in value.init().items()},
        np.array(list(names.values()), np.float32),
        batch,
        orders.astype(np.int32),
        np.ones(len(orders), bool),
        np.float32(lr),
        np.float32(0),
        np.float32(progress),
    )


def by_hand(c, layout, learner, batch, orders, surrogate, lr):
    """Minibatch after minibatch of one loss through the whole network, as everybody writes it."""
    adam, vector, state = optimiser(c), learner.vector, learner.optimiser
    for order in orders:
        for start in range(0, c.batch, c.minibatch):
            b = jax.tree.map(lambda x: x[order[start : start + c.minibatch]], batch)  # noqa: B023

            def loss(vector, b=b):
                arrays = layout.split(vector)
                new = policy.distribution(layout, arrays, b.observation)
                log_prob = policy.log_prob(layout, new, b.action)
                w = jnp.exp(log_prob - b.old_log_prob)
                v = policy.network(layout, arrays, "value", b.observation)[:, 0]
                near = b.old_value + jnp.clip(v - b.old_value, -0.2, 0.2)
                value = 0.5 * jnp.maximum((v - b.target) ** 2, (near - b.target) ** 2).mean()
                divergence = policy.kl(layout, b.old, new).mean()
                entropy = policy.entropy(layout, new).mean()
                return surrogate(w, b.advantage, divergence) + 0.5 * value - 0.01 * entropy

            updates, state = adam.update(jax.grad(loss)(vector), state)
            vector = vector - lr * updates
    return vector


@pytest.mark.parametrize("minibatch", [60, 48, 180])
@pytest.mark.parametrize(
    ("shape", "surrogate"),
    [
        (
            "clip(eps=0.2)",
            lambda w, a, kl: -jnp.minimum(w * a, jnp.clip(w, 0.8, 1.2) * a).mean(),
        ),
        ("kl(b=0.7)", lambda w, a, kl: -(w * a).mean() + 0.7 * kl),
        ("spo(eps=0.3)", lambda w, a, kl: -(w * a - abs(a) * (w - 1) ** 2 / 0.6).mean()),
        (
            "clip + kl(b=0.5)",
            lambda w, a, kl: -jnp.minimum(w * a, jnp.clip(w, 0.8, 1.2) * a).mean() + 0.5 * kl,
        ),
    ],
)
def test_the_split_update_is_the_usual_one(shape, surrogate, minibatch):
    """Any shape, KL channel and entropy included, with a last minibatch that is smaller."""
    c, layout, learner, batch = setting(minibatch=minibatch, epochs=2, entropy_weight=0.01)
    rng = np.random.default_rng(1)
    orders = np.stack([rng.permutation(c.batch) for _ in range(2)])
    outcome = run(c, layout, learner, batch, shape, orders)
    expected = by_hand(c, layout, learner, batch, orders, surrogate, 3e-4)
    step = np.abs(np.asarray(expected - learner.vector)).max()
    np.testing.assert_allclose(outcome.learner.vector, expected, atol=2e-3 * step)


@pytest.mark.parametrize("minibatch", [48, 60, 64])
def test_three_routes_to_ppo_clip_train_to_the_same_bytes(minibatch):
    c, layout, learner, batch = setting(minibatch=minibatch, epochs=3)
    first, *others = (
        run(c, layout, learner, batch, shape) for shape in ("clip", "per-sample", "clip-phi")
    )
    assert float(first.metrics["kill"]) > 0.01
    for other in others:
        for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@dataclass(frozen=True)
class Flipped(PerSample):
    def beta(self, s):
        return -PerSample.beta(self, s)


@dataclass(frozen=True)
class OneSided(PerSample):
    def beta(self, s):
        return where(s.advantage > 0, PerSample.beta(self, s), 0.0)


@pytest.mark.parametrize("wrong", [Flipped(), OneSided(), PerSample(eps=0.21)], ids=str)
def test_a_wrong_coefficient_breaks_it_within_an_iteration(wrong):
    """The test above fails for each of these: it can tell."""
    c, layout, learner, batch = setting()
    right = run(c, layout, learner, batch, "clip(eps=0.2)").learner.vector
    other = run(c, layout, learner, batch, wrong).learner.vector
    assert np.any(np.asarray(right) != np.asarray(other))


def test_the_ratio_starts_at_one():
    """Stored observations are not normalised again: on the first minibatch nothing has moved."""
    c, layout, _, _ = setting()
    old = policy.initial(layout, 0)
    r = rollout(np.random.default_rng(0))
    r = r._replace(action=np.random.default_rng(0).normal(size=(60, 3, 2)).astype(np.float32))
    batch = preparation(layout, program(c))(old, r)
    outcome = run(c, layout, Learner(jnp.asarray(old), optimiser(c).init(old)), batch, "clip", lr=0)
    assert float(outcome.metrics["ratio_deviation"]) < 1e-6
    assert float(outcome.metrics["inside"]) == 1.0


def test_diagnostics_are_what_they_say():
    """One whole-batch step, so that every figure can be computed by hand."""
    c, layout, learner, batch = setting(minibatch=180)
    outcome = run(c, layout, learner, batch, "clip")
    new = policy.distribution(layout, layout.split(learner.vector), batch.observation)
    log_ratio = np.asarray(policy.log_prob(layout, new, batch.action) - batch.old_log_prob)
    w, a = np.exp(log_ratio), np.asarray(batch.advantage)
    kill = ((w > 1.2) & (a > 0)) | ((w < 0.8) & (a < 0))
    passing = ((w > 1.2) & (a < 0)) | ((w < 0.8) & (a > 0))
    expected = {
        "kill": kill.mean(),
        "kill_positive": (kill & (a > 0)).mean(),
        "pass": passing.mean(),
        "pass_negative": (passing & (a < 0)).mean(),
        "inside": (~kill & ~passing).mean(),
        "killed_mass": np.abs(w * a)[kill].sum() / np.abs(w * a).sum(),
        "ratio_mean": w.mean(),
        "ratio_std": w.std(),
        "ratio_max": w.max(),
        "ratio_min": w.min(),
        "ratio_deviation": np.abs(w - 1).mean(),
        "surrogate": (w * a).mean(),
        "k1": -log_ratio.mean(),
        "k3": (w - 1 - log_ratio).mean(),
        "kl": np.asarray(policy.kl(layout, batch.old, new)).mean(),
        "entropy": np.asarray(policy.entropy(layout, new)).mean(),
    }
    for name, value in expected.items():
        assert float(outcome.metrics[name]) == pytest.approx(value, rel=1e-4, abs=1e-6), name
    np.testing.assert_allclose(
        np.sort(outcome.beta), np.sort(np.where(kill, -w * a, 0)), rtol=1e-4, atol=1e-6
    )
    assert (np.asarray(outcome.sets) == 1).sum() == kill.sum()
    norms = (outcome.metrics["policy_grad_norm"], outcome.metrics["grad_norm"])
    assert 0 < float(norms[0]) < float(norms[1])


def test_per_epoch_diagnostics():
    c, layout, learner, batch = setting(epochs=4, per_epoch=True)
    outcome = run(c, layout, learner, batch, "clip", lr=3e-3)
    assert outcome.metrics["epoch.kill"].shape == (4,)
    changed = np.asarray(outcome.metrics["epoch.changed_class"])
    assert changed.shape == (4,)
    assert np.all(changed[1:] < 1)
    assert changed[1:].max() > 0
    mean = float(np.mean(outcome.metrics["epoch.kill"]))
    assert mean == pytest.approx(float(outcome.metrics["kill"]))


def test_espo_stops_the_epochs():
    """Later epochs leave the parameters where the stop found them."""
    c, layout, learner, batch = setting(epochs=6)
    rng = np.random.default_rng(1)
    orders = np.stack([rng.permutation(c.batch) for _ in range(6)])
    stopped = run(c, layout, learner, batch, "espo(delta=0.0001)", orders, lr=1e-3)
    one = setting(epochs=1)
    once = run(one[0], layout, learner, batch, "is", orders[:1], lr=1e-3)
    np.testing.assert_array_equal(stopped.learner.vector, once.learner.vector)
    assert int(stopped.metrics["epochs_run"]) == 1
    free = run(c, layout, learner, batch, "espo(delta=100)", orders, lr=1e-3)
    assert int(free.metrics["epochs_run"]) == 6


def test_controllers_hear_the_rollouts_kl():
    c, layout, learner, batch = setting(epochs=2)
    outcome = run(c, layout, learner, batch, "adaptive-kl(target=0.0001)")
    assert float(outcome.controller["b"]) == 2.0
    outcome = run(c, layout, learner, batch, "adaptive-kl(target=100)")
    assert float(outcome.controller["b"]) == 0.5
    new = policy.distribution(layout, layout.split(outcome.learner.vector), batch.observation)
    expected = float(policy.kl(layout, batch.old, new).mean())
    assert float(outcome.metrics["rollout_kl"]) == pytest.approx(expected, rel=1e-4)


def test_a_target_kl_ends_the_epochs():
    c, layout, learner, batch = setting(epochs=4)
    tight = run(c, layout, learner, batch, "target-kl(shape=clip, target=1e-9)")
    assert int(tight.metrics["epochs_run"]) == 1
    free = run(c, layout, learner, batch, "target-kl(shape=clip, target=100)")
    assert int(free.metrics["epochs_run"]) == 4
    plain = run(c, layout, learner, batch, "clip")
    np.testing.assert_array_equal(free.learner.vector, plain.learner.vector)


@dataclass(frozen=True)
class Hears(Controller):
    """A controller whose state is all it was told last; it stops at what is not a number."""

    shape: Shape = Clip()

    def init(self):
        return dict.fromkeys(FEEDBACK_FIELDS, 0.0)

    def stop(self, state, feedback):
        heard = jnp.stack([jnp.float32(getattr(feedback, name)) for name in FEEDBACK_FIELDS])
        return ~jnp.all(jnp.isfinite(heard))

    def update(self, state, feedback):
        return {name: getattr(feedback, name) for name in FEEDBACK_FIELDS}


def test_controllers_hear_every_field_at_every_call():
    c, layout, learner, batch = setting(epochs=2)
    outcome = run(c, layout, learner, batch, Hears())
    assert int(outcome.metrics["epochs_run"]) == 2
    new = policy.distribution(layout, layout.split(outcome.learner.vector), batch.observation)
    log_ratio = policy.log_prob(layout, new, batch.action) - batch.old_log_prob
    m = Clip().multiplier(log_ratio, batch.advantage)
    observed = Observed.of(log_ratio, batch.advantage, m, (0.8, 1.2))
    expected = diagnostics.metrics(totals(observed)) | {
        "kl": policy.kl(layout, batch.old, new).mean(),
        "entropy": policy.entropy(layout, new).mean(),
        "samples": c.batch,
        "epoch": 2,
        "progress": 0.25,
    }
    expected["tv"] = expected["ratio_deviation"] / 2
    expected["passing"] = expected["pass"]
    assert outcome.controller.keys() == FEEDBACK_FIELDS.keys()
    for name, told in outcome.controller.items():
        assert float(told) == pytest.approx(float(expected[name]), rel=1e-3, abs=1e-6), name


def test_feedback_of_a_band_that_is_not_there_is_an_error():
    c, layout, learner, batch = setting(epochs=1)
    with pytest.raises(KlipError, match=r"no inside .* no band of its own; read kept"):
        run(c, layout, learner, batch, Hears(shape=SPO()))


@pytest.mark.parametrize("field", ["advantage", "old_log_prob", "observation", "target"])
def test_what_is_not_finite_is_never_applied(field):
    c, layout, learner, batch = setting(epochs=2)
    bad = np.array(getattr(batch, field))
    bad[7] = np.nan
    outcome = run(c, layout, learner, batch._replace(**{field: bad}), "clip")
    assert int(outcome.trouble) > 0
    np.testing.assert_array_equal(outcome.learner.vector, learner.vector)
    adam = outcome.learner.optimiser[1]
    assert isinstance(adam, optax.ScaleByAdamState)
    assert int(adam.count) == 0


@pytest.mark.parametrize("log_ratio", [-100.0, 21.0, 100.0])
@pytest.mark.parametrize("shape", ["clip", "is", "spo", "kl(b=1)"])
def test_a_ratio_beyond_what_numbers_hold_is_held_at_e20(shape, log_ratio):
    """One sample far off stops no run: its ratio counts as e^20, as everywhere else."""
    c, layout, learner, batch = setting(epochs=1)

    def moved_by(distance):
        old = np.array(batch.old_log_prob)
        old[7] -= distance
        return run(c, layout, learner, batch._replace(old_log_prob=old), shape)

    outcome, held = moved_by(log_ratio), moved_by(math.copysign(25.0, log_ratio))
    assert int(outcome.trouble) == 0
    assert np.any(np.asarray(outcome.learner.vector) != np.asarray(learner.vector))
    np.testing.assert_array_equal(outcome.learner.vector, held.learner.vector)


def test_a_ratio_that_is_no_number():
    """The update is not applied, and the diagnosis names the ratio."""
    c, layout, learner, batch = setting(epochs=2)
    old = np.array(batch.old_log_prob)
    old[7] = -np.inf
    outcome = run(c, layout, learner, batch._replace(old_log_prob=old), "clip")
    assert TROUBLES[int(outcome.trouble)] == "ratio"
    np.testing.assert_array_equal(outcome.learner.vector, learner.vector)


def test_advantages_per_minibatch():
    """The convention of CleanRL and SB3: another update than the paper's."""
    c, layout, learner, batch = setting()
    other = setting(normalise_advantages="minibatch")[0]
    first = run(c, layout, learner, batch, "clip").learner.vector
    second = run(other, layout, learner, batch, "clip").learner.vector
    assert np.any(np.asarray(first) != np.asarray(second))
