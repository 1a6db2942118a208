"""OpenRLHF: a shape in the place of its `PolicyLoss`, which goes on to weigh and to reduce.

OpenRLHF has no hook for a loss. One line at the end of its trainer/ray/ppo_actor.py gives it one:

    from klip.adapters.openrlhf import shaped; PolicyLoss = shaped(PolicyLoss, "clip(eps=0.2)")

OpenRLHF itself is not imported: all that is needed of it is the loss that it builds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from klip.adapters.common import (
    OF_SAMPLER,
    OF_TOKENS,
    RowWeights,
    TrainersWeight,
    check_corrected_once,
    correcting,
    given_region,
    slope,
)
from klip.errors import KlipError
from klip.shapes import Shape
from klip.shapes.backend import native_exp
from klip.tokens import Diagnostics, token_context, token_loss, token_multiplier

TRAINER = "OpenRLHF"
FIELDS = OF_TOKENS | OF_SAMPLER
USUAL = {"clip_eps_low": 0.2, "clip_eps_high": 0.2, "dual_clip": None}
"""What OpenRLHF's loss has where the user has not chosen it."""
INSTEAD = {
    "clip_eps_low": "clip(low=...)",
    "clip_eps_high": "clip(high=...)",
    "dual_clip": "dual-clip(cap=...)",
}


class Reported(NamedTuple):
    """What OpenRLHF's trainer takes from a policy loss, in its order."""

    loss: Tensor
    clip_ratio: Tensor
    """the share of tokens without pull where the advantage pushes"""
    ppo_kl: Tensor
    """the mean of -log w"""
    vllm_kl: Tensor | None
    is_filter_ratio: Tensor | None


def shaped(
    policy_loss: Callable[..., nn.Module],
    shape: Shape | str = "clip(eps=0.2)",
    *,
    level: str = "token",
    gates: Iterable[str] = (),
    penalties: Iterable[str] = (),
) -> Callable[..., ShapePolicyLoss]:
    """What builds OpenRLHF's loss with a shape in it, from what builds it without.

    Args:
        policy_loss: OpenRLHF's `PolicyLoss`
        shape: a shape or its spelling
        level: as in `klip.tokens.token_loss`
        gates: the spellings of gates
        penalties: the spellings of penalties

    Returns:
        a function with the arguments of `policy_loss`

    """
    chosen: dict[str, Any] = {"level": level, "gates": tuple(gates), "penalties": tuple(penalties)}
    given_region(TRAINER, FIELDS, shape, **chosen)  # what cannot work is said at once

    def build(*args: Any, **settings: Any) -> ShapePolicyLoss:
        return ShapePolicyLoss(policy_loss(*args, **settings), shape, **chosen)

    return build


class ShapePolicyLoss(nn.Module):
    """loss = -sum_t weight_t c_t J_t: J the shape's, weight and c as the stock loss has them.

    `weight` is OpenRLHF's reduction and c its correction of the sampler's log-probs
    (`is_correction_level`), both read from the slope of its own loss at a ratio of 1.
    """

    def __init__(
        self,
        stock: nn.Module,
        shape: Shape | str = "clip(eps=0.2)",
        *,
        level: str = "token",
        gates: Iterable[str] = (),
        penalties: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self.region = given_region(TRAINER, FIELDS, shape, level, gates, penalties)
        self.stock: Any = _checked(stock)
        uncorrected: Any = copy.copy(stock)
        uncorrected.is_correction_level = "off"
        self.reducing: Any = uncorrected
        self.diagnostics: Diagnostics | None = None
        """what the shape did to the tokens of the last call"""

    @native_exp()
    def forward(
        self,
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        action_mask: Tensor | None = None,
        rollout_log_probs: Tensor | None = None,
        **batch: Any,
    ) -> Reported:
        """The loss and what OpenRLHF logs of it; tensors are `[B, T]`."""
        mask = torch.ones_like(log_probs) if action_mask is None else action_mask
        self._check_sampler(rollout_log_probs)
        given = {"action_mask": mask, "rollout_log_probs": rollout_log_probs, **batch}
        old = old_log_probs.detach()
        whole, rest = slope(lambda ones: self.reducing(old, old, ones, **given), old)
        context = token_context(log_probs, old_log_probs, behaviour_log_prob=rollout_log_probs)
        tokens = (log_probs, old_log_probs, advantages, mask, self.region.shape, context)
        how: dict[str, Any] = {"level": self.region.level, "penalties": self.region.penalties}
        gates, m = self.region.gates, None
        if self.stock.is_correction_level != "off":
            corrected, rest = slope(lambda ones: self.stock(old, old, ones, **given), old)
            if correcting(self.region) and not torch.allclose(corrected, whole, atol=0):
                setting = f"is_correction_level={self.stock.is_correction_level}"
                neutral = "is_correction_mode=clip with is_correction_threshold=1 1 makes it 1"
                check_corrected_once(self.region, setting, neutral)
            m = token_multiplier(*tokens, gates=gates, **how)  # what it drops is not clipped
            gates = (*gates, TrainersWeight(torch.where(whole == 0, 0.0, corrected / whole)))
        reducer = RowWeights(whole.amax(-1, keepdim=True))
        loss, seen = token_loss(*tokens, gates=gates, reducer=reducer, **how)
        assert seen is not None
        self.diagnostics = seen
        still = seen.active & ((seen.m if m is None else m) == 0)
        clipped = (still & (seen.log_ratio * seen.advantage > 0)).sum()
        moved = torch.where(seen.active, (log_probs - old_log_probs).detach(), 0.0).sum()
        count = seen.active.sum().clamp(min=1)
        return Reported(loss, clipped / count, -moved / count, *rest[3:])

    def _check_sampler(self, rollout_log_probs: Tensor | None) -> None:
        if rollout_log_probs is None and (needs := self.region.needs & OF_SAMPLER):
            part = next(part for part in self.region.parts if part.needs & needs)
            raise KlipError(
                f"{part.name} needs the sampler's log-probs, and OpenRLHF keeps them only if "
                "algo.advantage.is_correction_level is not off: set it to token; with "
                "is_correction_mode=clip and is_correction_threshold=1 1 its own correction is 1"
            )


def _checked(stock: nn.Module) -> nn.Module:
    """The stock loss; raises if it has settings that a shape would silently replace."""
    kind = getattr(stock, "policy_loss_type", "ppo")
    if kind != "ppo":
        raise KlipError(
            f"policy_loss_type={kind!r} is another loss of OpenRLHF's: leave it at ppo; GSPO is "
            'level="sequence-mean" with loss_agg_mode=seq-mean-token-mean'
        )
    for name, usual in USUAL.items():
        value = getattr(stock, name, usual)
        if value != usual:
            raise KlipError(
                f"{name}={value} is not used beside a shape: write it into the shape, as "
                f"{INSTEAD[name]}, and leave OpenRLHF's at {usual}"
            )
    return stock
