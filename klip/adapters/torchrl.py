"""A shape in TorchRL's PPO: `ShapeLoss` in the place of `ClipPPOLoss`.

TorchRL's loss stays as it is, and none of it is copied. It is shown ratios of 1, so that what it is
about to reduce is minus the advantages, normalised as the user asked; the shape's objective takes
their place there, and TorchRL reduces it, and adds entropy and critic, as always.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from klip.adapters.common import given_shape
from klip.errors import KlipError
from klip.shapes import Shape
from klip.shapes.backend import native_exp
from klip.tokens import Diagnostics, token_loss
from klip.tokens.context import in_dtype

try:
    from torchrl.objectives import PPOLoss
except ModuleNotFoundError:
    raise KlipError("klip.adapters.torchrl needs TorchRL: pip install 'klip-rl[torchrl]'") from None

__all__ = ["ShapeLoss"]

TRAINER = "TorchRL's PPOLoss"


class ShapeLoss(PPOLoss):
    """TorchRL's PPOLoss with `shape` as its trust region; with `clip` it is ClipPPOLoss.

    `loss_objective` is -J, reduced, and `diagnostics` are those of the last call, of all samples. A
    shape may need nothing beside ratio and advantage. All other arguments are PPOLoss's;
    `delay_actor` and `max_importance_ratio` are refused: they have a trust region of their own.

    Args:
        actor_network: the policy
        critic_network: the value function
        shape: a shape or its spelling

    """

    def __init__(
        self,
        actor_network: Any = None,
        critic_network: Any = None,
        *,
        shape: str | Shape,
        **options: Any,
    ) -> None:
        for name in ("delay_actor", "max_importance_ratio", "clip_epsilon"):
            if options.get(name):
                raise KlipError(
                    f"{name}={options[name]} belongs to TorchRL's own trust region: leave it out, "
                    "and write the shape, such as shape='clip(eps=0.2)'"
                )
        given = given_shape(shape, TRAINER, ())
        super().__init__(actor_network, critic_network, **options)
        self.shape = given
        self.diagnostics: Diagnostics | None = None
        self._log_ratio: Tensor | None = None

    def forward(self, *args: Any, **named: Any) -> Any:
        """TorchRL's losses, `loss_objective` being that of the shape."""
        out = super().forward(*args, **named)
        if self._log_ratio is not None or self.diagnostics is None:
            raise KlipError(
                "TorchRL reduced no objective in the way that 0.14 does, so the shape did not act: "
                "install torchrl==0.14.*"
            )
        return out

    def _log_weight(self, *args: Any, **named: Any) -> Any:
        """TorchRL's, with ratios of 1 in the place of those that the shape is to see."""
        log_ratio, dist, kl_approx, correction = super()._log_weight(*args, **named)
        if correction is not None:
            raise KlipError(
                "TorchRL weighs by a second ratio here, which no shape of Klip's sees: leave out "
                "the setting that asks for it, or keep TorchRL's own ClipPPOLoss"
            )
        self._log_ratio, self.diagnostics = log_ratio, None
        return torch.zeros_like(log_ratio), dist, kl_approx, None

    def _reduce_loss(self, loss: Tensor, *args: Any, **named: Any) -> Tensor:
        """TorchRL's reduction; what it reduces first after the ratios is the objective."""
        log_ratio, self._log_ratio = self._log_ratio, None
        if log_ratio is not None:
            loss = self._objective(log_ratio, -loss.detach())
        reduced: Tensor = super()._reduce_loss(loss, *args, **named)
        return reduced

    @native_exp()
    def _objective(self, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """-J of each sample, whose gradient is -m."""
        seen, a = log_ratio.detach(), advantage.expand_as(log_ratio)
        x = seen.reshape(-1, 1)
        # TorchRL may mask a sample, whose numbers may then be anything: it is left to TorchRL.
        flat = token_loss(x, torch.zeros_like(x), a.reshape(-1), None, self.shape, nonfinite="drop")
        assert flat.diagnostics is not None
        self.diagnostics = flat.diagnostics
        m = flat.diagnostics.m.reshape(seen.shape).to(seen.dtype)
        _, value = in_dtype(self.shape, seen.dtype).evaluate(seen, a)
        value = m if value is None else value
        return -(value + m * (log_ratio - seen))
