"""What an iteration says about itself: sums inside the compiled update, quantiles outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from klip.shapes import Array
from klip.theory import diagnostics
from klip.theory.diagnostics import EMPTY, FATES, PARTS, Observed, quantiles, totals

CHANGED = "changed_class"
KILL = PARTS.index("kill")
NOT_RUN = -1
"""Stands for the set of a sample in an epoch that was not run."""

Sums = dict[str, Array]
"""Totals of the vocabulary in `klip.theory.diagnostics`, and the trainer's own: means over samples
of `kl`, `entropy` and `value_loss`, and over `steps` gradient steps of the two norms."""

_PER_SAMPLE = ("kl", "entropy", "value_loss")
_PER_STEP = ("policy_grad_norm", "grad_norm")


class Old(NamedTuple):
    """What is known beyond that of samples that may be old, `[N]`."""

    slot: Array  # which rollout they are of, 0 the newest
    ratio: Array  # to the policy that acted
    pull: Array  # |m| times the sample's weight
    drift: Array  # |pi - pi_k| / mu, weighted by age


class Trained(NamedTuple):
    """What is known of each sample when it is trained on, `[N]`."""

    log_ratio: Array
    advantage: Array
    m: Array
    kl: Array  # closed form, of its state
    entropy: Array  # of the policy at its state
    bottom: Array  # of the band that divides samples into sets
    top: Array
    old: Old | None = None


class Losses(NamedTuple):
    """What is known of each minibatch."""

    value_loss: Array  # summed over its samples
    policy_grad_norm: Array  # before clipping
    grad_norm: Array


class Epoch(NamedTuple):
    """What one epoch says about itself."""

    sums: Sums
    beta: Array  # [N]
    sets: Array  # [N] inside 0, kill 1, pass 2; NOT_RUN for an epoch that was not run
    by_slot: Array | None = None  # [BY_SLOT, slots] sums over the samples of each rollout


def observe(trained: Trained, losses: Losses, slots: int | None = None) -> Epoch:
    """Reduce one epoch; of samples that may be old, also for each of `slots` rollouts."""
    edges = (trained.bottom, trained.top)
    observed = Observed.of(trained.log_ratio, trained.advantage, trained.m, edges)
    sums = totals(observed) | {
        "steps": jnp.float32(losses.grad_norm.size),
        "kl": trained.kl.sum(),
        "entropy": trained.entropy.sum(),
        "value_loss": losses.value_loss.sum(),
        "policy_grad_norm": losses.policy_grad_norm.sum(),
        "grad_norm": losses.grad_norm.sum(),
    }
    if slots is None or trained.old is None:
        return Epoch(sums, observed.beta, observed.part)
    sums["tv"] = 0.5 * trained.old.drift.sum()
    by_slot = _by_slot(observed, trained, trained.old, slots)
    return Epoch(sums, observed.beta, observed.part, by_slot)


SHARES = (*FATES, *PARTS)
"""What is counted of the samples of each rollout."""
MASSES = ("zeroed_mass", "killed_mass")
"""The parts of sum |wA| that are kept of each rollout."""
BY_SLOT = (*SHARES, "mass", *MASSES, "ratio", "kl", "pull", "weight", "square", "count")
"""What is summed over the samples of each rollout, in this order."""


def _by_slot(observed: Observed, trained: Trained, old: Old, slots: int) -> Array:
    """Sums over the samples of each of `slots` rollouts, `[BY_SLOT, slots]`."""
    mass, part = jnp.abs(observed.surrogate), observed.part
    rows = {name: observed.fate == i for i, name in enumerate(FATES)}
    rows |= {name: part == i for i, name in enumerate(PARTS)}
    rows |= {
        "mass": mass,
        "zeroed_mass": mass * rows["zeroed"],
        "killed_mass": mass * observed.kill,
    }
    rows |= {"ratio": observed.ratio, "kl": trained.kl, "pull": old.pull}
    rows |= {"weight": old.ratio, "square": jnp.square(old.ratio), "count": jnp.ones_like(mass)}
    every = jnp.stack([rows[name].astype(jnp.float32) for name in BY_SLOT])
    if slots == 1:
        return every.sum(axis=1, keepdims=True)
    of_slot = (old.slot[:, None] == jnp.arange(slots)).astype(jnp.float32)
    return every @ of_slot


def nothing(count: int, slots: int | None = None) -> Epoch:
    """What an epoch over `count` samples says if it is not run."""
    one = jnp.zeros(1)
    old = None if slots is None else Old(*(one for _ in Old._fields))
    samples = Trained(one, one, one, one, one, one, one, old)
    said = observe(samples, Losses(one, one, one), slots)
    sums = {name: jnp.float32(EMPTY.get(name, 0.0)) for name in said.sums}
    by_slot = None if said.by_slot is None else jnp.zeros_like(said.by_slot)
    return Epoch(sums, jnp.zeros(count), jnp.full(count, NOT_RUN, jnp.int8), by_slot)


def metrics(sums: Mapping[str, Array], mark: str) -> dict[str, Array]:
    """Means and fractions, by the names that the metrics file uses; `mark` ends those of sets."""
    own = {name: sums[name] / sums["count"] for name in _PER_SAMPLE}
    own |= {name: sums[name] / sums["steps"] for name in _PER_STEP}
    row = diagnostics.metrics(sums, mark) | own
    if "tv" in sums:
        row["tv"] = sums["tv"] / sums["count"]
    return row


def beta_quantiles(
    beta: NDArray[Any], sets: NDArray[Any], mark: str
) -> dict[str, list[float] | None]:
    """Quantiles of the coefficient over all samples of an iteration, and over the killed alone."""
    killed = quantiles(beta[sets == KILL])
    return {"beta": quantiles(beta[sets != NOT_RUN]), f"beta_kill{mark}": killed}


def explained_variance(target: NDArray[Any], value: NDArray[Any]) -> float:
    """1 - Var(target - value) / Var(target); 0 where the target does not vary."""
    spread = float(np.var(target, dtype=np.float64))
    return 1.0 - float(np.var(target - value, dtype=np.float64)) / spread if spread > 0 else 0.0
