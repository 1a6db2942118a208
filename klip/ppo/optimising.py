"""From a gradient to new parameters: whose norm is clipped, Adam's moments, step sizes; value loss.

Parameters are arrays by name, those of the value network begin with `value.`; both networks have
one Adam and one step size unless the config says otherwise.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from klip.ppo.config import Config
from klip.shapes import Array

Arrays = dict[str, Array]


def is_value(name: str) -> bool:
    """Whether an array is the value network's alone."""
    return name.startswith("value.")


def optimiser(c: Config) -> optax.GradientTransformation:
    """Clip the norm of the gradient, then Adam; the step size is applied by the caller."""
    adam = optax.scale_by_adam(b1=c.adam_b1, b2=c.adam_b2, eps=c.adam_eps)
    clipping = optax.identity()
    if c.max_grad_norm:
        clipping = optax.clip_by_global_norm(c.max_grad_norm)
        clipping = clipping if c.grad_clip == "joint" else clipped_apart(clipping)
    return optax.chain(clipping, adam if c.stop_value else counted_apart(adam))


def clipped_apart(clipping: optax.GradientTransformation) -> optax.GradientTransformation:
    """The same for policy and value network each; it has no state."""

    def update(gradient: Arrays, state: Any, params: Any = None) -> tuple[Arrays, Any]:
        parts = (clipping.update(part, state)[0] for part in _parts(gradient))
        return {name: x for part in parts for name, x in part.items()}, state

    return optax.GradientTransformation(clipping.init, update)


def counted_apart(adam: optax.GradientTransformation) -> optax.GradientTransformation:
    """Adam with a count of steps for each network, `[2]`: the policy's may stop before."""

    def init(vector: Array) -> Any:
        return adam.init(vector)._replace(count=jnp.zeros(2, jnp.int32))

    def update(gradient: Arrays, state: Any, params: Any = None) -> tuple[Arrays, Any]:
        counts: list[Array] = []
        steps, mu, nu = Arrays(), Arrays(), Arrays()
        for i, part in enumerate(_parts(gradient)):
            own = state._replace(
                count=state.count[i], mu={k: state.mu[k] for k in part},
                nu={k: state.nu[k] for k in part},
            )  # fmt: skip
            moved, own = adam.update(part, own)
            steps |= moved
            mu |= own.mu
            nu |= own.nu
            counts.append(own.count)
        return steps, state._replace(count=jnp.stack(counts), mu=mu, nu=nu)

    return optax.GradientTransformation(init, update)


def _parts(arrays: Arrays) -> tuple[Arrays, Arrays]:
    """What is not the value network's alone, and what is."""
    of_value = {name: x for name, x in arrays.items() if is_value(name)}
    return {name: x for name, x in arrays.items() if name not in of_value}, of_value


def stepped(c: Config, arrays: Arrays, updates: Arrays, lr: Array) -> Arrays:
    """The parameters after a step; `lr` is the policy's and the value network's with `value_lr`."""
    if not c.value_lr:
        moved: Arrays = jax.tree.map(lambda x, u: x - lr * u, arrays, updates)
        return moved
    return {name: x - lr[int(is_value(name))] * updates[name] for name, x in arrays.items()}


def frozen(c: Config, stopped: Array, old: Any, new: Any) -> Any:
    """(arrays, optimiser) after a step, but as before it where the policy has stopped.

    Args:
        c: says whether the value network stops with the policy
        stopped: whether it has
        old: before the step
        new: after it

    """
    if c.stop_value:
        return jax.tree.map(lambda x, y: jnp.where(stopped, x, y), old, new)

    def of_policy(x: Arrays, y: Arrays) -> Arrays:
        return {k: y[k] if is_value(k) else jnp.where(stopped, x[k], y[k]) for k in y}

    (before, (_, was)), (after, (empty, adam)) = old, new
    count = jnp.where(jnp.array([True, False]) & stopped, was.count, adam.count)
    moments = adam._replace(
        count=count, mu=of_policy(was.mu, adam.mu), nu=of_policy(was.nu, adam.nu)
    )
    return of_policy(before, after), (empty, moments)


def value_loss(c: Config, value: Array, old: Array, target: Array) -> Array:
    """Half a squared error of each sample: of the prediction, of the clipped one, or the worse."""
    error = jnp.square(value - target)
    if c.value_clip:
        near = old + jnp.clip(value - old, -c.value_clip, c.value_clip)
        clipped = jnp.square(near - target)
        error = clipped if c.value_bound == "clipped" else jnp.maximum(error, clipped)
    return 0.5 * error
