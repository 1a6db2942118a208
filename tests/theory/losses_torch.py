"""PyTorch policy losses, healthy and broken, each in the hand of a code base that people use."""

import torch
import torch.nn.functional as F


def masked_mean(values, mask, axis=None):
    return (values * mask).sum(axis=axis) / (mask.sum(axis=axis) + 1e-8)


# Healthy


def cleanrl_ppo(newlogprob, oldlogprob, mb_advantages, clip_coef=0.2):
    logratio = newlogprob - oldlogprob
    ratio = logratio.exp()
    pg_loss1 = -mb_advantages * ratio
    pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
    return torch.max(pg_loss1, pg_loss2).mean()


def sb3_ppo(log_prob, old_log_prob, advantages, clip_range=0.3):
    ratio = torch.exp(log_prob - old_log_prob)
    policy_loss_1 = advantages * ratio
    policy_loss_2 = advantages * torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
    return -torch.min(policy_loss_1, policy_loss_2).sum()


def verl_clip_higher(log_prob, old_log_prob, advantages, response_mask):
    """DAPO: token mean, metrics beside the loss, the log-ratio clamped."""
    negative_approx_kl = torch.clamp(log_prob - old_log_prob, min=-20.0, max=20.0)
    ratio = torch.exp(negative_approx_kl)
    pg_losses1 = -advantages * ratio
    pg_losses2 = -advantages * torch.clamp(ratio, 1 - 0.2, 1 + 0.28)
    pg_losses = torch.maximum(pg_losses1, pg_losses2)
    clipfrac = masked_mean(torch.gt(pg_losses2, pg_losses1).float(), response_mask)
    return masked_mean(pg_losses, response_mask), {"clipfrac": clipfrac.item()}


def verl_dual_clip(old_log_prob, log_prob, advantages, response_mask, clip_ratio_c=3.0):
    """With verl's order of arguments: the old log-probabilities come first."""
    ratio = torch.exp(log_prob - old_log_prob)
    pg_losses1 = -advantages * ratio
    pg_losses2 = -advantages * torch.clamp(ratio, 0.8, 1.2)
    clip_pg_losses1 = torch.maximum(pg_losses1, pg_losses2)
    clip_pg_losses2 = torch.min(-advantages * clip_ratio_c, clip_pg_losses1)
    pg_losses = torch.where(advantages < 0, clip_pg_losses2, clip_pg_losses1)
    seq_losses = (pg_losses * response_mask).sum(dim=-1)
    return (seq_losses / response_mask.sum(dim=-1)).mean()


def trl_cispo(per_token_logps, old_per_token_logps, advantages, completion_mask):
    """With TRL's advantages, one for each sequence."""
    coef = torch.exp(per_token_logps - old_per_token_logps)
    clamped = torch.clamp(coef, max=5.0).detach()
    per_token_loss = -clamped * advantages.unsqueeze(1) * per_token_logps
    mask = completion_mask
    return ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()


def spo(new_log_probs, old_log_probs, advantages):
    ratio = (new_log_probs - old_log_probs).exp()
    return -(ratio * advantages - advantages.abs() * (ratio - 1) ** 2 / (2 * 0.25))


def sapo(new_log_probs, old_log_probs, advantages, mask):
    """Selects the tokens that are there, so the mask must be boolean."""
    ratio = torch.exp(new_log_probs - old_log_probs)
    tau = torch.where(advantages > 0, 1.0, 1.05)
    gate = torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    return -(gate * advantages)[mask].mean()


def ppo_with_k3(logprobs, old_logprobs, advantages, kl_coef=0.04):
    log_ratio = logprobs - old_logprobs
    ratio = log_ratio.exp()
    surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    approx_kl = (ratio - 1) - log_ratio
    return (-surrogate + kl_coef * approx_kl).mean()


def penalised_k3(logprobs, old_logprobs, advantages):
    log_ratio = logprobs - old_logprobs
    return (-log_ratio.exp() * advantages + 0.5 * (log_ratio.exp() - 1 - log_ratio)).sum()


def gspo(log_prob, old_log_prob, advantages, mask):
    lengths = mask.sum(-1, keepdim=True).clamp(min=1)
    log_ratio = ((log_prob - old_log_prob) * mask).sum(-1, keepdim=True) / lengths
    ratio = torch.exp(log_prob - log_prob.detach() + log_ratio.detach())
    loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return ((loss * mask).sum(-1) / lengths.squeeze(-1)).mean()


def gmpo(log_prob, old_log_prob, advantages, mask):
    """A geometric mean of ratios that are clipped in the log, and a mean of the advantages."""
    lengths, x = mask.sum(-1).clamp(min=1), log_prob - old_log_prob
    sign = advantages.sign()
    x = sign * torch.min(sign * x, sign * x.clamp(-0.4, 0.4))
    ratio = torch.exp((x * mask).sum(-1) / lengths)
    return -((advantages * mask).sum(-1) / lengths * ratio).mean()


def narrow_gspo(log_prob, old_log_prob, advantages, mask, low=3e-4, high=4e-4):
    """GSPO at its published width, as a loss of sequences."""
    lengths = mask.sum(-1)
    ratio = torch.exp(((log_prob - old_log_prob) * mask).sum(-1) / lengths)
    a = (advantages * mask).sum(-1) / lengths
    return -torch.min(ratio * a, ratio.clamp(1 - low, 1 + high) * a).mean()


def gspo_with_k3(log_prob, old_log_prob, advantages, mask):
    """The ratio is a sequence's, the penalty a token's."""
    x = log_prob - old_log_prob
    penalty = 0.04 * ((x.exp() - 1 - x) * mask).sum(-1) / mask.sum(-1)
    return narrow_gspo(log_prob, old_log_prob, advantages, mask) + penalty.mean()


def bfloat16_ppo(new, old, advantages, eps=0.2):
    """Everything in bfloat16, the log-probabilities too."""
    new, old, advantages = (x.bfloat16() for x in (new, old, advantages))
    ratio = torch.exp(new - old)
    return -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages).mean()


def bfloat16_ratio(new, old, advantages):
    ratio = torch.exp((new - old).bfloat16())
    return -torch.min(ratio * advantages, ratio.clamp(0.75, 1.25) * advantages).mean()


def bfloat16_metrics(new, old, advantages):
    """The loss itself has full precision."""
    return cleanrl_ppo(new, old, advantages), {"ratio": (new - old).bfloat16().exp().mean()}


def bfloat16_gspo(log_prob, old_log_prob, advantages, mask):
    return gspo(*(x.bfloat16() for x in (log_prob, old_log_prob, advantages, mask)))


def grpo(logps, old_logps, ref_logps, advantages, mask, eps=0.2, beta=0.04):
    """With the KL to a reference, and advantages of sequences."""
    ratio = torch.exp(logps - old_logps)
    a = advantages.unsqueeze(1)
    surrogate = torch.min(ratio * a, ratio.clamp(1 - eps, 1 + eps) * a)
    u = logps - ref_logps
    loss = -surrogate + beta * (torch.exp(-u) - 1 + u)
    return ((loss * mask).sum(-1) / mask.sum(-1)).mean()


def grpo_reference_last(
    per_token_logps, old_per_token_logps, advantages, completion_mask, *, ref_per_token_logps=None
):
    every = (per_token_logps, old_per_token_logps, ref_per_token_logps)
    return grpo(*every, advantages, completion_mask)


def almost_nothing(new, old, advantages):
    return 1e-16 * cleanrl_ppo(new, old, advantages)


def dppo_tv(new_log_probs, old_log_probs, advantages):
    """Kills where the probability itself has moved too far."""
    moved = (new_log_probs.exp() - old_log_probs.exp()).detach()
    kill = ((advantages > 0) & (moved > 0.15)) | ((advantages < 0) & (moved < -0.15))
    ratio = torch.exp(new_log_probs - old_log_probs)
    return -(ratio * advantages * (~kill)).mean()


def half_precision_ppo(new_log_probs, old_log_probs, advantages):
    """Computes in float32 whatever it is given."""
    ratio = torch.exp(new_log_probs.float() - old_log_probs.float())
    surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -surrogate.mean()


# Broken


def sign_flipped(new, old, advantages):
    ratio = torch.exp(new - old)
    return torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()


def max_for_min(new, old, advantages):
    ratio = torch.exp(new - old)
    return -torch.max(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()


def strict_clip(new, old, advantages):
    return -(torch.exp(new - old).clamp(0.8, 1.2) * advantages).mean()


def ratio_inverted(new, old, advantages):
    ratio = torch.exp(old - new)
    return -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()


def normalised_inside(new, old, advantages):
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return cleanrl_ppo(new, old, advantages)


def normalised_in_groups(new, old, advantages):
    """GRPO's normalisation, one group in each row."""
    std = advantages.std(dim=1, keepdim=True)
    return cleanrl_ppo(new, old, (advantages - advantages.mean(dim=1, keepdim=True)) / std)


def k3_rewarded(new, old, advantages, b=0.04):
    """The KL penalty has the sign of the surrogate."""
    x = new - old
    ratio = x.exp()
    surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -(surrogate + b * (ratio - 1 - x)).mean()


def k1_rewarded(new, old, advantages):
    return cleanrl_ppo(new, old, advantages) - 0.04 * (old - new).mean()


def k3_rewarded_alone(new, old, advantages):
    """A surrogate that is in no catalogue, and a KL with the wrong sign."""
    x = new - old
    bump = torch.exp(-3 * x.square()).detach() * x.exp() * advantages
    return -(bump + 0.1 * (x.exp() - 1 - x)).mean()


def distance_rewarded(new, old, advantages):
    """A penalty that is in no catalogue, with the wrong sign."""
    return cleanrl_ppo(new, old, advantages) - 0.1 * ((new - old) ** 4).mean()


def reference_rewarded(logps, old_logps, ref_logps, advantages, mask):
    return grpo(logps, old_logps, ref_logps, advantages, mask, beta=-0.04)


def reference_mistaken(logps, old_logps, ref_logps, advantages, mask):
    return grpo(logps, old_logps, old_logps, advantages, mask) + 0.0 * ref_logps.sum()


def clip_times_ratio(new, old, advantages):
    """A squared importance weight."""
    ratio = torch.exp(new - old)
    surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -(ratio.detach() * surrogate).mean()


def clip_times_live_ratio(new, old, advantages):
    ratio = torch.exp(new - old)
    return -(ratio * torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)).mean()


def mean_probability_ratio(log_prob, old_log_prob, advantages, mask):
    lengths = mask.sum(-1)
    ratio = (log_prob.exp() * mask).sum(-1) / (old_log_prob.exp() * mask).sum(-1)
    a = (advantages * mask).sum(-1) / lengths
    return -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()


def mean_probability_of_batch(new, old, advantages):
    ratio = new.exp().mean() / old.exp().mean()
    return -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()


def mean_ratio(log_prob, old_log_prob, advantages, mask):
    ratio = (torch.exp(log_prob - old_log_prob) * mask).sum(-1, keepdim=True)
    ratio = ratio / mask.sum(-1, keepdim=True)
    loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return (loss * mask).sum() / mask.sum()


def float16_ppo(new, old, advantages):
    """exp overflows early."""
    new, old, advantages = (x.half() for x in (new, old, advantages))
    ratio = torch.exp(new - old)
    return -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()


def divided_twice(new, old, advantages):
    return cleanrl_ppo(new, old, advantages) / len(advantages)


def padding_counted(new, old, advantages, mask):
    ratio = torch.exp(new - old)
    loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return (loss * mask).mean()


def overflows_unselected(new, old, advantages):
    """Scopic with a sigmoid by hand: each branch is safe where it is taken, and only there."""
    x = 4.0 * (torch.exp(new - old) - 1)
    gate = torch.where(x > 0, 1 / (1 + torch.exp(-x)), torch.exp(x) / (1 + torch.exp(x)))
    return -(gate * advantages).mean()


def regularised(new, old, advantages):
    """An entropy bonus that found its way into the policy loss."""
    return cleanrl_ppo(new, old, advantages) + 0.01 * new.mean()


def detached_ratio(new, old, advantages):
    ratio = torch.exp(new - old).detach()
    loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return loss.mean() + 0.0 * new.sum()


def doubled(new, old, advantages):
    return 2 * cleanrl_ppo(new, old, advantages)


def mask_ignored(new, old, advantages, mask):
    return cleanrl_ppo(new, old, advantages) + 0.0 * mask.sum()


def positive_only(new, old, advantages):
    return cleanrl_ppo(new, old, F.relu(advantages))


# Not losses


def with_setting(new, old, advantages, clip_eps):
    return sb3_ppo(new, old, advantages, clip_eps)


def without_grad(new, old, advantages):
    return cleanrl_ppo(new, old, advantages).detach()


def returns_nothing(new, old, advantages):
    cleanrl_ppo(new, old, advantages)


def returns_float(new, old, advantages):
    return cleanrl_ppo(new, old, advantages).item()


def random(new, old, advantages):
    return cleanrl_ppo(F.dropout(new, 0.5), old, advantages)


def raises(new, old, advantages):
    raise ValueError("logits must be [B, T, V]")
