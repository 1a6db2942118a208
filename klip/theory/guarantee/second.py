"""A second recomputation, in another way, of refutations for which there are no fractions.

    improvement       adaptive quadrature of m over each arm's log-ratio
    any step size     the odds of two arms, one number, in place of two ratios and their norm
    end of the loop   which of two arms is pulled harder, at points all along the way
    adversary         JAX differentiates the loss in double precision; linear systems give returns

With `recheck` it shares `reader`, and with the searches nothing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import IntegrationWarning, quad

from klip.shapes import Shape
from klip.theory.guarantee.reader import facts, multiplier
from klip.theory.guarantee.verdict import Bandit

QUADRATURE: Final = "adaptive quadrature"
ODDS: Final = "the odds alone"
WAY: Final = "points along the way"
AUTODIFF: Final = "automatic differentiation"
POINTS: Final = 4001
"""How many are looked at on the way to an end of the inner loop."""
CLOSE: Final = 1e-3
"""How near to an end they go, in log-ratio: its decimals are rounded."""
FINE: Final[Mapping[str, Any]] = {"limit": 200, "epsabs": 1e-8, "epsrel": 1e-6}
DISCOUNT: Final = 0.95


def gain(shape: Shape, context: Mapping[str, float], bandit: Bandit) -> float:
    """The rise of the objective: the sum over arms of p times the integral of m over log w.

    Where m depends on the whole state, it is taken along the straight way, as that decides it.

    >>> from klip.shapes import SAPO
    >>> bandit = Bandit((0.1, 0.5, 0.4), (-1.0, 1.0, -1.0), (0.5, 0.46, 0.04))
    >>> round(gain(SAPO(), {}, bandit), 4)
    0.1106
    """
    p, q, a = (np.array(row) for row in (bandit.old, bandit.new, bandit.advantages))

    def along(t: float) -> float:
        x = np.log(1 + t * (q / p - 1))
        m = multiplier(shape, context, x[None], a, p)[0]
        return float((m * (q - p) / np.exp(x)).sum())

    def arm(x: float, i: int) -> float:
        here = np.where(np.arange(len(p)) == i, x, 0.0)[None]
        return float(multiplier(shape, context, here, a, p)[0, i])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IntegrationWarning)  # a jump costs digits, not the sign
        if "kl" in shape.needs or shape.weighs_kl(p):
            return float(quad(along, 0, 1, **FINE)[0])
        parts = [quad(arm, 0, math.log(w), args=(i,), **FINE)[0] for i, w in enumerate(q / p)]
    return float(p @ np.array(parts))


def by_odds(
    shape: Shape, context: Mapping[str, float], bandit: Bandit, rate: float, steps: int
) -> float:
    """The first arm's new probability: each step adds rate (G1 - G2) to the log of its odds.

    >>> from klip.shapes import ImportanceSampling
    >>> bandit = Bandit((0.5, 0.5), (1.0, -1.0), (0.5, 0.5))
    >>> round(by_odds(ImportanceSampling(), {}, bandit, 1.0, 2), 4)
    0.982
    """
    p, a = np.array(bandit.old), np.array(bandit.advantages)
    odds = math.log(p[0] / p[1])
    for _ in range(steps):
        # log of the logistic function, without overflow on either side
        new = np.array([-np.logaddexp(0, -odds), -np.logaddexp(0, odds)])
        x = new - np.log(p)
        pull = multiplier(shape, context, x[None], a, p)[0] * np.exp(-np.clip(x, -20, 20))
        odds += rate * float(pull[0] - pull[1])
    return math.exp(-float(np.logaddexp(0, -odds)))


def leads(shape: Shape, context: Mapping[str, float], bandit: Bandit) -> bool:
    """Whether the first of two arms is pulled harder at points all along the way to its new ratio.

    >>> from klip.shapes import Clip
    >>> p, a = (0.01, 0.99), (1.0, -1 / 99)
    >>> [leads(Clip(), {}, Bandit(p, a, (x, 1 - x))) for x in (0.208, 0.22)]
    [True, False]
    """
    p, a = np.array(bandit.old), np.array(bandit.advantages)
    last = math.log(bandit.new[0] / p[0])
    w = np.exp(np.linspace(0, last - CLOSE, POINTS))
    both = np.stack([w, np.maximum((1 - p[0] * w) / p[1], 1e-300)], axis=-1)
    pull = multiplier(shape, context, np.log(both), a, p) / both
    return bool((pull[:, 0] > pull[:, 1]).all())


def mdp(shape: Shape, about: Mapping[str, Any], rate: float, steps: int) -> float:
    """The change of an MDP's return, in the units of `recheck.mdp`, with JAX's gradient."""
    with jax.enable_x64(True):
        return _moved(shape, {name: jnp.asarray(rows) for name, rows in about.items()}, rate, steps)


def _moved(shape: Shape, about: Mapping[str, Any], rate: float, steps: int) -> float:
    moves, rewards, features = about["transitions"], about["rewards"], about["features"]

    def log_policy(theta: Any) -> Any:
        return jax.nn.log_softmax(about["logits"] + features @ theta, axis=-1)

    def values(pi: Any) -> Any:
        flow = jnp.eye(len(pi)) - DISCOUNT * (pi[..., None] * moves).sum(axis=1)
        return jnp.linalg.solve(flow, (pi * rewards).sum(axis=1)), flow

    theta = jnp.zeros(features.shape[-1])
    start = log_policy(theta)
    old = jnp.exp(start)
    v, flow = values(old)
    visits = (1 - DISCOUNT) * jnp.linalg.solve(flow.T, jnp.full(len(v), 1 / len(v)))
    weight = visits[:, None] * old
    raw = rewards + DISCOUNT * moves @ v - v[:, None]
    spread = jnp.sqrt((weight * raw**2).sum())

    def objective(theta: Any, m: Any, kl_weight: Any) -> Any:
        now = log_policy(theta)
        kl = (old * (start - now)).sum(axis=-1)
        return (weight * m * now).sum() - (visits * kl_weight * kl).sum()

    ascent = jax.jit(jax.grad(objective))
    for _ in range(steps):
        log_w = log_policy(theta) - start
        known = facts(shape, {}, log_w, raw / spread, np.asarray(old))
        m = shape.multiplier(log_w, raw / spread, known)
        kl_weight = shape.kl_weight(log_w, raw / spread, known)
        mean = jnp.zeros(len(v)) if kl_weight is None else (old * kl_weight).sum(axis=-1)
        theta = theta + rate * ascent(theta, m, mean)
    after, _ = values(jnp.exp(log_policy(theta)))
    return float((1 - DISCOUNT) * (after - v).mean() / spread)
