"""What an iteration says about itself: sums inside the compiled update, quantiles outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from klip.shapes import Array, ratio
from klip.theory.partition import split

QUANTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
CHANGED = "changed_class"
KILL = 1


class Sums(NamedTuple):
    """Sums over samples, over minibatches (`steps` of them), and extremes."""

    count: Array
    steps: Array
    inside_positive: Array
    inside_negative: Array
    inside_zero: Array
    kill_positive: Array
    kill_negative: Array
    pass_positive: Array
    pass_negative: Array
    mass: Array  # |w A|
    killed_mass: Array  # |w A| on the kill set
    surrogate: Array  # w A
    ratio: Array
    ratio_square: Array
    ratio_deviation: Array  # |w - 1|
    ratio_max: Array
    ratio_min: Array
    k1: Array  # -log w
    k3: Array  # w - 1 - log w
    kl: Array  # closed form
    entropy: Array
    value_loss: Array
    policy_grad_norm: Array  # per minibatch, before clipping
    grad_norm: Array

    @staticmethod
    def reductions() -> Sums:
        """How each field is put together over epochs."""
        named = {"ratio_max": "max", "ratio_min": "min"}
        return Sums(*(named.get(name, "sum") for name in Sums._fields))

    @staticmethod
    def nothing() -> Sums:
        """The sums of no samples."""
        empty = {"ratio_max": 0.0, "ratio_min": float("inf")}
        return Sums(*(jnp.float32(empty.get(name, 0.0)) for name in Sums._fields))

    def metrics(self) -> dict[str, Array]:
        """Means and fractions, by the names that the metrics file uses."""
        per_sample = ("surrogate", "ratio_deviation", "k1", "k3", "kl", "entropy", "value_loss")
        found = {name: getattr(self, name) / self.count for name in per_sample}
        for part in ("inside", "kill", "pass"):
            signs = [s for s in ("positive", "negative", "zero") if f"{part}_{s}" in self._fields]
            for s in signs:
                found[f"{part}_{s}"] = getattr(self, f"{part}_{s}") / self.count
            found[part] = sum(getattr(self, f"{part}_{s}") for s in signs) / self.count
        mean = self.ratio / self.count
        variance = jnp.maximum(self.ratio_square / self.count - mean * mean, 0.0)
        found |= {"ratio_mean": mean, "ratio_std": jnp.sqrt(variance),
                  "ratio_max": self.ratio_max, "ratio_min": self.ratio_min,
                  "killed_mass": self.killed_mass / jnp.maximum(self.mass, 1e-30),
                  "policy_grad_norm": self.policy_grad_norm / self.steps,
                  "grad_norm": self.grad_norm / self.steps}  # fmt: skip
        return found


def reduce_sums(stacked: Array, how: str) -> Array:
    """One field over its leading axis."""
    reductions: dict[str, Callable[..., Array]] = {"sum": jnp.sum, "max": jnp.max, "min": jnp.min}
    return reductions[how](stacked, axis=0)


class Samples(NamedTuple):
    """What is known of each sample when it is trained on, `[N]`."""

    log_ratio: Array
    advantage: Array
    m: Array
    kl: Array  # closed form, of its state
    entropy: Array  # of the policy at its state
    bottom: Array  # of the band, by which it is told apart
    top: Array


class Losses(NamedTuple):
    """What is known of each minibatch."""

    value_loss: Array  # summed over its samples
    policy_grad_norm: Array  # before clipping
    grad_norm: Array


class Seen(NamedTuple):
    """What one epoch says about itself."""

    sums: Sums
    beta: Array  # [N]
    sets: Array  # [N] in 0, kill 1, pass 2


def observe(samples: Samples, losses: Losses) -> Seen:
    """Reduce one epoch."""
    log_ratio, advantage, m, kl, entropy, bottom, top = samples
    w = ratio(log_ratio)
    pull = w * advantage
    # A compiler may fuse m - w*A and so see its rounding; where they are equal beta is exactly 0.
    beta = jnp.where(m == pull, 0.0, m - pull)
    inside, kill, passing = split(w, advantage, bottom, top)
    positive, negative = advantage > 0, advantage < 0
    mass = jnp.abs(pull)

    def count(mask: Array) -> Array:
        return jnp.sum(mask, dtype=jnp.float32)

    sums = Sums(
        count=jnp.float32(w.size),
        steps=jnp.float32(losses.grad_norm.size),
        inside_positive=count(inside & positive),
        inside_negative=count(inside & negative),
        inside_zero=count(inside & ~positive & ~negative),
        kill_positive=count(kill & positive),
        kill_negative=count(kill & negative),
        pass_positive=count(passing & positive),
        pass_negative=count(passing & negative),
        mass=mass.sum(),
        killed_mass=jnp.where(kill, mass, 0.0).sum(),
        surrogate=pull.sum(),
        ratio=w.sum(),
        ratio_square=(w * w).sum(),
        ratio_deviation=jnp.abs(w - 1).sum(),
        ratio_max=w.max(),
        ratio_min=w.min(),
        k1=-log_ratio.sum(),
        k3=(w - 1 - log_ratio).sum(),
        kl=kl.sum(),
        entropy=entropy.sum(),
        value_loss=losses.value_loss.sum(),
        policy_grad_norm=losses.policy_grad_norm.sum(),
        grad_norm=losses.grad_norm.sum(),
    )
    return Seen(sums, beta, jnp.where(kill, 1, jnp.where(passing, 2, 0)).astype(jnp.int8))


def beta_quantiles(beta: NDArray[Any], sets: NDArray[Any]) -> dict[str, list[float] | None]:
    """Quantiles of the coefficient over all samples of an iteration, and over the killed alone."""
    beta, killed = beta[sets >= 0], beta[sets == KILL]
    return {
        "beta": _quantiles(beta),
        "beta_kill": _quantiles(killed) if killed.size else None,
    }


def _quantiles(values: NDArray[Any]) -> list[float]:
    return [float(q) for q in np.percentile(values, QUANTILES)]


def explained_variance(target: NDArray[Any], value: NDArray[Any]) -> float:
    """1 - Var(target - value) / Var(target); 0 where the target does not vary."""
    spread = float(np.var(target, dtype=np.float64))
    return 1.0 - float(np.var(target - value, dtype=np.float64)) / spread if spread > 0 else 0.0
