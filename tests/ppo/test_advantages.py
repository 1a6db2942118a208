"""GAE with ends of both kinds, against a plain loop."""

import jax.numpy as jnp
import numpy as np
import pytest

from klip.ppo import policy
from klip.ppo.advantages import Rollout, advantages, normalised, preparation
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
    vector = policy.initial(layout, 0, 0.0)
    batch = preparation(layout, Config("x"))(vector, rollout(rng))
    raw = np.asarray(batch.target - batch.old_value)
    np.testing.assert_allclose(batch.advantage, (raw - raw.mean()) / raw.std(ddof=1), atol=1e-5)
    plain = preparation(layout, Config("x", normalise_advantages="none"))(vector, rollout(rng))
    np.testing.assert_allclose(plain.advantage, plain.target - plain.old_value, atol=1e-6)


def test_normalised():
    a = jnp.asarray([1.0, 2.0, 4.0])
    np.testing.assert_allclose(normalised(a), (a - 7 / 3) / (np.std(a, ddof=1) + 1e-8), rtol=1e-6)
