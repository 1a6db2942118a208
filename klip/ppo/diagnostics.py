"""What an iteration says about itself: sums inside the compiled update, quantiles outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from klip.shapes import Array
from klip.theory import diagnostics
from klip.theory.diagnostics import EMPTY, PARTS, Observed, quantiles, totals

CHANGED = "changed_class"
KILL = PARTS.index("kill")
NOT_RUN = -1
"""Stands for the set of a sample in an epoch that was not run."""

Sums = dict[str, Array]
"""Totals of the vocabulary in `klip.theory.diagnostics`, and the trainer's own: means over samples
of `kl`, `entropy` and `value_loss`, and over `steps` gradient steps of the two norms."""

_PER_SAMPLE = ("kl", "entropy", "value_loss")
_PER_STEP = ("policy_grad_norm", "grad_norm")


class Trained(NamedTuple):
    """What is known of each sample when it is trained on, `[N]`."""

    log_ratio: Array
    advantage: Array
    m: Array
    kl: Array  # closed form, of its state
    entropy: Array  # of the policy at its state
    bottom: Array  # of the band that divides samples into sets
    top: Array


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


def observe(trained: Trained, losses: Losses) -> Epoch:
    """Reduce one epoch."""
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
    return Epoch(sums, observed.beta, observed.part)


def nothing(count: int) -> Epoch:
    """What an epoch over `count` samples says if it is not run."""
    one = jnp.zeros(1)
    names = observe(Trained(*(one for _ in Trained._fields)), Losses(one, one, one)).sums
    sums = {name: jnp.float32(EMPTY.get(name, 0.0)) for name in names}
    return Epoch(sums, jnp.zeros(count), jnp.full(count, NOT_RUN, jnp.int8))


def metrics(sums: Mapping[str, Array], mark: str) -> dict[str, Array]:
    """Means and fractions, by the names that the metrics file uses; `mark` ends those of sets."""
    own = {name: sums[name] / sums["count"] for name in _PER_SAMPLE}
    own |= {name: sums[name] / sums["steps"] for name in _PER_STEP}
    return diagnostics.metrics(sums, mark) | own


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
