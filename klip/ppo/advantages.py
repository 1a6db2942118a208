"""From a rollout to what the epochs train on: values, old log-probs, advantages, targets.

A fresh rollout is prepared here; `klip.ppo.replay` does so for samples that may be old.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from klip.ppo.config import Config
from klip.ppo.policy import Layout, distribution, log_prob, network
from klip.shapes import Array


class Rollout(NamedTuple):
    """What one run collected; T steps of E environments."""

    observation: Array  # [T, E, D] normalised, as acted on
    last: Array  # [E, D] the observation after the last step
    action: Array  # [T, E, A] as sampled, before any clipping to bounds; or [T, E, heads]
    reward: Array  # [T, E] normalised
    ended: Array  # [T, E] 1 where the episode ended at this step
    bootstrap: Array  # [T, E] V(final observation) where it was cut off by a time limit, else 0
    cut: Array | None = None  # [n] those places in the flattened [T, E]; kept if it may grow old
    final: Array | None = None  # [n, D] the final observations there
    skipped: Array | None = None  # [T, E] 1 where a time limit cut, if those steps teach nothing


class Aged(NamedTuple):
    """What is known of samples that may be old; c is the policy at the start over the actor."""

    slot: Array  # [N] 0 for the newest rollout, 1 for the one before, ...
    age: Array  # [N] in iterations
    there: Array  # [N] False where the replay is not yet full
    log_c: Array  # [N]
    deviation: Array  # [N] mean of |c - 1| over all samples
    second_moment: Array | None  # [N] mean of (log c)^2 over samples whose |log c| is no larger
    weight: Array  # [N] of the sample's pull on the policy
    value_weight: Array  # [N] of its value loss


class Batch(NamedTuple):
    """The rollout's samples, N = T*E of them."""

    observation: Array  # [N, D]
    action: Array  # [N, A]
    reward: Array  # [N]
    old_log_prob: Array  # [N]
    old: dict[str, Array]  # the old policy's distribution at each state
    old_value: Array  # [N]
    advantage: Array  # [N]
    target: Array  # [N] what the value network learns: advantage, not yet normalised, plus value
    aged: Aged | None = None  # None: every sample is of the policy that learns from it


def advantages(
    c: Config, value: Array, last_value: Array, rollout: Rollout, trust: Array | None = None
) -> Array:
    """GAE: A = delta + gamma lambda A', both cut where an episode ended, `[T, E]`.

    With `trust` it is A = delta + gamma lambda trust' A': what later steps say counts only as far
    as the policy would have gone there. The recursion is linear, so it is an associative scan:
    log T vectorised steps, not T small ones.

    Args:
        c: gives gamma and lambda
        value: `[T, E]` V at every observation
        last_value: `[E]` V at the observation after the last step
        rollout: rewards and ends
        trust: `[T, E]` min(1, c) of every step, for samples that may be old

    """
    delta = differences(c, value, last_value, rollout)
    carry = c.gamma * c.gae_lambda * (1.0 - rollout.ended)
    if trust is not None:
        carry = carry * jnp.concatenate([trust[1:], jnp.ones_like(trust[:1])])
    return discounted(carry, delta)


def differences(c: Config, value: Array, last_value: Array, rollout: Rollout) -> Array:
    """delta = r + gamma V' - V, with what `time_limits` puts for V' where an episode was cut."""
    alive = 1.0 - rollout.ended
    following = jnp.concatenate([value[1:], last_value[None]]) * alive
    if c.time_limits == "bootstrap":
        following = following + rollout.bootstrap
    delta = rollout.reward + c.gamma * following - value
    return delta if rollout.skipped is None else delta * (1.0 - rollout.skipped)


def discounted(carry: Array, delta: Array) -> Array:
    """x_t = delta_t + carry_t x_{t+1}, from 0 after the end, `[T, E]`."""

    def combine(later: tuple[Array, Array], earlier: tuple[Array, Array]) -> tuple[Array, Array]:
        (a, x), (b, y) = later, earlier
        return a * b, y + b * x

    return jax.lax.associative_scan(combine, (carry, delta), reverse=True)[1]


def estimates(c: Config, value: Array, last_value: Array, rollout: Rollout) -> tuple[Array, Array]:
    """The advantages of a fresh rollout, and what its value network learns, `[T, E]` each."""
    gae = advantages(c, value, last_value, rollout)
    advantage, target = gae, gae + value
    if c.advantage_form == "next-return":  # as GAE, but for a lambda
        after = jnp.concatenate([gae[1:], jnp.zeros_like(gae[:1])])
        advantage = differences(c, value, last_value, rollout)
        advantage = advantage + c.gamma * (1.0 - rollout.ended) * after
    if c.value_target == "monte-carlo":
        delta = differences(c, value, last_value, rollout)
        target = discounted(c.gamma * (1.0 - rollout.ended), delta) + value
    return advantage, target


def normalised(c: Config, advantage: Array, there: Array | None = None) -> Array:
    """(A - mean) / (std + 1e-8), std with n - 1 or n; over the samples `there`, if given."""
    ddof = c.advantage_ddof
    mean, spread = advantage.mean(where=there), advantage.std(ddof=ddof, where=there)
    return (advantage - mean) / (spread + 1e-8)


@functools.lru_cache(maxsize=32)
def preparation(layout: Layout, c: Config) -> Callable[[Array, Rollout], Batch]:
    """The compiled step from a run's parameters `[P]` and its rollout to its batch."""

    def prepare(vector: Array, rollout: Rollout) -> Batch:
        arrays = layout.split(vector)
        steps, envs, _ = rollout.observation.shape
        observation = rollout.observation.reshape(steps * envs, -1)
        value = network(layout, arrays, "value", observation)[:, 0]
        last_value = network(layout, arrays, "value", rollout.last)[:, 0]
        both = estimates(c, value.reshape(steps, envs), last_value, rollout)
        advantage, target = (x.ravel() for x in both)
        if c.normalise_advantages == "rollout":
            advantage = normalised(c, advantage)
        old = distribution(layout, arrays, observation)
        action = rollout.action.reshape(steps * envs, -1)
        return Batch(
            observation=observation,
            action=action,
            reward=rollout.reward.ravel(),
            old_log_prob=log_prob(layout, old, action),
            old=old,
            old_value=value,
            advantage=advantage,
            target=target,
        )

    return jax.jit(prepare)
