"""The paper's two theorems as checks that can fail.

1. The gradient of PPO-Clip is that of E[w A + beta log pi] with beta = -w A on I_kill and 0
   elsewhere, detached.
2. PPO-Clip is w A - Phi, with Phi = (w - edge) A on I_kill and 0 elsewhere.

`verify` tries them sample by sample: straight on the log-probabilities, and through networks.
The `min` here is JAX's own, written out again rather than taken from the shapes, and `verify`
takes a `Claim`, so that tests can hand it a wrong coefficient or a wrong partition.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from klip.shapes import Array, Clip, ClipPhi, PerSample, Shape, ratio, stop_gradient
from klip.theory.networks import (
    Problem,
    categorical_problem,
    gaussian_problem,
    worst_gradient_difference,
)
from klip.theory.partition import Partition, partition

EPS = 0.2
PUBLISHED: Shape = PerSample(eps=EPS)
DOUBLE, SINGLE = 1e-12, 1e-6
ODD_BATCHES = (1, 3, 48, 60, 1000, 4097)


@dataclass(frozen=True)
class Claim:
    """What is put to the test; the defaults are the paper's."""

    beta: Callable[[Array, Array], Array] = PUBLISHED.beta
    """(log-ratio, advantage) -> coefficient"""
    partition: Callable[[Array, Array], Partition] = partition
    detached: bool = True
    """whether the coefficient is a constant under differentiation"""

    def surrogate(self, new: Array, old: Array, advantage: Array) -> Array:
        """w A + beta log pi of each sample."""
        beta = self.beta(new - old, advantage)
        if self.detached:
            beta = stop_gradient(beta)
        return ratio(new - old) * advantage + beta * new

    def multiplier(self, log_ratio: Array, advantage: Array) -> Array:
        """w A + beta."""
        return ratio(log_ratio) * advantage + self.beta(log_ratio, advantage)


@dataclass(frozen=True)
class Check:
    """One comparison or count, and how it came out."""

    name: str
    ok: bool
    samples: int
    measured: float
    """a relative difference, or a count"""
    bound: float
    """the most that is allowed (differences, mismatches) or the least (samples in a corner)"""
    detail: str = ""

    @classmethod
    def at_most(cls, name: str, samples: int, measured: float, bound: float) -> Check:
        """A check that holds if `measured` does not exceed `bound`."""
        return cls(name, measured <= bound, samples, measured, bound)


@dataclass(frozen=True)
class Certificate:
    """All checks of one verification, and the versions of the libraries."""

    checks: tuple[Check, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every check held."""
        return all(check.ok for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """The certificate as plain data, ready for JSON."""
        checks = [dataclasses.asdict(check) for check in self.checks]
        return {"ok": self.ok, "checks": checks, "versions": self.versions}


def verify(
    claim: Claim | None = None,
    samples: int = 1 << 20,
    seed: int = 0,
    minibatches: tuple[int, ...] = ODD_BATCHES,
) -> Certificate:
    """Try both theorems on `samples` samples, and on a quarter as many through each network.

    >>> verify().ok  # doctest: +SKIP

    Args:
        claim: what is tried; the paper's claim by default
        samples: how many log-ratios and advantages are drawn
        seed: of the samples and of the networks
        minibatches: the sizes of minibatches whose whole gradients are compared too

    Returns:
        the largest differences that were seen, and whether all are within what is claimed

    """
    claim = claim or Claim()
    log_ratio, advantage = draw(samples, seed)
    checks = [
        *_corners("straight on the log-probabilities", log_ratio, advantage),
        _partition_check(claim, log_ratio, advantage),
        *_theorem_1(claim, log_ratio, advantage),
        *_theorem_2(log_ratio, advantage),
        *_bits(claim, log_ratio, advantage, minibatches),
    ]
    with jax.enable_x64(True):
        for problem in (gaussian_problem, categorical_problem):
            checks += _through_network(claim, problem(samples // 4, seed), minibatches)
    versions = {"jax": jax.__version__, "numpy": np.__version__}
    return Certificate(tuple(checks), versions)


def draw(samples: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Log-ratios and advantages that fill the band and all four corners outside it.

    One advantage in 32 is zero; the first few samples lie exactly on the edges of the band.
    """
    rng = np.random.default_rng(seed)
    log_ratio = rng.normal(0.0, 0.5, samples)
    advantage = rng.normal(0.0, 1.0, samples)
    advantage[::32] = 0.0
    edges = np.array([np.log1p(EPS), np.log1p(-EPS)] * 4)[:samples]
    log_ratio[: edges.size] = edges
    advantage[: edges.size] = np.array([1.0, 1.0, -1.0, -1.0, 2.0, 2.0, 0.0, 0.0])[: edges.size]
    return log_ratio, advantage


def on_edge(w: Array) -> Array:
    """Where w is within 1e-6 of 1 +- eps, which theorem 1 leaves out: `min` has a kink there."""
    return (abs(w - (1 + EPS)) < 1e-6) | (abs(w - (1 - EPS)) < 1e-6)


def clip_objective(new: Array, old: Array, advantage: Array) -> Array:
    """min(w A, clip(w) A), in JAX's own functions."""
    w = jnp.exp(new - old)
    return jnp.minimum(w * advantage, jnp.clip(w, 1 - EPS, 1 + EPS) * advantage)


def phi_objective(new: Array, old: Array, advantage: Array) -> Array:
    """w A - Phi, in JAX's own functions."""
    w = jnp.exp(new - old)
    above, below = (w > 1 + EPS) & (advantage > 0), (w < 1 - EPS) & (advantage < 0)
    phi = jnp.where(above, (w - (1 + EPS)) * advantage, 0.0)
    return w * advantage - phi - jnp.where(below, (w - (1 - EPS)) * advantage, 0.0)


def _corners(where: str, log_ratio: Array, advantage: Array) -> Iterator[Check]:
    w, a = np.exp(np.asarray(log_ratio)), np.asarray(advantage)
    corners = {
        "kill, A > 0": (w > 1 + EPS) & (a > 0),
        "kill, A < 0": (w < 1 - EPS) & (a < 0),
        "pass, A < 0": (w > 1 + EPS) & (a < 0),
        "pass, A > 0": (w < 1 - EPS) & (a > 0),
    }
    least = min(10_000, w.size // 20)
    for name, inside in corners.items():
        count = int(inside.sum())
        yield Check(f"corner {name}, {where}", count >= least, w.size, count, least)


def _partition_check(claim: Claim, log_ratio: Array, advantage: Array) -> Check:
    """The claimed partition against the paper's definition, set by set."""
    w, a = ratio(log_ratio), advantage
    kill = ((w > 1 + EPS) & (a > 0)) | ((w < 1 - EPS) & (a < 0))
    passing = ((w > 1 + EPS) & (a < 0)) | ((w < 1 - EPS) & (a > 0))
    inside = ((w >= 1 - EPS) & (w <= 1 + EPS)) | (a == 0)
    claimed = claim.partition(log_ratio, advantage)
    wrong = sum(
        int(np.sum(np.asarray(mask) != expected))
        for mask, expected in zip(claimed, (inside, kill, passing), strict=True)
    )
    name = "partition into in, kill and pass, edges and zero advantages in"
    return Check.at_most(name, w.size, wrong, 0)


def _gradient(objective: Callable[..., Array], new: Array, old: Array, advantage: Array) -> Array:
    """d objective / d new of each sample, from their sum: no sample enters another's term."""
    return jax.jit(jax.grad(lambda n: objective(n, old, advantage).sum()))(new)


def _theorem_1(claim: Claim, log_ratio: Array, advantage: Array) -> Iterator[Check]:
    rng = np.random.default_rng(1)
    old_all = rng.normal(-1.0, 0.5, log_ratio.shape)
    keep = ~on_edge(np.exp(log_ratio))
    for dtype, bound in (("float64", DOUBLE), ("float32", SINGLE)):
        with jax.enable_x64(dtype == "float64"):
            old = jnp.asarray(old_all[keep], dtype=dtype)
            new = jnp.asarray(old_all[keep] + log_ratio[keep], dtype=dtype)
            a = jnp.asarray(advantage[keep], dtype=dtype)
            safe = ~on_edge(jnp.exp(new - old))
            clip = _gradient(clip_objective, new, old, a)
            kl = _gradient(claim.surrogate, new, old, a)
            worst = _relative(kl - clip, jnp.exp(new - old) * a, safe)
        name = f"theorem 1 per sample, {dtype}: grad of min = grad of wA + beta log pi"
        yield Check.at_most(name, int(safe.sum()), worst, bound)


def _theorem_2(log_ratio: Array, advantage: Array) -> Iterator[Check]:
    for dtype, bound in (("float64", DOUBLE), ("float32", SINGLE)):
        with jax.enable_x64(dtype == "float64"):
            new, a = jnp.asarray(log_ratio, dtype=dtype), jnp.asarray(advantage, dtype=dtype)
            old, w = jnp.zeros_like(new), jnp.exp(new)
            value = clip_objective(new, old, a)
            gap = value - phi_objective(new, old, a)
            slope = _gradient(clip_objective, new, old, a) - _gradient(phi_objective, new, old, a)
            differences = (
                ("value", _relative(gap, jnp.maximum(abs(value), abs(w * a)), a != 0), new.size),
                ("gradient", _relative(slope, w * a, ~on_edge(w)), int((~on_edge(w)).sum())),
            )
        for what, worst, size in differences:
            name = f"theorem 2 per sample, {dtype}: {what} of min = {what} of wA - Phi"
            yield Check.at_most(name, size, worst, bound)


def _relative(difference: Array, scale: Array, where: Array) -> float:
    """The largest |difference| / |scale|, or |difference| where the scale is 0."""
    size = jnp.where(scale == 0, 1.0, jnp.abs(scale))
    worst = jnp.max(jnp.where(where, jnp.abs(difference) / size, 0.0))
    return float(worst) if bool(jnp.isfinite(worst)) else float("inf")


def _bits(
    claim: Claim, log_ratio: Array, advantage: Array, batches: tuple[int, ...]
) -> Iterator[Check]:
    """Whether three routes to the multiplier agree in float32, bit for bit, on the edges too."""
    routes = (Clip(eps=EPS).multiplier, ClipPhi(eps=EPS).multiplier, claim.multiplier)
    x, a = log_ratio.astype(np.float32), advantage.astype(np.float32)
    frameworks: dict[str, Callable[..., Any]] = {
        "NumPy": lambda route, x, a: route(x, a),
        "JAX": lambda route, x, a: route(jnp.asarray(x), jnp.asarray(a)),
        "JAX, compiled": lambda route, x, a: jax.jit(route)(jnp.asarray(x), jnp.asarray(a)),
    }
    with contextlib.suppress(ModuleNotFoundError):  # PyTorch is an extra
        import torch

        frameworks["PyTorch"] = lambda route, x, a: route(torch.tensor(x), torch.tensor(a))
    for framework, run in frameworks.items():
        different = 0
        sizes = batches if "compiled" in framework else batches[-1:]
        for size in (*(n for n in sizes if n < x.size), x.size):
            first, *others = (
                np.asarray(run(route, x[:size], a[:size])).view(np.int32) for route in routes
            )
            different += sum(int(np.sum(first != other)) for other in others)
        name = f"min, Phi and per-sample multipliers in float32, bit for bit: {framework}"
        yield Check.at_most(name, x.size, different, 0)


def _through_network(
    claim: Claim, problem: Problem, minibatches: tuple[int, ...]
) -> Iterator[Check]:
    log_ratio, worst, samples = worst_gradient_difference(
        problem, clip_objective, claim.surrogate, on_edge
    )
    yield from _corners(f"through a {problem.name} network", log_ratio, problem.advantage)
    name = f"theorem 1 per sample through a {problem.name} network, float64"
    yield Check.at_most(name, samples, worst, DOUBLE)
    for size in minibatches:
        worst = problem.take(size).mean_gradient_difference(clip_objective, claim.surrogate)
        name = f"theorem 1 over a minibatch of {size}, {problem.name} network, float64"
        yield Check.at_most(name, size, worst, DOUBLE)
