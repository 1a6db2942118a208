"""Real policies: their per-sample gradients are those of the objective, and can be told apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from klip.theory.networks import (
    categorical_problem,
    gaussian_problem,
    unconstrained,
    worst_gradient_difference,
)


@pytest.fixture(params=[gaussian_problem, categorical_problem])
def problem(request):
    with jax.enable_x64(True):
        yield request.param(256, 0)


def nothing(w):
    return jnp.zeros_like(w, bool)


def test_equal_objectives_have_equal_gradients(problem):
    log_ratio, worst, samples = worst_gradient_difference(
        problem, unconstrained, unconstrained, nothing
    )
    assert worst == 0.0
    assert samples == 256
    assert np.asarray(log_ratio).shape == (256,)
    assert problem.mean_gradient_difference(unconstrained, unconstrained) == 0.0


def test_a_difference_is_relative_to_the_unconstrained_gradient(problem):
    def half(new, old, advantage):
        return 0.5 * unconstrained(new, old, advantage)

    _, worst, _ = worst_gradient_difference(problem, unconstrained, half, nothing)
    assert worst == pytest.approx(0.5)
    assert problem.mean_gradient_difference(unconstrained, half) == pytest.approx(0.5)


def test_skipped_samples_do_not_count(problem):
    _, worst, samples = worst_gradient_difference(
        problem, unconstrained, lambda n, o, a: 0.0 * n, lambda w: jnp.ones_like(w, bool)
    )
    assert (worst, samples) == (0.0, 0)


def test_the_policy_has_moved(problem):
    few = problem.take(16)
    assert few.advantage.shape == (16,)
    new = jax.vmap(few.log_prob, (None, 0, 0))(few.parameters, few.observation, few.action)
    assert float(jnp.abs(new - few.old).max()) > 0.01
