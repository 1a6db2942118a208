"""JAX policy losses, healthy and broken."""

import jax
import jax.numpy as jnp


def purejaxrl_ppo(log_prob, old_log_prob, gae):
    ratio = jnp.exp(log_prob - old_log_prob)
    loss_actor1 = ratio * gae
    loss_actor2 = jnp.clip(ratio, 1.0 - 0.2, 1.0 + 0.2) * gae
    return -jnp.minimum(loss_actor1, loss_actor2).mean()


@jax.jit
def clip_higher(new, old, advantages, mask):
    ratio = jnp.exp(new - old)
    loss = -jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.8, 1.28) * advantages)
    return jnp.sum(loss * mask) / jnp.maximum(jnp.sum(mask), 1)


def dual_clip(new, old, advantages):
    ratio = jnp.exp(new - old)
    lower = jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.8, 1.2) * advantages)
    return -jnp.sum(jnp.where(advantages < 0, jnp.maximum(lower, 3 * advantages), lower))


def rlax_clipped(new, old, adv_t, epsilon=0.15):
    """One value for each sample."""
    prob_ratios_t = jnp.exp(new - old)
    clipped_ratios_t = jnp.clip(prob_ratios_t, 1.0 - epsilon, 1.0 + epsilon)
    return -jnp.fmin(prob_ratios_t * adv_t, clipped_ratios_t * adv_t)


def cispo(new, old, advantages, *, token_mask):
    weight = jax.lax.stop_gradient(jnp.minimum(jnp.exp(new - old), 5.0))
    loss = -weight * advantages * new * token_mask
    return jnp.mean(loss.sum(-1) / token_mask.sum(-1))


def spo(new, old, advantages):
    ratio = jnp.exp(new - old)
    return -jnp.mean(ratio * advantages - jnp.abs(advantages) / 0.4 * jnp.square(ratio - 1))


def sapo(new, old, advantages):
    tau = jnp.where(advantages > 0, 1.2, 2.0)
    return -jnp.mean(4 / tau * jax.nn.sigmoid(tau * (jnp.exp(new - old) - 1)) * advantages)


def ppo_with_k3(new, old, advantages):
    log_ratio = new - old
    ratio = jnp.exp(log_ratio)
    surrogate = jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.8, 1.2) * advantages)
    return -jnp.mean(surrogate - 0.1 * (ratio - 1 - log_ratio))


def indexed(new, old, advantages, mask):
    """Cannot be compiled: how many tokens there are depends on the mask."""
    loss = -jnp.exp(new - old) * advantages
    return loss[mask].mean()


def without_framework(new, old, advantages):
    return -((new - old) * advantages).mean()


def bfloat16_ppo(new, old, advantages):
    new, old, advantages = (x.astype(jnp.bfloat16) for x in (new, old, advantages))
    ratio = jnp.exp(new - old)
    return -jnp.mean(jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.8, 1.2) * advantages))


def grpo(logps, old_logps, ref_logps, advantages, mask):
    """With the KL to a reference, and advantages of sequences."""
    ratio, a, u = jnp.exp(logps - old_logps), advantages[:, None], logps - ref_logps
    surrogate = jnp.minimum(ratio * a, jnp.clip(ratio, 0.8, 1.2) * a)
    loss = -surrogate + 0.04 * (jnp.exp(-u) - 1 + u)
    return (loss * mask).sum() / mask.sum()


# Broken


def k3_rewarded(new, old, advantages):
    x = new - old
    return purejaxrl_ppo(new, old, advantages) - 0.1 * jnp.mean(jnp.exp(x) - 1 - x)


def mean_probability_of_batch(new, old, advantages):
    ratio = jnp.exp(new).mean() / jnp.exp(old).mean()
    return -jnp.mean(jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.8, 1.2) * advantages))


def sign_flipped(new, old, advantages):
    return -purejaxrl_ppo(new, old, advantages)


def normalised_inside(new, old, gae):
    return purejaxrl_ppo(new, old, (gae - gae.mean()) / (gae.std() + 1e-8))


def detached_ratio(new, old, advantages):
    return purejaxrl_ppo(jax.lax.stop_gradient(new), old, advantages)


def counts(new, old, advantages):
    return jnp.sum(new > old)
