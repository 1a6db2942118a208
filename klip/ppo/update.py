"""The epochs of one rollout, compiled whole: gradient steps, and every diagnostic reduced inside.

The update splits at the log-probabilities. A shape says d objective / d log pi (and, for a
closed-form KL, d objective / d KL), and one backward pass that all shapes share carries it through
the network. That is the paper's theorem as code, and why equal multipliers give equal bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from klip.ppo.advantages import Batch, normalised
from klip.ppo.config import Config
from klip.ppo.diagnostics import CHANGED, Sums, barrier, observe, reduce_sums
from klip.ppo.policy import Layout, distribution, entropy, kl, log_prob, network
from klip.shapes import Array, Context, Controller, Feedback, Shape, with_numbers


class Learner(NamedTuple):
    """What training changes in a run."""

    vector: Array  # [P] policy and value parameters
    optimiser: Any  # Adam's moments, as optax keeps them


class Outcome(NamedTuple):
    """What the epochs of one rollout left behind."""

    learner: Learner
    controller: dict[str, Array]
    metrics: dict[str, Array]
    beta: Array  # [epochs * N] the coefficient of every sample of every epoch
    sets: Array  # [epochs * N] in 0, kill 1, pass 2
    finite: Array  # whether every loss, gradient and parameter was; if not, nothing was applied


def optimiser(c: Config) -> optax.GradientTransformation:
    """Clip the global norm, then Adam; the step size is applied by the caller."""
    return optax.chain(
        optax.clip_by_global_norm(c.max_grad_norm),
        optax.scale_by_adam(b1=c.adam_b1, b2=c.adam_b2, eps=c.adam_eps),
    )


def value_loss(c: Config, value: Array, old: Array, target: Array) -> Array:
    """Half a squared error of each sample; the worse of it and the clipped one."""
    error = jnp.square(value - target)
    if c.value_clip:
        near = old + jnp.clip(value - old, -c.value_clip, c.value_clip)
        error = jnp.maximum(error, jnp.square(near - target))
    return 0.5 * error


def _weighs_kl(shape: Shape) -> bool:
    """Whether a shape uses the closed-form channel; it says so by what it returns."""
    one = jnp.ones(1)
    known = Context(**{name: one for name in shape.needs})
    return shape.kl_weight(one, one, known) is not None


@functools.lru_cache(maxsize=64)
def epochs(
    layout: Layout, c: Config, template: Shape | Controller, names: tuple[str, ...]
) -> Callable[..., Outcome]:
    """The compiled update for one structure of shape; its numbers are arguments.

    `c` should differ between runs only where the program does: pass it with seed 0 and so on.
    """
    adam = optimiser(c)
    whole, rest = divmod(c.batch, c.minibatch)

    def gradient_step(
        learner: Learner, shape: Shape, lr: Array, step: Array, batch: Batch
    ) -> tuple[Learner, Sums, Array, Array, Array]:
        count = batch.advantage.shape[0]
        advantage = batch.advantage
        if c.normalise_advantages == "minibatch":
            advantage = normalised(advantage)

        # Only what has a weight in the objective is differentiated; the rest is watched.
        weighs_kl = _weighs_kl(shape)

        def heads(vector: Array) -> tuple[dict[str, Array], dict[str, Array]]:
            arrays = layout.split(vector)
            new = distribution(layout, arrays, batch.observation)
            every = {
                "log_prob": log_prob(layout, new, batch.action),
                "value": network(arrays, "value", batch.observation)[:, 0],
                "kl": kl(layout, batch.old, new),
                "entropy": entropy(layout, new),
            }
            used = {"log_prob": True, "value": True, "kl": weighs_kl, "entropy": c.entropy_weight}
            return {k: v for k, v in every.items() if used[k]}, every

        _, backward, every = jax.vjp(heads, learner.vector, has_aux=True)
        log_ratio = every["log_prob"] - batch.old_log_prob
        known = {"old_log_prob": batch.old_log_prob, "kl": every["kl"], "entropy": every["entropy"],
                 "reward": batch.reward, "step": step}  # fmt: skip
        context = Context(**{name: known[name] for name in shape.needs})
        # The barriers keep the compiler from mixing the shape's arithmetic with what all shapes
        # share, the backward pass and the diagnostics, and so from rounding those differently.
        log_ratio, advantage = barrier((log_ratio, advantage))
        m = shape.multiplier(log_ratio, advantage, context)
        m = barrier(jnp.asarray(m, jnp.float32))
        loss, slope = jax.value_and_grad(
            lambda v: value_loss(c, v, batch.old_value, batch.target).sum()
        )(every["value"])
        pulls = {"log_prob": -m / count, "value": c.value_weight * slope / count}
        if weighs_kl:
            weight: Array = shape.kl_weight(log_ratio, advantage, context)
            pulls["kl"] = jnp.broadcast_to(weight, (count,)) / count
        if c.entropy_weight:
            pulls["entropy"] = jnp.full(count, -c.entropy_weight / count)
        (gradient,) = backward(pulls)
        updates, moments = adam.update(gradient, learner.optimiser)
        vector = learner.vector - lr * updates
        squares = jnp.square(gradient)
        norms = (jnp.sqrt(squares[: layout.policy_size].sum()), jnp.sqrt(squares.sum()))
        finite = jnp.isfinite(loss) & jnp.isfinite(norms[1]) & jnp.all(jnp.isfinite(vector))
        log_ratio, advantage, m = barrier((log_ratio, advantage, m))
        sums, beta, sets = observe(
            shape, log_ratio, advantage, m, every["kl"], every["entropy"], loss, norms
        )
        return Learner(vector, moments), sums, beta, sets, finite

    def epoch(
        learner: Learner, shape: Shape, lr: Array, step: Array, batch: Batch, order: Array
    ) -> tuple[Learner, Sums, Array, Array, Array]:
        """All minibatches of one pass, the last and smaller one too."""

        def body(carry: tuple[Learner, Array], rows: Array) -> Any:
            learner, finite = carry
            learner, sums, beta, sets, ok = gradient_step(
                learner, shape, lr, step, jax.tree.map(lambda x: x[rows], batch)
            )
            return (learner, finite & ok), (sums, beta, sets)

        rows = order[: whole * c.minibatch].reshape(whole, c.minibatch)
        start = (learner, jnp.asarray(True))
        (learner, finite), (sums, beta, sets) = jax.lax.scan(body, start, rows)
        total = jax.tree.map(reduce_sums, sums, Sums.reductions())
        beta, sets = beta.ravel(), sets.ravel()
        if rest:
            (learner, finite), (last, b, k) = body((learner, finite), order[whole * c.minibatch :])
            both = jax.tree.map(lambda x, y: jnp.stack([x, y]), total, last)
            total = jax.tree.map(reduce_sums, both, Sums.reductions())
            beta, sets = jnp.concatenate([beta, b]), jnp.concatenate([sets, k])
        return learner, total, beta, sets, finite

    def update(
        learner: Learner, controller: dict[str, Array], numbers: Array, batch: Batch,
        orders: Array, lr: Array, step: Array,
    ) -> Outcome:  # fmt: skip
        """`orders` is `[epochs, N]`, a permutation each."""
        value = with_numbers(template, dict(zip(names, numbers, strict=True)))
        shape = value.shape_at(controller) if isinstance(value, Controller) else value

        def body(carry: Any, order: Array) -> Any:
            learner, stopped, finite, classes = carry
            moved, sums, beta, sets, ok = epoch(learner, shape, lr, step, batch, order)
            if isinstance(value, Controller):
                learner = jax.tree.map(functools.partial(jnp.where, stopped), learner, moved)
                feedback = Feedback(ratio_deviation=sums.ratio_deviation / sums.count)
                stopped = stopped | value.stop(controller, feedback)
            else:
                learner = moved
            changed = jnp.zeros(())
            if c.per_epoch:
                now = jnp.zeros(c.batch, jnp.int8).at[order].set(sets)
                changed = jnp.mean(now != classes)
                classes = now
            return (learner, stopped, finite & ok, classes), (sums, beta, sets, changed, stopped)

        start = (learner, jnp.asarray(False), jnp.asarray(True), jnp.zeros(c.batch, jnp.int8))
        (moved, _, finite, _), seen = jax.lax.scan(body, start, orders)
        sums, beta, sets, changed, stops = seen
        total = jax.tree.map(reduce_sums, sums, Sums.reductions())
        metrics = total.metrics()
        if c.per_epoch:
            metrics |= {f"epoch.{k}": v for k, v in jax.vmap(Sums.metrics)(sums).items()}
            metrics[f"epoch.{CHANGED}"] = changed
        if isinstance(value, Controller):
            new = distribution(layout, layout.split(moved.vector), batch.observation)
            rollout_kl = kl(layout, batch.old, new).mean()
            w = jnp.exp(log_prob(layout, new, batch.action) - batch.old_log_prob)
            feedback = Feedback(rollout_kl, jnp.abs(w - 1).mean(), float(c.batch))
            metrics["rollout_kl"] = rollout_kl
            metrics["epochs_run"] = (~stops).sum() + jnp.any(stops)
            controller = {k: jnp.asarray(v, jnp.float32)
                          for k, v in value.update(controller, feedback).items()}  # fmt: skip
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, learner)
        return Outcome(kept, controller, metrics, beta.ravel(), sets.ravel(), finite)

    return jax.jit(update)
