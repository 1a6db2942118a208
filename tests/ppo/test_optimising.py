"""From gradients to parameters: norms, counts and step sizes of two networks."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from klip.ppo.config import Config
from klip.ppo.optimising import frozen, is_value, optimiser, stepped, value_loss

RNG = np.random.default_rng(0)
ARRAYS = {"policy.0.weight": (3, 2), "policy.log_std": (2,), "value.0.weight": (3, 1)}


def arrays():
    return {
        name: jnp.asarray(RNG.normal(size=shape), jnp.float32) for name, shape in ARRAYS.items()
    }


def begun(c, gradient):
    """An optimiser and its state as the trainer has them: moments by name."""
    adam = optimiser(c)
    empty, state = adam.init(jnp.zeros(3))
    zeros = {name: jnp.zeros_like(x) for name, x in gradient.items()}
    return adam, (empty, state._replace(mu=zeros, nu=dict(zeros)))


def norm(part):
    return float(optax.tree.norm(part))


@pytest.mark.parametrize("kind", ["joint", "separate"])
def test_whose_norm_is_clipped(kind):
    gradient = {**arrays(), "value.0.weight": 1e-3 * jnp.ones((3, 1))}
    c = Config("x", max_grad_norm=0.1, grad_clip=kind)
    clip = optax.clip_by_global_norm(0.1)
    adam, state = begun(c, gradient)
    moved, (_, after) = adam.update(gradient, state)
    first = {name: 10 * x for name, x in after.mu.items()}  # 1 - b1 is 0.1
    value = {name: x for name, x in first.items() if is_value(name)}
    if kind == "joint":
        expected, _ = clip.update(gradient, clip.init(gradient))
        for name, x in first.items():
            np.testing.assert_allclose(x, expected[name], rtol=1e-5)
        assert norm(first) == pytest.approx(0.1, rel=1e-5)
    else:
        rest = {name: x for name, x in first.items() if name not in value}
        assert norm(rest) == pytest.approx(0.1, rel=1e-5)
        np.testing.assert_allclose(value["value.0.weight"], 1e-3, rtol=1e-5)
    assert moved.keys() == gradient.keys()


def test_without_a_norm_nothing_is_clipped():
    gradient = jax.tree.map(lambda x: 1e3 * x, arrays())
    adam, state = begun(Config("x", max_grad_norm=0.0), gradient)
    _, (_, after) = adam.update(gradient, state)
    for name, x in gradient.items():
        np.testing.assert_allclose(10 * after.mu[name], x, rtol=1e-5)


def test_a_policy_that_has_stopped_keeps_its_moments_and_its_count():
    c = Config("x", stop_value=False)
    old, gradient = arrays(), arrays()
    adam, state = begun(c, gradient)
    for stopped in (False, True):
        updates, moments = adam.update(gradient, state)
        new = stepped(c, old, updates, jnp.float32(1e-3))
        kept, (_, after) = frozen(c, jnp.asarray(stopped), (old, state), (new, moments))
        assert after.count.tolist() == [0 if stopped else 1, 1]
        for name in old:
            moves = is_value(name) or not stopped
            assert bool((kept[name] != old[name]).any()) == moves
            assert bool((after.mu[name] != 0).any()) == moves
    both = Config("x")
    adam, state = begun(both, gradient)
    updates, moments = adam.update(gradient, state)
    new = stepped(both, old, updates, jnp.float32(1e-3))
    kept, (_, after) = frozen(both, jnp.asarray(True), (old, state), (new, moments))
    assert int(after.count) == 0
    assert all((kept[name] == old[name]).all() for name in old)


def test_separate_counts_step_as_one_count_does():
    gradient = arrays()
    results = []
    for c in (Config("x"), Config("x", stop_value=False)):
        adam, state = begun(c, gradient)
        for _ in range(3):
            updates, state = adam.update(gradient, state)
        results.append(updates)
    for name in gradient:
        np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-6)


def test_each_network_has_its_step_size():
    old, updates = arrays(), arrays()
    new = stepped(Config("x", value_lr=1e-2), old, updates, jnp.array([1e-3, 1e-2]))
    for name, x in new.items():
        size = 1e-2 if is_value(name) else 1e-3
        np.testing.assert_allclose(x, old[name] - size * updates[name], rtol=1e-6)


def test_value_losses():
    value, old, target = jnp.array([1.0, 0.1]), jnp.array([0.0, 0.0]), jnp.array([0.5, 2.0])
    plain = value_loss(Config("x", value_clip=0.0), value, old, target)
    np.testing.assert_allclose(plain, [0.125, 1.805], rtol=1e-6)
    clipped = value_loss(Config("x", value_bound="clipped"), value, old, target)
    np.testing.assert_allclose(clipped, [0.045, 1.805], rtol=1e-6)
    worse = value_loss(Config("x"), value, old, target)
    np.testing.assert_allclose(worse, np.maximum(plain, clipped))
