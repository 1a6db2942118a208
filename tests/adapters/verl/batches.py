"""Batches as verl's workers have them, its real configs, and the klip loss with a shape."""

import numpy as np
import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import ActorConfig, PolicyLossConfig

MODES = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)


def actor(loss_mode="klip", info=None, policy_loss=None, **fields):
    """verl's own configuration, as a worker of FSDP has it."""
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=PolicyLossConfig(loss_mode=loss_mode, **(policy_loss or {})),
        **fields,
    )
    config.global_batch_info.update(info or {})
    return config


def draw(seed, rows=12, length=24, spread=0.25, drift=0.03, weights=False, dtype=torch.float32):
    """Arguments of a policy loss by keyword; ragged, the last sequence empty, advantages a row.

    The log-ratio has a part of each token's own and a part of each sequence's. Four tokens of
    negative advantage have w > 3, which only the dual clip's second branch stops.
    """
    rng = np.random.default_rng(seed)
    old = -rng.uniform(0.5, 4.0, (rows, length))
    moved = rng.normal(0, spread, (rows, length))
    advantages = rng.normal(0, 1, (rows, 1)) * np.ones((1, length))
    moved[0, :4], advantages[0] = [1.2, 1.3, 1.5, 2.0], -0.7
    lengths = np.r_[length, rng.integers(2, length + 1, rows - 2), 0]
    mask = np.arange(length) < lengths[:, None]
    inside = np.where(mask, moved, 0).sum(-1, keepdims=True) / np.maximum(mask.sum(-1), 1)[:, None]
    moved[1:] += (rng.normal(0, drift, (rows, 1)) - inside)[1:]

    def tensor(x):
        return torch.as_tensor(x, dtype=dtype)

    return {
        "old_log_prob": tensor(old),
        "log_prob": tensor(old + moved).requires_grad_(True),
        "advantages": tensor(advantages),
        "response_mask": torch.as_tensor(mask),
        "rollout_is_weights": tensor(rng.uniform(0, 2, (rows, length))) if weights else None,
    }


def call(name, batch, mode="token-mean", config=None):
    """(loss, gradient, metrics) of a registered loss."""
    loss, metrics = get_policy_loss_fn(name)(
        **batch, loss_agg_mode=mode, config=config or actor(name)
    )
    (gradient,) = torch.autograd.grad(loss, batch["log_prob"])
    return loss.detach(), gradient, metrics


def difference(found, wanted):
    """The largest difference, relative to the largest number."""
    return ((found - wanted).abs().max() / wanted.abs().max()).item()
