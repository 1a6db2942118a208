"""Flat batches `[N]`, one entry per action, as scripts in the style of CleanRL have them.

`policy_loss` replaces the clipped loss, with a shape or its spelling; `together` joins the
diagnostics of its minibatches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from klip.adapters.common import nothing_dropped
from klip.errors import KlipError
from klip.shapes import NO_CONTEXT, Clip, Context, Shape, check_needs, parse
from klip.shapes.backend import native_exp
from klip.tokens import Diagnostics, TokenLoss, token_loss
from klip.tokens.region import named

__all__ = ["check_recorded", "parse", "policy_loss", "together"]


def policy_loss(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    shape: Shape | str = Clip(),  # noqa: B008 - a frozen value
    context: Context = NO_CONTEXT,
    *,
    state_kl: Tensor | None = None,
    diagnostics: bool = True,
) -> TokenLoss:
    """loss = -mean(J), d loss / d log_prob = -m / N.

    Args:
        log_prob: of the new policy, `[N]`, with gradient
        old_log_prob: of the policy that sampled, `[N]`; shapes that need it get it from here
        advantages: `[N]`, normalised or not, as the script has them
        shape: a shape or its spelling
        context: other fields that the shape needs, `[N]` or numbers
        state_kl: closed-form KL(old || new) at each sample's state, `[N]`, with gradient, for
            shapes that weigh it (`kl`, `truly-ppo`)
        diagnostics: whether to return diagnostics

    >>> new = torch.tensor([0.0, 0.5], requires_grad=True)
    >>> loss, diagnostics = policy_loss(new, torch.zeros(2), torch.ones(2), Clip(eps=0.25))
    >>> loss.backward()
    >>> loss.item(), new.grad.tolist(), diagnostics.metrics()["kill"]
    (-1.125, [-0.5, -0.0], 0.5)

    """
    shape = named(Shape, shape)
    vectors = {"log_prob": log_prob, "old_log_prob": old_log_prob, "advantages": advantages}
    for name, x in (vectors | {"state_kl": state_kl}).items():
        if x is not None and (x.ndim != 1 or x.shape != log_prob.shape):
            raise KlipError(
                f"{name} {list(x.shape)} must be [N], one number per sample, like log_prob "
                f"{list(log_prob.shape)}: sum over the parts of an action, and flatten"
            )
    # A sample is no sequence: the caller must give a position, a length or a mask.
    known = {"old_log_prob"} | ({"kl"} if state_kl is not None else set())
    check_needs(shape, context.given | known)
    check_recorded(log_prob, old_log_prob)
    with (
        nothing_dropped(),
        native_exp(),
    ):  # other rounding would let a run drift from the script's own
        return token_loss(
            log_prob[:, None],
            old_log_prob[:, None],
            advantages,
            None,
            shape,
            context,
            state_kl=None if state_kl is None else state_kl[:, None],
            diagnostics=diagnostics,
        )


def together(parts: Sequence[Diagnostics]) -> Diagnostics:
    """The diagnostics of several minibatches as those of one batch, for one log entry.

    >>> parts = [
    ...     policy_loss(torch.full((2,), x), torch.full((2,), -1.0), torch.ones(2)).diagnostics
    ...     for x in (-1.0, -0.5)
    ... ]
    >>> together(parts).metrics()["kill"]
    0.5
    """
    if not parts:
        raise KlipError("there are no diagnostics to put together: no minibatch was trained on")

    def joined(side: int) -> Any:
        edges = [part.edges[side] for part in parts]
        if not any(isinstance(edge, Tensor) for edge in edges) and len(set(edges)) == 1:
            return edges[0]  # a number, so that comparisons are exactly those of each part
        return torch.cat(
            [
                torch.as_tensor(edge, dtype=part.m.dtype, device=part.m.device).expand_as(part.m)
                for edge, part in zip(edges, parts, strict=True)
            ]
        )

    return Diagnostics(
        log_ratio=torch.cat([part.log_ratio for part in parts]),
        advantage=torch.cat([part.advantage.expand_as(part.m) for part in parts]),
        m=torch.cat([part.m for part in parts]),
        active=torch.cat([part.active for part in parts]),
        edges=(joined(0), joined(1)),
        mark=parts[0].mark,
    )


def check_recorded(log_prob: Tensor, old_log_prob: Tensor) -> None:
    """Raise if old log-probs are all 0 although the policy is not certain: they were not stored.

    >>> check_recorded(torch.tensor([-1.0, -2.0]), torch.zeros(2))
    Traceback (most recent call last):
    klip.errors.KlipError: all 2 old log-probs are 0, and the policy's own sum to -3: those of the policy that sampled were not recorded, and every ratio would be wrong
    """  # noqa: E501 - a traceback in a doctest is one line
    total = float(log_prob.detach().sum())
    if old_log_prob.numel() and abs(total) > 1 and not bool(old_log_prob.any()):
        raise KlipError(
            f"all {old_log_prob.numel()} old log-probs are 0, and the policy's own sum to "
            f"{total:g}: those of the policy that sampled were not recorded, and every ratio "
            "would be wrong"
        )
