"""GAE with ends of both kinds, against a plain loop."""

import jax.numpy as jnp
import numpy as np
import pytest

from klip.ppo import policy
from klip.ppo.advantages import Rollout, advantages, estimates, normalised, preparation
from klip.ppo.config import Config
from klip.tasks import Discrete


def rollout(rng, steps=60, envs=3, size=4):
    terminated, truncated = rng.random((2, steps, envs)) < 0.06
    bootstrap = np.where(truncated & ~terminated, rng.normal(size=(steps, envs)), 0)
    return Rollout(
        rng.normal(size=(steps, envs, size)).astype(np.float32),
        rng.normal(size=(envs, size)).astype(np.float32),
        rng.integers(2, size=(steps, envs, 1)),
        rng.normal(size=(steps, envs)).astype(np.float32),
        (terminated | truncated).astype(np.float32),
        bootstrap.astype(np.float32),
    )


@pytest.mark.parametrize("seed", range(3))
def test_gae_is_the_textbook_recursion(seed):
    """Terminated: nothing follows. Truncated: V(final) follows. The trace is cut on both."""
    rng = np.random.default_rng(seed)
    r, c = rollout(rng), Config("x", gamma=0.97, gae_lambda=0.9)
    value = rng.normal(size=(60, 3)).astype(np.float32)
    last = rng.normal(size=3).astype(np.float32)
    expected, carry = np.zeros((60, 3)), np.zeros(3)
    for t in reversed(range(60)):
        following = last if t == 59 else value[t + 1]
        following = np.where(r.ended[t] > 0, r.bootstrap[t], following)
        delta = r.reward[t] + 0.97 * following - value[t]
        carry = delta + 0.97 * 0.9 * np.where(r.ended[t] > 0, 0, carry)
        expected[t] = carry
    got = advantages(c, jnp.asarray(value), jnp.asarray(last), r)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


def test_the_batch():
    """Targets use the raw advantage; the normalised one has mean 0 and, with n - 1, deviation 1."""
    rng = np.random.default_rng(0)
    layout = policy.layout_of(4, Discrete(2), (8,))
    vector = policy.initial(layout, 0)
    batch = preparation(layout, Config("x"))(vector, rollout(rng))
    raw = np.asarray(batch.target - batch.old_value)
    np.testing.assert_allclose(batch.advantage, (raw - raw.mean()) / raw.std(ddof=1), atol=1e-5)
    plain = preparation(layout, Config("x", normalise_advantages="none"))(vector, rollout(rng))
    np.testing.assert_allclose(plain.advantage, plain.target - plain.old_value, atol=1e-6)


def test_normalised():
    a = jnp.asarray([1.0, 2.0, 4.0])
    for ddof in (0, 1):
        expected = (a - 7 / 3) / (np.std(a, ddof=ddof) + 1e-8)
        made = normalised(Config("x", advantage_ddof=ddof), a)
        np.testing.assert_allclose(made, expected, rtol=1e-6)


def textbook(r, value, last, gamma, decay, following):
    """x = r + gamma V' - V + gamma decay x', where `following` says V' at an end."""
    made, carry = np.zeros_like(value, np.float64), np.zeros(value.shape[1])
    for t in reversed(range(len(value))):
        after = last if t == len(value) - 1 else value[t + 1]
        after = np.where(r.ended[t] > 0, following[t], after)
        delta = r.reward[t] + gamma * after - value[t]
        carry = made[t] = delta + gamma * decay * np.where(r.ended[t] > 0, 0, carry)
    return made


def test_conventions_of_others():
    """A time limit that ends an episode (CleanRL); targets that are plain returns (Spinning Up)."""
    rng = np.random.default_rng(0)
    r, value, last = rollout(rng), *(jnp.float32(rng.normal(size=s)) for s in ((60, 3), (3,)))
    nothing = np.zeros((60, 3))
    gae, target = estimates(Config("x", time_limits="end"), value, last, r)
    expected = textbook(r, value, last, 0.99, 0.95, nothing)
    np.testing.assert_allclose(gae, expected, atol=2e-5)
    np.testing.assert_allclose(target, expected + value, atol=2e-5)
    gae, target = estimates(Config("x", value_target="monte-carlo"), value, last, r)
    returns = textbook(r, value, last, 0.99, 1.0, r.bootstrap) + value
    np.testing.assert_allclose(target, returns, atol=1e-4)
    np.testing.assert_allclose(gae, textbook(r, value, last, 0.99, 0.95, r.bootstrap), atol=2e-5)


def test_the_advantages_of_brax():
    """After its formulas: lambda-returns first, then one step of them; cut steps count as 0."""
    rng = np.random.default_rng(0)
    r, value, last = rollout(rng), *(jnp.float32(rng.normal(size=s)) for s in ((60, 3), (3,)))
    truncated = (r.bootstrap != 0).astype(np.float32)
    terminated = r.ended * (1 - truncated)
    after = np.concatenate([value[1:], last[None]])
    delta = (r.reward + 0.9 * (1 - terminated) * after - value) * (1 - truncated)
    sums, carry = np.zeros((60, 3)), np.zeros(3)
    for t in reversed(range(60)):
        carry = delta[t] + 0.9 * (1 - terminated[t]) * (1 - truncated[t]) * 0.95 * carry
        sums[t] = carry
    returns = sums + value
    later = np.concatenate([returns[1:], last[None]])
    advantage = (r.reward + 0.9 * (1 - terminated) * later - value) * (1 - truncated)
    c = Config("x", gamma=0.9, advantage_form="next-return", time_limits="skip")
    made = estimates(c, value, last, r._replace(skipped=truncated))
    np.testing.assert_allclose(made[0], advantage, atol=2e-5)
    np.testing.assert_allclose(made[1], returns, atol=2e-5)
    assert truncated.sum() > 3
