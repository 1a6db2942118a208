"""Networks and distributions, against other people's formulas."""

import jax.numpy as jnp
import numpy as np
import pytest

from klip.ppo import policy
from klip.tasks import Box
from tests.ppo.networks import every_space, make

torch = pytest.importorskip("torch")


def in_torch(layout, dist):
    """The same distributions as torch has them, one per head."""
    if layout.gaussian:
        mean, std = torch.tensor(np.asarray(dist["mean"])), np.exp(np.asarray(dist["log_std"]))
        return [torch.distributions.Normal(mean, torch.tensor(std))]
    parts = np.split(np.asarray(dist["logits"]), np.cumsum(layout.heads)[:-1], axis=-1)
    return [torch.distributions.Categorical(logits=torch.tensor(part)) for part in parts]


@every_space
def test_log_prob_entropy_and_kl_are_torchs(space):
    layout, old_vector, rng = make(space)
    _, new_vector, _ = make(space, seed=1)
    x = rng.normal(size=(20, 5)).astype(np.float32)
    old, new = (policy.distribution(layout, layout.split(v), x) for v in (old_vector, new_vector))
    a, b = in_torch(layout, old), in_torch(layout, new)
    if layout.gaussian:
        action = rng.normal(size=(20, 3)).astype(np.float32)
        expected = b[0].log_prob(torch.tensor(action)).sum(-1)
        entropy = b[0].entropy().sum(-1)
        kl = torch.distributions.kl_divergence(a[0], b[0]).sum(-1)
    else:
        action = np.stack([rng.integers(n, size=20) for n in layout.heads], axis=-1)
        expected = sum(d.log_prob(torch.tensor(action[:, i])) for i, d in enumerate(b))
        entropy = sum(d.entropy() for d in b)
        kl = sum(torch.distributions.kl_divergence(p, q) for p, q in zip(a, b, strict=True))
    np.testing.assert_allclose(
        policy.log_prob(layout, new, jnp.asarray(action)), expected, rtol=2e-5
    )
    np.testing.assert_allclose(policy.entropy(layout, new), entropy, rtol=2e-5)
    np.testing.assert_allclose(policy.kl(layout, old, new), kl, rtol=2e-4, atol=2e-6)


@every_space
def test_acting_follows_the_distribution_it_reports(space):
    """What NumPy samples has the probabilities that JAX differentiates."""
    layout, vector, rng = make(space)
    arrays = layout.split(vector[None])
    x = rng.normal(size=(1, 1, 5)).astype(np.float32)
    many = np.repeat(x, 20_000, axis=1)
    size = sum(layout.heads) if layout.gaussian else len(layout.heads)
    draw = rng.standard_normal if layout.gaussian else rng.random
    noise = draw((1, 1, 20_000, size), np.float32)
    actions = policy.actor(layout, arrays, noise)(many, 0)[0]
    dist = policy.distribution(layout, layout.split(vector), x[0])
    for i, d in enumerate(in_torch(layout, dist)):
        if layout.gaussian:
            np.testing.assert_allclose(actions.mean(0), d.mean[0], atol=0.05)
            np.testing.assert_allclose(actions.std(0), d.stddev[0], rtol=0.03)
        else:
            seen = np.bincount(actions[:, i], minlength=layout.heads[i]) / 20_000
            np.testing.assert_allclose(seen, d.probs[0], atol=0.015)


def test_a_squashed_gaussian_is_a_density_of_bounded_actions():
    """It sums to 1 over tanh(u), its entropy is that sum's, and its KL is the Gaussian's."""
    layout = policy.layout_of(2, Box(-np.ones(1, np.float32), np.ones(1, np.float32)), (4,),
                              state_std=True, squash=True)  # fmt: skip
    u = np.linspace(-9, 9, 200_001, dtype=np.float32)[:, None]
    for mean, log_std in ((0.3, -0.4), (-1.2, 0.2), (0.0, -1.5)):
        dist = {"mean": jnp.full_like(u, mean), "log_std": jnp.full_like(u, log_std)}
        log_density = np.asarray(policy.log_prob(layout, dist, u), np.float64)
        a = np.tanh(u[:, 0].astype(np.float64))
        density = np.exp(log_density)
        assert np.trapezoid(density, a) == pytest.approx(1, abs=2e-3)
        entropy = -np.trapezoid(np.where(density > 0, density * log_density, 0), a)
        one = {name: x[:1] for name, x in dist.items()}
        assert float(policy.entropy(layout, one)[0]) == pytest.approx(entropy, abs=5e-3)
        assert float(policy.kl(layout, one, one)[0]) == 0
