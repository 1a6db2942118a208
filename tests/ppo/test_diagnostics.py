"""What an epoch says about itself, and what one says that was not run."""

import jax
import jax.numpy as jnp
import numpy as np

from klip.ppo.diagnostics import (
    NOT_RUN,
    Losses,
    Trained,
    beta_quantiles,
    explained_variance,
    metrics,
    nothing,
    observe,
)
from klip.theory.diagnostics import merged


def an_epoch(seed=0, size=64):
    rng = np.random.default_rng(seed)
    log_ratio, advantage, kl, entropy = jnp.asarray(rng.normal(0, 0.3, (4, size)), jnp.float32)
    bottom, top = jnp.full(size, 0.8), jnp.full(size, 1.2)
    m = jnp.exp(log_ratio) * advantage
    losses = Losses(*(jnp.ones(4) for _ in Losses._fields))
    return observe(Trained(log_ratio, advantage, m, kl, entropy, bottom, top), losses)


def test_an_epoch_that_is_not_run_has_the_same_structure_and_adds_nothing():
    run, not_run = an_epoch(), nothing(64)
    assert jax.tree.structure(run) == jax.tree.structure(not_run)
    assert jax.tree.map(lambda x: x.dtype, run) == jax.tree.map(lambda x: x.dtype, not_run)
    both = merged({k: jnp.stack([run.sums[k], not_run.sums[k]]) for k in run.sums})
    for name, value in metrics(run.sums, "").items():
        assert metrics(both, "")[name] == value, name


def test_the_names_of_a_run_stay():
    """Metrics files, results and readers know these."""
    signed = [f"{part}_{sign}" for part in ("inside", "kill", "pass")
              for sign in ("positive", "negative")]  # fmt: skip
    fates = ("kept", "weakened", "zeroed", "reversed", "strengthened")
    by_fate = [f"{fate}{end}" for fate in fates for end in ("", "_positive", "_negative", "_mass")]
    assert set(metrics(an_epoch().sums, "")) == {
        "inside", "kill", "pass", "inside_zero", *signed, "killed_mass", "surrogate",
        *by_fate, "pull",
        "ratio_mean", "ratio_std", "ratio_max", "ratio_min", "ratio_deviation", "k1", "k3",
        "kl", "entropy", "value_loss", "policy_grad_norm", "grad_norm",
    }  # fmt: skip


def test_quantiles_leave_out_what_was_not_run():
    beta, sets = np.array([1.0, 2.0, 3.0, 99.0]), np.array([0, 1, 2, NOT_RUN])
    found = beta_quantiles(beta, sets, "")
    assert found["beta"] == [np.percentile(beta[:3], q) for q in (1, 5, 10, 25, 50, 75, 90, 95, 99)]
    assert found["beta_kill"] == [2.0] * 9
    assert beta_quantiles(beta, np.zeros(4), "@0.2")["beta_kill@0.2"] is None


def test_explained_variance():
    target = np.array([1.0, 2.0, 3.0])
    assert explained_variance(target, target) == 1
    assert explained_variance(np.ones(3), target) == 0
