"""Small networks as policies, and the per-sample gradients of objectives through them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from klip.shapes import Array

Parameters = dict[str, Array]
Objective = Callable[[Array, Array, Array], Array]
"""(new log-prob, old log-prob, advantage) -> objective of each sample"""

OBSERVATION, HIDDEN, ACTIONS = 6, 12, 3
CHUNK = 4096


def unconstrained(new: Array, old: Array, advantage: Array) -> Array:
    """w A of each sample; differences are relative to its gradient."""
    return jnp.exp(new - old) * advantage


@dataclass(frozen=True)
class Problem:
    """Samples, and a policy that has moved away from the one that drew them."""

    name: str
    log_prob: Callable[[Parameters, Array, Array], Array]
    """log pi(action | observation) of one sample"""
    parameters: Parameters
    observation: Array  # [N, OBSERVATION]
    action: Array  # [N, ...]
    old: Array  # [N], log-prob under the policy that drew them
    advantage: Array  # [N]

    def take(self, size: int) -> Problem:
        """The first `size` samples."""
        arrays = ("observation", "action", "old", "advantage")
        return dataclasses.replace(self, **{k: getattr(self, k)[:size] for k in arrays})

    def mean_gradient_difference(self, first: Objective, second: Objective) -> float:
        """|g1 - g2| / |g| of two objectives' mean gradients and the unconstrained one g."""

        def mean(parameters: Parameters, objective: Objective) -> Array:
            new = jax.vmap(self.log_prob, (None, 0, 0))(parameters, self.observation, self.action)
            return objective(new, self.old, self.advantage).mean()

        @jax.jit
        def difference(parameters: Parameters) -> Array:
            gradients = [jax.grad(mean)(parameters, objective) for objective in (first, second)]
            gap = jax.tree.map(lambda x, y: x - y, *gradients)
            return _norm(gap) / _norm(jax.grad(mean)(parameters, unconstrained))

        return float(difference(self.parameters))


def worst_gradient_difference(
    problem: Problem, first: Objective, second: Objective, skip: Callable[[Array], Array]
) -> tuple[Array, float, int]:
    """(log-ratios `[N]`, the largest difference of a sample's gradients, samples compared).

    The difference is relative to the norm of that sample's unconstrained gradient. Samples for
    whose ratio `skip` holds are left out.
    """

    def compare(
        observation: Array, action: Array, old: Array, advantage: Array
    ) -> tuple[Array, Array]:
        def gradient(objective: Objective) -> tuple[Array, Parameters]:
            def value(parameters: Parameters) -> tuple[Array, Array]:
                new = problem.log_prob(parameters, observation, action)
                return objective(new, old, advantage), new

            slope, new = jax.grad(value, has_aux=True)(problem.parameters)
            return new, slope

        new, full = gradient(unconstrained)
        gap = jax.tree.map(lambda x, y: x - y, gradient(first)[1], gradient(second)[1])
        scale = _norm(full)
        return new - old, _norm(gap) / jnp.where(scale == 0, 1.0, scale)

    log_ratio, difference = jax.jit(
        lambda *xs: jax.lax.map(lambda x: compare(*x), xs, batch_size=CHUNK)
    )(problem.observation, problem.action, problem.old, problem.advantage)
    counted = ~skip(jnp.exp(log_ratio))
    worst = jnp.max(jnp.where(counted, difference, 0.0))
    return (
        log_ratio,
        float(worst) if bool(jnp.isfinite(worst)) else float("inf"),
        int(counted.sum()),
    )


def gaussian_problem(samples: int, seed: int) -> Problem:
    """A diagonal Gaussian policy whose mean is a network, moved by noise on every weight."""

    def log_prob(parameters: Parameters, observation: Array, action: Array) -> Array:
        z = (action - _mlp(parameters, observation)) / jnp.exp(parameters["log_std"])
        constant = ACTIONS * jnp.log(2 * jnp.pi) / 2
        return -(z**2).sum() / 2 - parameters["log_std"].sum() - constant

    def sample(key: Any, parameters: Parameters, observation: Array) -> Array:
        noise = jax.random.normal(key, (ACTIONS,), dtype=observation.dtype)
        return _mlp(parameters, observation) + jnp.exp(parameters["log_std"]) * noise

    return _problem("Gaussian", log_prob, sample, samples, seed)


def categorical_problem(samples: int, seed: int) -> Problem:
    """A categorical policy whose logits are a network, moved by noise on every weight."""

    def log_prob(parameters: Parameters, observation: Array, action: Array) -> Array:
        return jax.nn.log_softmax(_mlp(parameters, observation))[action]

    def sample(key: Any, parameters: Parameters, observation: Array) -> Array:
        return jax.random.categorical(key, _mlp(parameters, observation))

    return _problem("categorical", log_prob, sample, samples, seed)


def _problem(
    name: str,
    log_prob: Callable[[Parameters, Array, Array], Array],
    sample: Callable[[Any, Parameters, Array], Array],
    samples: int,
    seed: int,
) -> Problem:
    keys = jax.random.split(jax.random.key(seed), 5)
    old_parameters = _initial(keys[0], 1.0)
    moved = jax.tree.map(lambda x, y: x + 0.4 * y, old_parameters, _initial(keys[1], 1.0))
    observation = jax.random.normal(keys[2], (samples, OBSERVATION), dtype=float)
    action = jax.vmap(sample, (0, None, 0))(
        jax.random.split(keys[3], samples), old_parameters, observation
    )
    old = jax.vmap(log_prob, (None, 0, 0))(old_parameters, observation, action)
    advantage = jax.random.normal(keys[4], (samples,), dtype=float).at[31::32].set(0.0)
    return Problem(name, log_prob, moved, observation, action, old, advantage)


def _initial(key: Any, scale: float) -> Parameters:
    weights = {"w1": (OBSERVATION, HIDDEN), "w2": (HIDDEN, HIDDEN), "w3": (HIDDEN, ACTIONS)}
    biases = {"b1": (HIDDEN,), "b2": (HIDDEN,), "b3": (ACTIONS,), "log_std": (ACTIONS,)}
    sizes: dict[str, tuple[int, ...]] = {**weights, **biases}
    keys = jax.random.split(key, len(sizes))
    return {
        name: scale * jax.random.normal(k, size, dtype=float) / max(size[0], 4) ** 0.5
        for (name, size), k in zip(sizes.items(), keys, strict=True)
    }


def _mlp(parameters: Parameters, observation: Array) -> Array:
    hidden = jnp.tanh(observation @ parameters["w1"] + parameters["b1"])
    hidden = jnp.tanh(hidden @ parameters["w2"] + parameters["b2"])
    return hidden @ parameters["w3"] + parameters["b3"]


def _norm(tree: Parameters) -> Array:
    return jnp.sqrt(sum((x**2).sum() for x in jax.tree.leaves(tree)))
