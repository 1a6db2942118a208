"""SkyRL: a shape as one of its policy losses, in its registry.

In the script that starts the training, after `ray.init` and before the trainer is built:

    from klip.adapters.skyrl import register
    register("clip(low=0.2, high=0.28)")

and `trainer.algorithm.policy_loss_type=klip` in its configuration. SkyRL folds the weight of its
reduction into the advantages, and its losses are sums: a shape must be proportional to them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from klip.adapters.common import (
    OF_SAMPLER,
    OF_TOKENS,
    TrainersWeight,
    check_corrected_once,
    given_region,
    logged,
    short_log,
)
from klip.errors import KlipError
from klip.shapes import Shape
from klip.shapes.backend import native_exp
from klip.theory.diagnostics import FATES
from klip.theory.profile import profile
from klip.tokens import Denominator, TokenRegion, token_context, token_loss, token_multiplier

TRAINER = "SkyRL"
FIELDS = OF_TOKENS | OF_SAMPLER
LOGGED = (*FATES, "zeroed_mass", "pull", "ratio_deviation")
"""The diagnostics whose mean over microbatches is meaningful."""
USUAL = 0.2
"""SkyRL's default of both clip radii."""


@dataclass(frozen=True)
class SkyRLLoss:
    """loss = -sum_t c_t J_t: J the shape's, c and the mask those of SkyRL's correction."""

    region: TokenRegion

    @native_exp()
    def __call__(
        self,
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        config: Any,
        loss_mask: Tensor | None = None,
        rollout_logprobs: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss and the numbers that SkyRL logs; tensors are `[B, T]`."""
        self._check(config, rollout_logprobs)
        mask = torch.ones_like(log_probs) if loss_mask is None else loss_mask
        correct = importlib.import_module(
            "skyrl.backends.skyrl_train.utils.off_policy_correction_utils"
        )
        c, kept, more = correct.apply_off_policy_correction(
            torch.ones_like(old_log_probs),
            old_log_probs,
            rollout_logprobs,
            mask,
            config.off_policy_correction,
        )
        context = token_context(log_probs, old_log_probs, behaviour_log_prob=rollout_logprobs)
        tokens = (log_probs, old_log_probs, advantages)
        shape, level, gates = self.region.shape, self.region.level, self.region.gates
        loss, seen = token_loss(
            *tokens,
            mask,
            shape,
            context,
            level=level,
            gates=(*gates, TrainersWeight((c * kept).detach())),
            reducer=Denominator(1.0),
        )
        assert seen is not None
        # SkyRL counts what is clipped before its correction drops anything.
        m = token_multiplier(*tokens, mask, shape, context, level=level, gates=gates)
        moved = (log_probs - old_log_probs).detach()
        clipped = mask.bool() & (m == 0) & (moved * advantages > 0)
        row = seen.metrics()
        named = logged({name: row[name] for name in short_log(seen.mark, LOGGED)})
        return loss, {"clip_ratio": float(clipped.sum() / mask.bool().sum()), **more, **named}

    def _check(self, config: Any, rollout_logprobs: Tensor | None) -> None:
        for name in ("eps_clip_low", "eps_clip_high"):
            if (value := getattr(config, name, USUAL)) != USUAL:
                raise KlipError(
                    f"{name}={value} is not used by policy_loss_type=klip: write it into the "
                    f"shape, as clip(low=..., high=...), and leave it at {USUAL}"
                )
        tis = getattr(config.off_policy_correction, "tis_ratio_type", None)
        if tis is not None and rollout_logprobs is not None:
            setting = f"off_policy_correction.tis_ratio_type={tis}"
            check_corrected_once(self.region, setting, "set it to null")
        if rollout_logprobs is None and (needs := self.region.needs & OF_SAMPLER):
            part = next(part for part in self.region.parts if part.needs & needs)
            raise KlipError(
                f"{part.name} needs the sampler's log-probs, and this batch has no "
                "rollout_logprobs: let SkyRL's generator return them"
            )


def policy_loss(
    shape: Shape | str = "clip(eps=0.2)", *, level: str = "token", gates: Iterable[str] = ()
) -> SkyRLLoss:
    """The loss of a shape, with the arguments of SkyRL's own.

    Args:
        shape: a shape or its spelling; it must be proportional to the advantage
        level: as in `klip.tokens.token_loss`
        gates: the spellings of gates

    Returns:
        what SkyRL's registry takes

    """
    region = given_region(TRAINER, FIELDS, shape, level, tuple(gates))
    if not profile(region.shape).homogeneous:
        raise KlipError(
            f"{region.shape} is not proportional to the advantage, into which SkyRL folds the "
            "weight of its reduction: a part of it would be scaled wrongly; choose a shape that is "
            "(`klip profile` says homogeneous), and use_kl_loss for a KL"
        )
    return SkyRLLoss(region)


def register(
    shape: Shape | str = "clip(eps=0.2)",
    *,
    level: str = "token",
    gates: Iterable[str] = (),
    name: str = "klip",
) -> None:
    """Put `policy_loss` into SkyRL's registry, as `policy_loss_type=name`.

    Args:
        shape: a shape or its spelling; it must be proportional to the advantage
        level: as in `klip.tokens.token_loss`
        gates: the spellings of gates
        name: what the configuration calls it

    """
    loss = policy_loss(shape, level=level, gates=gates)
    importlib.import_module(
        "skyrl.backends.skyrl_train.utils.ppo_utils"
    ).PolicyLossRegistry.register(name, loss)
