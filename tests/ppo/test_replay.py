"""Samples that may be old: what is kept, how it is seen later, and what is learned from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from klip.engine.random import stream
from klip.errors import KlipError
from klip.ppo import policy
from klip.ppo.advantages import Rollout, advantages
from klip.ppo.config import Config
from klip.ppo.memory import bytes_kept
from klip.ppo.replay import (
    Judged,
    Opinion,
    Recorded,
    Seen,
    from_arrays,
    kept,
    learned,
    learned_late,
    orders,
    samples,
    second_moment,
    to_arrays,
    to_keep,
)
from klip.tasks import Discrete
from tests.ppo.test_advantages import rollout

T, E, SIZE = 20, 2, 4
LAYOUT = policy.layout_of(SIZE, Discrete(2), (8,))


def of(**fields):
    return Config("x", rollout=T, envs=E, steps=40 * T * E, minibatch=T * E, **fields)


def parameters(seed, spread=0.0):
    vector = policy.initial(LAYOUT, 0)
    noise = np.random.default_rng(seed).normal(0, spread, vector.shape)
    return jnp.asarray(vector + noise.astype(np.float32))


def collected(seed):
    """A rollout with ends of both kinds, and the final observations of those cut off."""
    rng = np.random.default_rng(seed)
    r = rollout(rng, T, E, SIZE)
    places = np.flatnonzero(r.bootstrap)
    finals = [(int(place), rng.normal(size=SIZE).astype(np.float32)) for place in places]
    return to_keep(r, finals, True)


def slots_of(vectors, c):
    """A slot for each of the vectors that acted, newest first, at iterations ... 2, 1, 0."""
    count = len(vectors)
    return [
        kept(LAYOUT, vector, count - 1 - i - c.lag, collected(count - 1 - i))
        for i, vector in enumerate(vectors)
    ]


def test_with_a_frozen_policy_nothing_is_corrected():
    """c is 1 to the last bit, and advantages and targets are those of plain GAE."""
    frozen = parameters(0, 0.5)
    plain, traced = of(replay=3, trace="recorded"), of(replay=3)
    slots = slots_of([frozen] * 3, traced)
    got = learned(LAYOUT, traced, frozen, 2, slots, True)
    recorded = [learned(LAYOUT, plain, frozen, k, [slot], True).batch
                for k, slot in zip((2, 1, 0), slots, strict=True)]  # fmt: skip
    aged = got.batch.aged
    assert got.ages == [0, 1, 2]
    np.testing.assert_array_equal(aged.age, np.repeat([0.0, 1.0, 2.0], T * E))
    for values in (aged.log_c, aged.deviation, aged.second_moment):
        assert not np.any(np.asarray(values))
    for name in ("target", "old_value", "old_log_prob"):
        expected = np.concatenate([np.asarray(getattr(b, name))[: T * E] for b in recorded])
        np.testing.assert_array_equal(getattr(got.batch, name), expected, err_msg=name)
    assert np.all(np.asarray(aged.there))


def test_the_trace_by_hand():
    """An end, a truncation and the rollout's edge; c = 2, 1/2, 1/4, 1/2, 3, 1/2 of one lane."""
    c = Config("x", rollout=6, envs=1, minibatch=6, gamma=0.5, gae_lambda=0.5, lag=1,
               normalise_advantages="none")  # fmt: skip
    correction = np.array([2.0, 0.5, 0.25, 0.5, 3.0, 0.5], np.float32)
    value = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], np.float32)
    ended = np.array([0, 1, 0, 1, 0, 0], np.float32)[:, None]  # terminated, then cut off
    bootstrap = np.array([0, 0, 0, 8, 0, 0], np.float32)[:, None]
    r = Rollout(np.zeros((6, 1, 1), np.float32), np.zeros((1, 1), np.float32),
                np.zeros((6, 1, 1), np.int64), np.ones((6, 1), np.float32), ended,
                bootstrap)  # fmt: skip
    # delta = 1 + (V' or what stands for it)/2 - V
    delta = [1 + 1 - 1, 1 + 0 - 2, 1 + 2 - 3, 1 + 4 - 4, 1 + 3 - 5, 1 + 5 - 6]
    # A = delta + min(1, c') A'/4, and nothing from beyond an end or the edge
    expected = np.zeros(6)
    expected[5] = delta[5]
    expected[4] = delta[4] + 0.5 * expected[5] / 4
    expected[3] = delta[3]
    expected[2] = delta[2] + 0.5 * expected[3] / 4
    expected[1] = delta[1]
    expected[0] = delta[0] + 0.5 * expected[1] / 4
    zero = jnp.zeros(6)
    look = Opinion(jnp.log(correction), {"logits": jnp.zeros((6, 2))})
    judged = Judged(jnp.asarray(value), jnp.asarray([10.0]))
    rows = samples(c, Seen(zero, {"logits": jnp.zeros((6, 2))}, None, look, judged, r))
    np.testing.assert_allclose(rows["advantage"], expected, rtol=1e-6)
    np.testing.assert_allclose(
        rows["target"], value + np.minimum(correction, 1) * expected, rtol=1e-6
    )
    assert expected.tolist() == [0.875, -1.0, 0.125, 1.0, -1.0, 0.0]


@pytest.mark.parametrize("ratio", ["behaviour", "decoupled", "proximal"])
def test_the_two_ratios_multiply(ratio):
    """The old policy is mu or pi_k, c = pi_k / mu, and only decoupling weighs by it, to a cap."""
    c = of(lag=1, ratio=ratio, correction_cap=1.1)
    acted, now = parameters(1, 0.3), parameters(2, 0.3)
    slot = kept(LAYOUT, acted, 0, collected(0))
    batch = learned(LAYOUT, c, now, 1, [slot], False).batch
    r = slot.rollout
    flat = r.observation.reshape(T * E, SIZE)
    logs = [
        np.asarray(
            policy.log_prob(
                LAYOUT,
                policy.distribution(LAYOUT, LAYOUT.split(vector), flat),
                r.action.reshape(T * E, -1),
            )
        )
        for vector in (acted, now)
    ]
    expected = logs[0 if ratio == "behaviour" else 1]
    np.testing.assert_allclose(batch.old_log_prob, expected, rtol=1e-5)
    np.testing.assert_allclose(batch.aged.log_c, logs[1] - logs[0], atol=1e-6)
    weight = np.minimum(np.exp(logs[1] - logs[0]), 1.1) if ratio == "decoupled" else np.ones(T * E)
    np.testing.assert_allclose(batch.aged.weight, weight, rtol=1e-5)
    assert np.all(np.asarray(batch.aged.value_weight) == 1)


@pytest.mark.parametrize("trace", ["corrected", "recorded"])
def test_without_a_replay_one_program_gives_the_same_samples(trace):
    """And c is 1 to the last bit where the policy that acted is the one that learns."""
    c = of(lag=1, trace=trace)
    acted, now, r = parameters(1, 0.3), parameters(2, 0.3), collected(3)
    several = learned(LAYOUT, c, now, 1, [kept(LAYOUT, acted, 0, r)], True)
    one = learned_late(LAYOUT, c, acted, now, 1, r, True)
    assert one.ages == several.ages
    for a, b in zip(jax.tree.leaves(one.batch), jax.tree.leaves(several.batch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    same = learned_late(LAYOUT, c, now, now, 0, r, True).batch
    assert not np.any(np.asarray(same.aged.log_c))
    assert np.any(np.asarray(one.batch.aged.log_c))


def test_old_rollouts_are_seen_by_the_critic_of_now():
    """Also their final observations; what was recorded is not."""
    acted, now = parameters(1, 0.3), parameters(2, 0.3)
    slot = kept(LAYOUT, acted, 0, collected(3))
    assert len(slot.rollout.cut)
    c = of(replay=2)
    batch = learned(LAYOUT, c, now, 1, [kept(LAYOUT, now, 1, collected(4)), slot], False).batch
    arrays = LAYOUT.split(now)
    final = policy.network(LAYOUT, arrays, "value", jnp.asarray(slot.rollout.final))[:, 0]
    bootstrap = np.zeros((T, E), np.float32)
    bootstrap.flat[slot.rollout.cut] = final
    values = np.asarray(batch.old_value)[T * E :].reshape(T, E)
    last = policy.network(LAYOUT, arrays, "value", jnp.asarray(slot.rollout.last))[:, 0]
    trust = np.minimum(np.exp(np.asarray(batch.aged.log_c)[T * E :]), 1).reshape(T, E)
    expected = advantages(c, values, last, slot.rollout._replace(bootstrap=bootstrap), trust)
    got = np.asarray(batch.target)[T * E :] - values.ravel()
    np.testing.assert_allclose(got, (trust * expected).ravel(), rtol=1e-4, atol=1e-5)


def test_weights_by_age_have_a_mean_of_one_at_any_time():
    c = of(replay=4, age_weights="geppo")
    frozen = parameters(0)
    for there in (1, 2, 4):
        slots = slots_of([frozen] * there, c)
        aged = learned(LAYOUT, c, frozen, there - 1, slots, False).batch.aged
        weights = np.asarray(aged.weight)[: there * T * E].reshape(there, -1)[:, 0]
        assert weights.mean() == pytest.approx(1)
        np.testing.assert_allclose(weights / weights[0], (4 - np.arange(there)) / 4, rtol=1e-6)
        assert np.asarray(aged.there).sum() == there * T * E


def test_second_moments_of_equal_samples_are_equal():
    log_c = np.array([0.5, -0.5, 0.1, 2.0], np.float32)
    squares = np.sort(log_c**2)
    means = [squares[:3].mean(), squares[:3].mean(), squares[0], squares.mean()]
    np.testing.assert_allclose(second_moment(jnp.asarray(log_c)), means, rtol=1e-6)


@pytest.mark.parametrize("steps", ["equal", "grow"])
@pytest.mark.parametrize("there", [1, 2, 3])
def test_orders(steps, there):
    """As many passes as on-policy or so many times more; each sample as often as any other."""
    c = of(replay=3, gradient_steps=steps, epochs=6)
    rows, run = orders(c, 5, there)
    assert rows.shape == (18 if steps == "grow" else 6, T * E)
    assert run.sum() == (6 * there if steps == "grow" else 6)
    counts = np.bincount(rows[run].ravel(), minlength=there * T * E)
    assert counts.size == there * T * E
    assert set(counts) == {6 if steps == "grow" else 6 // there}


def test_orders_of_one_rollout_are_those_of_before():
    c = of(epochs=3)
    rows, run = orders(c, 7, 1)
    assert run.all()
    for e, row in enumerate(rows):
        np.testing.assert_array_equal(row, stream(0, "order", 7, e).permutation(T * E))


@pytest.mark.parametrize("trace", ["corrected", "recorded"])
def test_to_disk_and_back(trace):
    """The arrays are as large as was said, but for the episodes that were cut off."""
    c = of(replay=3, lag=1, trace=trace)
    frozen = parameters(0)
    versions = (3, 2)
    slots = [kept(LAYOUT, frozen, v, collected(v)) for v in versions]
    if trace == "recorded":
        record = Recorded(*np.ones((3, T * E), np.float32))
        slots = [slot._replace(recorded=record) for slot in slots]
    arrays = to_arrays(slots)
    back = from_arrays(LAYOUT, c, 5, arrays)
    again = to_arrays(back)
    assert arrays.keys() == again.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, again[name], err_msg=name)
    extra = sum(v.nbytes for k, v in arrays.items() if k.endswith(("cut", "final", "version")))
    past = LAYOUT.join(LAYOUT.split(frozen)).nbytes
    assert sum(v.nbytes for v in arrays.values()) - extra + past == bytes_kept(LAYOUT, c).checkpoint


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("replay.0.observation", None, "does not fit"),
        ("replay.1.reward", np.zeros((T, E)), "does not fit"),
        ("replay.1.old.logits", np.zeros((T, 2), np.float32), "does not fit"),
        ("replay.0.version", np.array(4), "is 4, and 3 was kept"),
        ("replay.0.cut", np.array([T * E], np.int32), "outside|does not fit"),
        ("replay.0.final", np.zeros((9, SIZE), np.float32), "does not fit"),
    ],
)
def test_what_does_not_fit_is_refused(name, value, message):
    c = of(replay=3, lag=1)
    frozen = parameters(0)
    arrays = to_arrays([kept(LAYOUT, frozen, v, collected(v)) for v in (3, 2)])
    changed = {**arrays, name: value}
    if name.endswith("cut"):
        changed["replay.0.final"] = np.zeros((1, SIZE), np.float32)
    with pytest.raises(KlipError, match=message):
        from_arrays(LAYOUT, c, 5, {k: v for k, v in changed.items() if v is not None})


def test_what_is_kept_is_no_part_of_something_larger():
    """A slice of the whole cohort's rollout would keep all of it in memory."""
    shared = np.zeros((9, T, E, SIZE), np.float32)
    r = rollout(np.random.default_rng(0), T, E, SIZE)._replace(observation=shared[3])
    assert to_keep(r, [], True).observation.base is None
    assert to_keep(r, [], False).observation.base is shared
