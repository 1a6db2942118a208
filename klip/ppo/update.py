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
from klip.ppo.diagnostics import CHANGED, Epoch, Losses, Trained, metrics, nothing, observe
from klip.ppo.policy import Layout, distribution, entropy, kl, log_prob, network
from klip.shapes import LOG_RATIO_LIMIT, Array, Context, Feedback, Region, Shape, with_numbers
from klip.theory import diagnostics
from klip.theory.diagnostics import Observed, merged, totals
from klip.theory.partition import edges_of, mark_of

Arrays = dict[str, Array]


TROUBLES = ("none", "ratio", "value loss", "multiplier of the shape", "gradient", "parameters")
"""What may stop being finite in an update, in the order in which it is computed.

A ratio is in trouble sooner, where it no longer is what the shapes are told: beyond e^20."""


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
    sets: Array  # [epochs * N] in 0, kill 1, pass 2; -1 for an epoch that was not run
    trouble: Array  # what was not finite first, a place in TROUBLES; if not 0, nothing was applied


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


def barrier(x: Any) -> Any:
    """`x`, computed as it stands: the compiler neither moves nor fuses arithmetic across."""
    return jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]


class State(NamedTuple):
    """A learner while it learns: arrays by name, since slicing them from the vector costs time."""

    arrays: Arrays
    optimiser: Any
    trouble: Array


def _unpack(layout: Layout, learner: Learner) -> State:
    empty, adam = learner.optimiser
    moments = adam._replace(mu=layout.split(adam.mu), nu=layout.split(adam.nu))
    return State(layout.split(learner.vector), (empty, moments), jnp.asarray(0))


def _pack(layout: Layout, state: State) -> tuple[Learner, Array]:
    """The learner again, and what in it or on the way to it was not finite."""
    empty, adam = state.optimiser
    vector = layout.join(state.arrays)
    moments = adam._replace(mu=layout.join(adam.mu), nu=layout.join(adam.nu))
    lost = jnp.where(jnp.all(jnp.isfinite(vector)), 0, TROUBLES.index("parameters"))
    return Learner(vector, (empty, moments)), jnp.where(state.trouble, state.trouble, lost)


def _nothing(count: int, state: State, order: Array) -> tuple[State, Epoch]:
    """What an epoch does that is not run."""
    return state, nothing(count)


class When(NamedTuple):
    """How far training is."""

    step: Array
    """environment steps taken"""
    progress: Array
    """the share of all, 0 at the first rollout"""


def _context(shape: Shape, batch: Batch, state_kl: Array, entropies: Array, when: When) -> Context:
    """What the shape needs to know of each sample of a batch."""
    known = {"old_log_prob": batch.old_log_prob, "kl": state_kl, "entropy": entropies,
             "reward": batch.reward, "step": when.step, "progress": when.progress}  # fmt: skip
    return Context(**{name: known[name] for name in shape.needs})


def _after(
    layout: Layout, c: Config, arrays: Arrays, shape: Shape, batch: Batch, when: When
) -> dict[str, Array]:
    """The metrics of a whole rollout under the policy that its epochs have left."""
    new = distribution(layout, arrays, batch.observation)
    log_ratio = log_prob(layout, new, batch.action) - batch.old_log_prob
    state_kl, entropies = kl(layout, batch.old, new), entropy(layout, new)
    context = _context(shape, batch, state_kl, entropies, when)
    advantage = batch.advantage
    if c.normalise_advantages == "minibatch":
        advantage = normalised(advantage)
    m = jnp.asarray(shape.multiplier(log_ratio, advantage, context), jnp.float32)
    observed = Observed.of(log_ratio, advantage, m, edges_of(shape, context, log_ratio))
    means = {"kl": state_kl.mean(), "entropy": entropies.mean()}
    return diagnostics.metrics(totals(observed), mark_of(shape)) | means


@functools.lru_cache(maxsize=64)
def epochs(
    layout: Layout, c: Config, template: Region, names: tuple[str, ...]
) -> Callable[..., Outcome]:
    """The compiled update for one structure of shape; its numbers are arguments.

    `c` should differ between runs only where the program does: pass it with seed 0 and so on.
    """
    adam = optimiser(c)
    whole, rest = divmod(c.batch, c.minibatch)

    def gradient_step(
        state: State, shape: Shape, lr: Array, when: When, batch: Batch
    ) -> tuple[State, Trained, Losses]:
        count = batch.advantage.shape[0]
        advantage = batch.advantage
        if c.normalise_advantages == "minibatch":
            advantage = normalised(advantage)

        # Only what has a weight in the objective is differentiated; the rest is watched.
        weighs_kl = shape.weighs_kl(jnp.ones(1))

        def heads(arrays: Arrays) -> tuple[dict[str, Array], dict[str, Array]]:
            new = distribution(layout, arrays, batch.observation)
            every = {
                "log_prob": log_prob(layout, new, batch.action),
                "value": network(arrays, "value", batch.observation)[:, 0],
                "kl": kl(layout, batch.old, new),
                "entropy": entropy(layout, new),
            }
            used = {"log_prob": True, "value": True, "kl": weighs_kl, "entropy": c.entropy_weight}
            return {k: v for k, v in every.items() if used[k]}, every

        _, backward, every = jax.vjp(heads, state.arrays, has_aux=True)
        log_ratio = every["log_prob"] - batch.old_log_prob
        context = _context(shape, batch, every["kl"], every["entropy"], when)
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
        updates, moments = adam.update(gradient, state.optimiser)
        arrays = jax.tree.map(lambda x, u: x - lr * u, state.arrays, updates)
        squares = {name: jnp.square(g).sum() for name, g in gradient.items()}
        of_policy = sum(s for name, s in squares.items() if name.startswith("policy"))
        norms = (jnp.sqrt(of_policy), jnp.sqrt(sum(squares.values())))
        fine = (jnp.all(log_ratio <= LOG_RATIO_LIMIT), jnp.isfinite(loss), jnp.isfinite(m).all(),
                jnp.isfinite(norms[1]))  # fmt: skip
        first = jnp.select([~ok for ok in fine], [1, 2, 3, 4], 0)
        trouble = jnp.where(state.trouble, state.trouble, first)
        watched = barrier((log_ratio, advantage, m))
        bottom, top = (jnp.broadcast_to(x, count) for x in edges_of(shape, context, log_ratio))
        trained = Trained(
            watched[0], watched[1], watched[2], every["kl"], every["entropy"], bottom, top
        )
        return State(arrays, moments, trouble), trained, Losses(loss, *norms)

    def epoch(
        state: State, shape: Shape, lr: Array, when: When, batch: Batch, order: Array
    ) -> tuple[State, Epoch]:
        """All minibatches of one pass, the last and smaller one too."""

        def body(state: State, rows: Array) -> tuple[State, tuple[Trained, Losses]]:
            minibatch = jax.tree.map(lambda x: x[rows], batch)
            state, trained, losses = gradient_step(state, shape, lr, when, minibatch)
            return state, (trained, losses)

        rows = order[: whole * c.minibatch].reshape(whole, c.minibatch)
        state, (trained, losses) = jax.lax.scan(body, state, rows)
        trained = jax.tree.map(jnp.ravel, trained)
        if rest:
            state, (few, loss) = body(state, order[whole * c.minibatch :])
            trained = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), trained, few)
            losses = jax.tree.map(jnp.append, losses, loss)
        return state, observe(trained, losses)

    def update(
        learner: Learner, controller: dict[str, Array], numbers: Array, batch: Batch,
        orders: Array, lr: Array, step: Array, progress: Array,
    ) -> Outcome:  # fmt: skip
        """`orders` is `[epochs, N]`, a permutation each; `progress` is 0 at the first rollout."""
        when = When(step, progress)
        value = with_numbers(template, dict(zip(names, numbers, strict=True)))
        shape = value.shape_at(controller)
        mark = mark_of(shape)
        known = {"samples": float(c.batch), "progress": when.progress}

        def run(state: State, order: Array) -> tuple[State, Epoch]:
            return epoch(state, shape, lr, when, batch, order)

        def body(carry: Any, order: Array) -> Any:
            state, stopped, sets, epoch_number = carry
            epoch_number = epoch_number + 1
            if value.adapts:
                skip = functools.partial(_nothing, c.batch)
                state, done = jax.lax.cond(stopped, skip, run, state, order)
                feedback = Feedback.of(metrics(done.sums, mark), epoch=epoch_number, **known)
                stopped = stopped | value.stop(controller, feedback)
            else:
                state, done = run(state, order)
            now = sets
            if c.per_epoch:
                now = jnp.zeros(c.batch, jnp.int8).at[order].set(done.sets)
            return (state, stopped, now, epoch_number), (done, jnp.mean(now != sets))

        begun = (jnp.asarray(False), jnp.zeros(c.batch, jnp.int8), jnp.asarray(0))
        (state, *_), (done, changed) = jax.lax.scan(
            body, (_unpack(layout, learner), *begun), orders
        )
        moved, trouble = _pack(layout, state)
        row = metrics(merged(done.sums), mark)
        if c.per_epoch:
            by_epoch = jax.vmap(functools.partial(metrics, mark=mark))(done.sums)
            row |= {f"epoch.{k}": v for k, v in by_epoch.items()}
            row[f"epoch.{CHANGED}{mark}"] = changed
        if value.adapts:
            row["epochs_run"] = (done.sums["count"] > 0).sum()
            after = _after(layout, c, state.arrays, shape, batch, when)
            row["rollout_kl"] = after["kl"]
            feedback = Feedback.of(after, epoch=row["epochs_run"], **known)
            controller = {k: jnp.asarray(v, jnp.float32)
                          for k, v in value.update(controller, feedback).items()}  # fmt: skip
        kept = jax.tree.map(lambda new, old: jnp.where(trouble, old, new), moved, learner)
        return Outcome(kept, controller, row, done.beta.ravel(), done.sets.ravel(), trouble)

    return jax.jit(update)
