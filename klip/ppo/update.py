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

from klip.ppo.advantages import Aged, Batch, normalised
from klip.ppo.checking import UNIFORM
from klip.ppo.config import Config
from klip.ppo.diagnostics import (
    CHANGED,
    Epoch,
    Losses,
    Old,
    Trained,
    metrics,
    nothing,
    observe,
)
from klip.ppo.optimising import Arrays, frozen, optimiser, stepped, value_loss
from klip.ppo.policy import Layout, distribution, entropy, kl, log_prob, network
from klip.shapes import (
    Array,
    Context,
    Feedback,
    Region,
    Shape,
    ratio,
    with_numbers,
)
from klip.theory import diagnostics
from klip.theory.diagnostics import Observed, merged, totals
from klip.theory.partition import edges_of, mark_of

TROUBLES = ("none", "ratio", "value loss", "multiplier of the shape", "gradient", "parameters")
"""What may stop being finite in an update, in the order in which it is computed."""


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
    by_slot: Array | None = None  # [BY_SLOT, replay] sums over the samples of each rollout


def barrier(x: Any) -> Any:
    """`x`, computed as it stands: the compiler neither moves nor fuses arithmetic across."""
    return jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]


class State(NamedTuple):
    """A learner while it learns: arrays by name, since slicing them from the vector costs time."""

    arrays: Arrays
    optimiser: Any
    trouble: Array
    stopped: Array | None = None  # whether the policy has, where epochs go on nevertheless


def _unpack(layout: Layout, learner: Learner, stops: bool) -> State:
    empty, adam = learner.optimiser
    moments = adam._replace(mu=layout.split(adam.mu), nu=layout.split(adam.nu))
    stopped = jnp.asarray(False) if stops else None
    return State(layout.split(learner.vector), (empty, moments), jnp.asarray(0), stopped)


def _pack(layout: Layout, state: State) -> tuple[Learner, Array]:
    """The learner again, and what in it or on the way to it was not finite."""
    empty, adam = state.optimiser
    vector = layout.join(state.arrays)
    moments = adam._replace(mu=layout.join(adam.mu), nu=layout.join(adam.nu))
    lost = jnp.where(jnp.all(jnp.isfinite(vector)), 0, TROUBLES.index("parameters"))
    return Learner(vector, (empty, moments)), jnp.where(state.trouble, state.trouble, lost)


def _nothing(count: int, slots: int | None, state: State, order: Array) -> tuple[State, Epoch]:
    """What an epoch does that is not run."""
    return state, nothing(count, slots)


Advised = Callable[[dict[str, Array]], Array]
"""Whether a controller that hears these metrics would stop."""


class When(NamedTuple):
    """How far training is."""

    step: Array
    """environment steps taken"""
    progress: Array
    """the share of all, 0 at the first rollout"""


def _context(
    c: Config, shape: Shape, batch: Batch, log_ratio: Array, known: dict[str, Array], when: When
) -> Context:
    """What the shape needs to know of each sample of a batch; `known` is of the policy now."""
    known = known | {"old_log_prob": batch.old_log_prob, "reward": batch.reward,
                     "step": when.step, "progress": when.progress}  # fmt: skip
    if batch.aged is not None:
        known |= _of_old(c, batch.aged, log_ratio)
    return Context(**{name: known[name] for name in shape.needs})


def _of_old(c: Config, aged: Aged, log_ratio: Array) -> dict[str, Array]:
    """What is known of samples that may be old, by the names of the context."""
    nothing = jnp.zeros_like(aged.log_c)
    of_actor = c.ratio == "behaviour"
    w = jnp.where(aged.there, ratio(_to_actor(c, aged, log_ratio)), 0.0)
    return {
        "age": aged.age,
        "behaviour_log_ratio": nothing if of_actor else aged.log_c,
        "proximal_log_ratio": -aged.log_c if of_actor else nothing,
        "effective_size": jnp.square(w.sum()) / (aged.there.sum() * jnp.square(w).sum()),
        "deviation": aged.deviation,
        "second_moment": aged.second_moment,
    }


def _to_actor(c: Config, aged: Aged, log_ratio: Array) -> Array:
    """log of the new policy over the one that acted."""
    return log_ratio if c.ratio == "behaviour" else log_ratio + aged.log_c


def _centred(c: Config, batch: Batch) -> Array:
    """The advantages of a minibatch, normalised if that is done here."""
    advantage, aged = batch.advantage, batch.aged
    there = None if aged is None else aged.there
    if c.normalise_advantages == "minibatch":
        return normalised(c, advantage, there)
    if c.normalise_advantages == "weighted":
        v = jnp.ones_like(advantage) if aged is None else ratio(aged.log_c) * aged.value_weight
        mean = (v * advantage).mean(where=there) / v.mean(where=there)
        return (advantage - mean) / ((v * advantage).std(where=there) + 1e-8)
    return advantage


def _weighed(c: Config, aged: Aged, pulls: Arrays) -> Arrays:
    """The pulls on what the policy and the critic say, with their weights, where those are not 1.

    A weight of 1 would cost time in every gradient step, and change no bit.
    """
    if c.weighted:
        pulls = pulls | {k: x * aged.weight for k, x in pulls.items() if k != "value"}
    if c.age_weights != UNIFORM:
        pulls = pulls | {"value": pulls["value"] * aged.value_weight}
    return pulls


def _old(c: Config, aged: Aged | None, log_ratio: Array, m: Array) -> Old | None:
    """What is watched of samples that may be old."""
    if aged is None:
        return None
    w = ratio(_to_actor(c, aged, log_ratio))
    drift = jnp.abs(w - ratio(aged.log_c))
    if c.age_weights != UNIFORM:
        drift = aged.value_weight * drift
    return Old(aged.slot, w, jnp.abs(aged.weight * m if c.weighted else m), drift)


def _after(
    layout: Layout, c: Config, arrays: Arrays, shape: Shape, batch: Batch, when: When
) -> dict[str, Array]:
    """The metrics of a whole rollout under the policy that its epochs have left."""
    new = distribution(layout, arrays, batch.observation)
    log_ratio = log_prob(layout, new, batch.action) - batch.old_log_prob
    every = {"kl": kl(layout, batch.old, new), "entropy": entropy(layout, new)}
    context = _context(c, shape, batch, log_ratio, every, when)
    advantage = _centred(c, batch)
    m = jnp.asarray(shape.multiplier(log_ratio, advantage, context), jnp.float32)
    observed = Observed.of(log_ratio, advantage, m, edges_of(shape, context, log_ratio))
    if batch.aged is None:
        row = diagnostics.metrics(totals(observed), mark_of(shape))
        return row | {name: values.mean() for name, values in every.items()}
    there = batch.aged.there
    old = _old(c, batch.aged, log_ratio, m)
    assert old is not None
    every["tv"] = 0.5 * old.drift
    row = diagnostics.metrics(totals(observed, there), mark_of(shape))
    return row | {k: jnp.sum(jnp.where(there, x, 0)) / there.sum() for k, x in every.items()}


def _heard(row: dict[str, Array], **known: Array) -> Feedback:
    """What a controller hears of these metrics; a fresh sample's w_b is w, and its c is 1."""
    return Feedback.of({"tv": 0.5 * row["ratio_deviation"]} | row, **known)


def _adviser(value: Region, controller: dict[str, Array], **known: Array) -> Advised:
    """Whether a controller would stop, in this state and with what else it knows."""
    return lambda row: value.stop(controller, _heard(row, **known))


def _held(
    c: Config, shape: Shape, before: State, after: State, trained: Trained, advised: Advised
) -> State:
    """The state after a gradient step, but with the policy as before it where that has stopped."""
    stopped = before.stopped
    if stopped is None:
        return after
    if c.stop_at == "step":
        edges = trained.bottom, trained.top
        observed = Observed.of(trained.log_ratio, trained.advantage, trained.m, edges)
        row = diagnostics.metrics(totals(observed), mark_of(shape))
        seen = {"kl": trained.kl.mean(), "entropy": trained.entropy.mean()}
        stopped = stopped | advised(row | seen)
    arrays, moments = frozen(
        c, stopped, (before.arrays, before.optimiser), (after.arrays, after.optimiser)
    )
    return State(arrays, moments, after.trouble, stopped)


def _over(c: Config, state: State, stopped: Array, advice: Array) -> tuple[State, Array]:
    """The state after an epoch, and whether no further one is run; `advice` is the controller's."""
    if c.stop_at == "step":
        return state, state.stopped if c.stop_value else stopped
    if state.stopped is None:
        return state, stopped | advice
    return state._replace(stopped=state.stopped | advice), stopped


@functools.lru_cache(maxsize=64)
def epochs(
    layout: Layout, c: Config, template: Region, names: tuple[str, ...]
) -> Callable[..., Outcome]:
    """The compiled update for one structure of shape; its numbers are arguments.

    `c` should differ between runs only where the program does: pass it with seed 0 and so on.
    """
    adam = optimiser(c)
    whole, rest = divmod(c.batch, c.minibatch)
    slots = None if c.fresh else c.replay
    # a controller may stop the policy in the middle of an epoch, or without the value network
    stops = template.adapts and (c.stop_at == "step" or not c.stop_value)

    def gradient_step(
        state: State, shape: Shape, lr: Array, when: When, batch: Batch, advised: Advised
    ) -> tuple[State, Trained, Losses]:
        count = batch.advantage.shape[0]
        advantage = _centred(c, batch)

        # Only what has a weight in the objective is differentiated; the rest is watched.
        weighs_kl = shape.weighs_kl(jnp.ones(1))

        def heads(arrays: Arrays) -> tuple[dict[str, Array], dict[str, Array]]:
            new = distribution(layout, arrays, batch.observation)
            every = {
                "log_prob": log_prob(layout, new, batch.action),
                "value": network(layout, arrays, "value", batch.observation)[:, 0],
                "kl": kl(layout, batch.old, new),
                "entropy": entropy(layout, new),
            }
            used = {"log_prob": True, "value": True, "kl": weighs_kl, "entropy": c.entropy_weight}
            return {k: v for k, v in every.items() if used[k]}, every

        _, backward, every = jax.vjp(heads, state.arrays, has_aux=True)
        log_ratio = every["log_prob"] - batch.old_log_prob
        seen = {name: every[name] for name in ("kl", "entropy")}
        context = _context(c, shape, batch, log_ratio, seen, when)
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
        if batch.aged is not None:
            pulls = _weighed(c, batch.aged, pulls)
        if c.entropy_weight:
            pulls["entropy"] = jnp.full(count, -c.entropy_weight / count)
        (gradient,) = backward(pulls)
        updates, moments = adam.update(gradient, state.optimiser)
        arrays = stepped(c, state.arrays, updates, lr)
        squares = {name: jnp.square(g).sum() for name, g in gradient.items()}
        of_policy = sum(s for name, s in squares.items() if name.startswith("policy"))
        norms = (jnp.sqrt(of_policy), jnp.sqrt(sum(squares.values())))
        # A ratio beyond e^20 is held there (`klip.shapes.ratio`), and the run goes on.
        fine = (jnp.isfinite(log_ratio).all(), jnp.isfinite(loss), jnp.isfinite(m).all(),
                jnp.isfinite(norms[1]))  # fmt: skip
        first = jnp.select([~ok for ok in fine], [1, 2, 3, 4], 0)
        trouble = jnp.where(state.trouble, state.trouble, first)
        watched: tuple[Array, Array, Array] = barrier((log_ratio, advantage, m))
        bottom, top = (jnp.broadcast_to(x, count) for x in edges_of(shape, context, log_ratio))
        trained = Trained(*watched, every["kl"], every["entropy"], bottom, top)
        after = _held(c, shape, state, State(arrays, moments, trouble), trained, advised)
        return after, trained, Losses(loss, *norms)

    def epoch(
        state: State, shape: Shape, lr: Array, when: When, batch: Batch, order: Array,
        advised: Advised,
    ) -> tuple[State, Epoch]:  # fmt: skip
        """All minibatches of one pass, the last and smaller one too."""

        def body(state: State, rows: Array) -> tuple[State, tuple[Trained, Losses]]:
            minibatch = jax.tree.map(lambda x: x[rows], batch)
            state, trained, losses = gradient_step(state, shape, lr, when, minibatch, advised)
            return state, (trained, losses)

        rows = order[: whole * c.minibatch].reshape(whole, c.minibatch)
        state, (trained, losses) = jax.lax.scan(body, state, rows)
        trained = jax.tree.map(jnp.ravel, trained)
        if rest:
            state, (few, loss) = body(state, order[whole * c.minibatch :])
            trained = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), trained, few)
            losses = jax.tree.map(jnp.append, losses, loss)
        aged = jax.tree.map(lambda x: x[order], batch.aged)
        trained = trained._replace(old=_old(c, aged, trained.log_ratio, trained.m))
        return state, observe(trained, losses, slots)

    def update(
        learner: Learner, controller: dict[str, Array], numbers: Array, batch: Batch,
        orders: Array, there: Array, lr: Array, step: Array, progress: Array,
    ) -> Outcome:  # fmt: skip
        """`orders` and `there` are from `klip.ppo.replay`; `progress` is 0 at the first rollout."""
        when = When(step, progress)
        value = with_numbers(template, dict(zip(names, numbers, strict=True)))
        shape = value.shape_at(controller)
        mark = mark_of(shape)
        known = {"samples": float(c.batch), "progress": when.progress}

        def body(carry: Any, rows: tuple[Array, Array]) -> Any:
            (state, stopped, sets, epoch_number), (order, is_there) = carry, rows
            epoch_number = epoch_number + 1
            advised = _adviser(value, controller, epoch=epoch_number, **known)

            def run(state: State, order: Array) -> tuple[State, Epoch]:
                return epoch(state, shape, lr, when, batch, order, advised)

            if value.adapts or c.passes > c.epochs:
                skip = functools.partial(_nothing, c.batch, slots)
                state, done = jax.lax.cond(stopped | ~is_there, skip, run, state, order)
            else:
                state, done = run(state, order)
            if value.adapts:
                advice = advised(metrics(done.sums, mark))
                state, stopped = _over(c, state, stopped, advice)
            now = sets
            if c.per_epoch:
                now = sets.at[order].set(done.sets)
            return (state, stopped, now, epoch_number), (done, jnp.mean((now != sets)[order]))

        begun = (jnp.asarray(False), jnp.zeros(c.learned, jnp.int8), jnp.asarray(0))
        (state, *_), (done, changed) = jax.lax.scan(
            body, (_unpack(layout, learner, stops), *begun), (orders, there)
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
            feedback = _heard(after, epoch=row["epochs_run"], **known)
            controller = {k: jnp.asarray(v, jnp.float32)
                          for k, v in value.update(controller, feedback).items()}  # fmt: skip
        kept = jax.tree.map(lambda new, old: jnp.where(trouble, old, new), moved, learner)
        by_slot = None if slots is None else done.by_slot.sum(axis=0)
        beta, sets = done.beta.ravel(), done.sets.ravel()
        return Outcome(kept, controller, row, beta, sets, trouble, by_slot)

    return jax.jit(update)
