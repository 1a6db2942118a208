"""Samples that may be old: what is kept of a rollout, and what an iteration then learns from.

mu is the policy that acted, pi_k the one at the start of the iteration, and c = pi_k / mu. Kept are
what happened and what mu thought of it; what the critic says is computed anew in each iteration.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from klip.engine.random import stream
from klip.errors import KlipError
from klip.ppo.acting import forward, layers
from klip.ppo.advantages import Aged, Batch, Rollout, advantages, normalised
from klip.ppo.config import Config
from klip.ppo.memory import RECORDED, sizes_kept
from klip.ppo.policy import Layout, distribution, log_prob, network
from klip.shapes import Array, ratio

State = Mapping[str, NDArray[Any]]
ON_DEVICE: Final = ("observation", "last", "action", "reward", "ended")
"""What of a rollout goes into compiled programs as it is."""


class Opinion(NamedTuple):
    """What a policy says of a rollout of N = T*E samples."""

    log_prob: Array  # [N] of the actions
    policy: dict[str, Array]  # the distribution at each observation


class Judged(NamedTuple):
    """What a critic says of it."""

    value: Array  # [N]
    last_value: Array  # [E]


class Recorded(NamedTuple):
    """Plain GAE, from when the rollout was new; `[N]` each."""

    value: Array
    advantage: Array
    target: Array


class Slot(NamedTuple):
    """A rollout as it is kept."""

    version: int
    """the iteration at whose start its policy stood"""
    rollout: Rollout
    old_log_prob: Array  # [N] log mu
    old: dict[str, Array]  # mu at each observation
    recorded: Recorded | None = None


@functools.lru_cache(maxsize=32)
def looking(layout: Layout) -> Callable[[Array, Array, Array], Opinion]:
    """The compiled look of parameters `[P]` at observations and actions of a rollout.

    One program looks for every policy at samples of every age, so that equal parameters give equal
    bits.
    """
    return jax.jit(functools.partial(_look, layout))


def _look(layout: Layout, vector: Array, observation: Array, action: Array) -> Opinion:
    flat = observation.reshape(-1, observation.shape[-1])
    policy = distribution(layout, layout.split(vector), flat)
    return Opinion(log_prob(layout, policy, action.reshape(flat.shape[0], -1)), policy)


@functools.lru_cache(maxsize=32)
def judging(layout: Layout) -> Callable[[Array, Array, Array], Judged]:
    """The compiled judgement of parameters `[P]` on observations, and on those after the last."""
    return jax.jit(functools.partial(_judge, layout))


def _judge(layout: Layout, vector: Array, observation: Array, last: Array) -> Judged:
    arrays = layout.split(vector)
    flat = observation.reshape(-1, observation.shape[-1])
    values = (network(layout, arrays, "value", x)[:, 0] for x in (flat, last))
    return Judged(*values)


def to_keep(
    rollout: Rollout, finals: Sequence[tuple[int, NDArray[np.float32]]], copied: bool
) -> Rollout:
    """A new rollout with the places and the final observations of episodes that were cut off.

    Args:
        rollout: as it was collected, together with those of other runs
        finals: place in the flattened `[T, E]` and observation `[D]` of each
        copied: whether it outlives the iteration: its arrays are then no parts of larger ones

    """
    size = rollout.observation.shape[-1]
    places = np.array([place for place, _ in finals], np.int32)
    final = np.array([x for _, x in finals], np.float32).reshape(-1, size)
    if copied:
        rollout = Rollout(*(None if x is None else np.array(x) for x in rollout))
    return rollout._replace(cut=places, final=final)


def kept(layout: Layout, acting: Array, version: int, rollout: Rollout) -> Slot:
    """A new rollout and what the policy that acted, `acting` `[P]`, thought of it."""
    rollout = to_device(rollout)
    look = looking(layout)(acting, rollout.observation, rollout.action)
    return Slot(version, rollout, look.log_prob, look.policy)


def to_device(rollout: Rollout) -> Rollout:
    """The rollout where programs find it, once, since several look at it, perhaps for long."""
    used = {name: getattr(rollout, name) for name in ON_DEVICE}
    return rollout._replace(**jax.device_put(used))


class Seen(NamedTuple):
    """One rollout, and all that is known of it now."""

    old_log_prob: Array  # [N] log mu
    old: dict[str, Array]  # mu
    recorded: Recorded | None
    look: Opinion  # of pi_k
    judged: Judged  # by its critic
    rollout: Rollout


class Learned(NamedTuple):
    """What an iteration learns from."""

    batch: Batch
    slots: list[Slot]
    """newest first; the newest may have got its record"""
    ages: list[int]
    """of each slot"""


def learned(
    layout: Layout, c: Config, vector: Array, iteration: int, slots: Sequence[Slot], ranked: bool
) -> Learned:
    """The samples of slots, newest first, as the policy `vector` and its critic see them now.

    Args:
        layout: where the arrays lie
        c: as `klip.ppo.cohort.program` leaves it
        vector: `[P]` of pi_k
        iteration: k
        slots: newest first
        ranked: whether samples are ranked by how far off they are

    """
    slots, seen = list(slots), []
    for place, slot in enumerate(slots):
        r = slot.rollout
        judged = judging(layout)(vector, r.observation, r.last)
        r = _bootstrapped(layout, vector, r)
        if c.trace == "recorded" and slot.recorded is None:
            slot = slots[place] = slot._replace(recorded=recording(c)(judged, r))
        look = Opinion(slot.old_log_prob, slot.old)
        if slot.version != iteration:  # else the policy that looks is the one that acted
            look = looking(layout)(vector, r.observation, r.action)
        seen.append(Seen(slot.old_log_prob, slot.old, slot.recorded, look, judged, r))
    weights = np.array(c.newest_first[: len(slots)], np.float32)
    weights *= len(slots) / weights.sum()
    ages = [iteration - slot.version for slot in slots]
    batch = assembly(c, ranked)(seen, np.array(ages, np.float32), weights)
    return Learned(batch, slots, ages)


def learned_late(
    layout: Layout, c: Config, acting: Array, vector: Array, age: int, rollout: Rollout,
    ranked: bool,
) -> Learned:  # fmt: skip
    """The same without a replay: the samples of the policy `acting` alone, in one program."""
    batch = late(layout, c, ranked)(
        acting, vector, _bootstrapped(layout, vector, rollout), np.array([age], np.float32)
    )
    return Learned(batch, [], [age])


@functools.lru_cache(maxsize=64)
def late(layout: Layout, c: Config, ranked: bool) -> Callable[..., Batch]:
    """The compiled step from mu, pi_k, a rollout of mu's and its age `[1]` to the batch.

    Both policies look by the same instructions, so that equal parameters give equal bits.
    """

    def assemble(acting: Array, vector: Array, rollout: Rollout, ages: Array) -> Batch:
        both = jax.lax.map(
            lambda who: _look(layout, who, rollout.observation, rollout.action),
            jnp.stack([acting, vector]),
        )
        old, look = jax.tree.map(lambda x: x[0], both), jax.tree.map(lambda x: x[1], both)
        judged = _judge(layout, vector, rollout.observation, rollout.last)
        recorded = _record(c, judged, rollout) if c.trace == "recorded" else None
        seen = Seen(old.log_prob, old.policy, recorded, look, judged, rollout)
        return _assembled(c, ranked, [seen], ages, jnp.ones(1))

    return jax.jit(assemble)


def _bootstrapped(layout: Layout, vector: Array, rollout: Rollout) -> Rollout:
    """The rollout with V(final observation) where a time limit cut an episode off, 0 elsewhere."""
    values = np.zeros(rollout.reward.shape, np.float32)
    if rollout.cut is not None and rollout.final is not None and len(rollout.cut):
        critic = layers(layout, layout.split(np.asarray(vector)[None]), "value")
        values.flat[rollout.cut] = forward(layout, critic, rollout.final[None])[0, :, 0]
    return rollout._replace(bootstrap=values, cut=None, final=None)


@functools.lru_cache(maxsize=32)
def recording(c: Config) -> Callable[[Judged, Rollout], Recorded]:
    """The compiled step from a new rollout to its plain GAE."""
    return jax.jit(functools.partial(_record, c))


def _record(c: Config, judged: Judged, rollout: Rollout) -> Recorded:
    value = judged.value.reshape(rollout.reward.shape)
    advantage = advantages(c, value, judged.last_value, rollout).ravel()
    return Recorded(judged.value, advantage, judged.value + advantage)


def samples(c: Config, seen: Seen) -> dict[str, Any]:
    """The samples of one rollout, by the names of `Batch`; and their log c."""
    rollout, look = seen.rollout, seen.look
    log_c = look.log_prob - seen.old_log_prob
    if seen.recorded is not None:
        value, advantage, target = seen.recorded
    else:
        value, trust = seen.judged.value, jnp.minimum(jnp.exp(log_c), 1.0)
        shape = rollout.reward.shape
        advantage = advantages(
            c, value.reshape(shape), seen.judged.last_value, rollout, trust.reshape(shape)
        ).ravel()
        target = value + trust * advantage
    of_actor = c.ratio == "behaviour"
    return {
        "observation": rollout.observation.reshape(c.batch, -1),
        "action": rollout.action.reshape(c.batch, -1),
        "reward": rollout.reward.ravel(),
        "old_log_prob": seen.old_log_prob if of_actor else look.log_prob,
        "old": seen.old if of_actor else look.policy,
        "old_value": value,
        "advantage": advantage,
        "target": target,
        "log_c": log_c,
    }


@functools.lru_cache(maxsize=64)
def assembly(c: Config, ranked: bool) -> Callable[[list[Seen], Array, Array], Batch]:
    """The compiled step from rollouts, their ages and weights to the batch.

    The batch has as many rows as there will be with all rollouts; `there` says which are real.
    """
    return jax.jit(functools.partial(_assembled, c, ranked))


def _assembled(c: Config, ranked: bool, seen: list[Seen], ages: Array, weights: Array) -> Batch:
    rows = [samples(c, each) for each in seen]
    whole = jax.tree.map(lambda *x: jnp.concatenate(x), *rows)
    slot = jnp.repeat(jnp.arange(len(rows)), c.batch)
    log_c, weight = whole.pop("log_c"), weights[slot]
    if c.normalise_advantages == "rollout":
        whole["advantage"] = normalised(c, whole["advantage"])
    correction = jnp.minimum(jnp.exp(log_c), c.correction_cap)
    aged = Aged(
        slot=slot,
        age=ages[slot],
        there=jnp.ones_like(log_c, bool),
        log_c=log_c,
        deviation=jnp.broadcast_to(jnp.abs(ratio(log_c) - 1).mean(), log_c.shape),
        second_moment=second_moment(log_c) if ranked else None,
        weight=weight * correction if c.ratio == "decoupled" else weight,
        value_weight=weight,
    )
    missing = c.learned - log_c.shape[0]
    batch: Batch = jax.tree.map(
        lambda x: jnp.pad(x, ((0, missing), *((0, 0),) * (x.ndim - 1))),
        Batch(**whole, aged=aged),
    )
    return batch


def second_moment(log_c: Array) -> Array:
    """For each sample the mean of (log c)^2 over those whose |log c| is no larger.

    >>> second_moment(jnp.array([0.0, -2.0, 1.0])).round(2).tolist()
    [0.0, 1.6699999570846558, 0.5]
    """
    squares = jnp.square(log_c)
    order = jnp.argsort(squares)
    ranked = squares[order]
    means = jnp.cumsum(ranked) / jnp.arange(1, log_c.shape[0] + 1)
    last = jnp.searchsorted(ranked, ranked, side="right") - 1  # equal ones count together
    return jnp.zeros_like(log_c).at[order].set(means[last])


def orders(c: Config, iteration: int, slots: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Which samples each pass trains on, `[passes, batch]`; and which passes there are.

    Permutations of all samples follow one another, cut into passes. There are fewer at first, while
    slots are missing.
    """
    count = c.passes if c.gradient_steps == "equal" else c.epochs * slots
    drawn = [
        stream(c.seed, "order", iteration, e).permutation(slots * c.batch)
        for e in range(-(-count // slots))
    ]
    rows = np.concatenate(drawn).reshape(-1, c.batch)[:count]
    every = np.zeros((c.passes, c.batch), np.int32)
    every[:count] = rows
    return every, np.arange(c.passes) < count


# -- on disk ---------------------------------------------------------------------------------------


def to_arrays(slots: Sequence[Slot]) -> dict[str, NDArray[Any]]:
    """Slots for a checkpoint."""
    arrays: dict[str, NDArray[Any]] = {}
    for i, slot in enumerate(slots):
        rollout = slot.rollout._asdict().items()
        parts = {k: v for k, v in rollout if k not in ("bootstrap", "skipped")}
        parts |= {"version": np.array(slot.version), "old_log_prob": slot.old_log_prob}
        parts |= {f"old.{name}": array for name, array in slot.old.items()}
        if slot.recorded is not None:
            parts |= {f"recorded.{k}": v for k, v in slot.recorded._asdict().items()}
        arrays |= {f"replay.{i}.{name}": _on_disk(array) for name, array in parts.items()}
    return arrays


def _on_disk(array: Array) -> NDArray[Any]:
    """Choices are shorter numbers in programs than where they are made and kept."""
    kept = np.asarray(array)
    return kept.astype(np.int64) if kept.dtype == np.int32 and kept.ndim > 1 else kept


def from_arrays(layout: Layout, c: Config, iteration: int, state: State) -> list[Slot]:
    """The slots in a checkpoint after so many iterations; raises `KlipError` unless they fit."""
    count = min(iteration, c.replay - 1)
    acted = [iteration - 1 - i for i in range(count)]
    return [_slot(layout, c, i, max(k - c.lag, 0), state) for i, k in enumerate(acted)]


def _slot(layout: Layout, c: Config, place: int, version: int, state: State) -> Slot:
    """Slot `place` of a checkpoint, whose policy must be that of `version`."""
    prefix = f"replay.{place}."
    cut = state.get(f"{prefix}cut")
    ends = 0 if cut is None else cut.size
    sizes = sizes_kept(layout, c)
    sizes |= {"version": ((), np.int64), "cut": ((ends,), np.int32)}
    sizes |= {"final": ((ends, layout.observation), np.float32)}
    found: dict[str, Any] = {name: state.get(prefix + name) for name in sizes}
    for name, array in found.items():
        shape, dtype = sizes[name]
        if array is None or array.shape != shape or array.dtype != dtype:
            raise KlipError(f"the checkpoint's {prefix + name!r} does not fit {c.task}")
    if ends and not (found["cut"].min() >= 0 and found["cut"].max() < c.batch):
        raise KlipError(f"the checkpoint's '{prefix}cut' lies outside of a rollout")
    if found["version"] != version:
        raise KlipError(
            f"the checkpoint's '{prefix}version' is {found['version']}, and {version} was kept"
        )
    fields = {name: found[name] for name in ("observation", "last", "action", "reward", "ended")}
    rollout = to_device(Rollout(**fields, bootstrap=None, cut=found["cut"], final=found["final"]))
    old = {name.removeprefix("old."): found[name] for name in sizes if name.startswith("old.")}
    recorded = None
    if c.trace == "recorded":
        recorded = Recorded(*(found[f"recorded.{name}"] for name in RECORDED))
    return Slot(version, rollout, found["old_log_prob"], old, recorded)
