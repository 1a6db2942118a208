"""Policy losses as people write them, for `klip probe examples/my_loss.py:ppo_loss`.

A loss takes the new log-probabilities, the old ones and the advantages (and a mask, or the
log-probabilities of a reference, if a parameter is called so), and returns what the optimiser
minimises.
"""

import torch


def ppo_loss(new_log_probs, old_log_probs, advantages, clip_range=0.2):
    """PPO-Clip, averaged over the batch."""
    ratio = torch.exp(new_log_probs - old_log_probs)
    unclipped = ratio * advantages
    clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range) * advantages
    return -torch.min(unclipped, clipped).mean()


def grpo_loss(new_log_probs, old_log_probs, advantages, mask, low=0.2, high=0.28):
    """DAPO's clip-higher, averaged over the tokens `[B, T]` that are not padding."""
    ratio = torch.exp(new_log_probs - old_log_probs)
    clipped = torch.clamp(ratio, 1 - low, 1 + high)
    per_token = -torch.min(ratio * advantages, clipped * advantages)
    return (per_token * mask).sum() / mask.sum()


def suspicious_loss(new_log_probs, old_log_probs, advantages):
    """Looks like PPO-Clip; the max of two losses became a min."""
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = torch.exp(new_log_probs - old_log_probs)
    loss = -advantages * ratio
    clipped_loss = -advantages * torch.clamp(ratio, 0.8, 1.2)
    return torch.min(loss, clipped_loss).mean()
