"""NeMo-RL: a shape in the place of the clip of its `ClippedPGLossFn`, which keeps all else.

In the script that starts the training, between `setup` and the call that trains:

    from klip.adapters.nemo_rl import shaped
    loss_fn = shaped(loss_fn, "clip(low=0.2, high=0.28)")

NeMo-RL itself is not imported: all that is needed of it is the loss that its `setup` returns. This
was written to NeMo-RL's documented contract of losses, and has not been run inside NeMo-RL.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from klip.adapters.common import (
    OF_SAMPLER,
    OF_TOKENS,
    RowWeights,
    TrainersWeight,
    check_corrected_once,
    given_region,
    logged,
    slope,
)
from klip.errors import KlipError
from klip.shapes import Shape
from klip.shapes.backend import native_exp
from klip.theory.diagnostics import FATES, PARTS, metrics, totals
from klip.tokens import Diagnostics, TokenRegion, token_context, token_loss

TRAINER = "NeMo-RL"
FIELDS = OF_TOKENS | OF_SAMPLER
USUAL = {
    "ratio_clip_min": 0.2,
    "ratio_clip_max": 0.2,
    "ratio_clip_c": None,
    "use_cispo": False,
    "sequence_level_importance_ratios": False,
    "disable_ppo_ratio": False,
    "force_on_policy_ratio": False,
}
"""The settings of the clip, as NeMo-RL has them where the user has not chosen."""
INSTEAD = {
    "ratio_clip_min": "clip(low=...)",
    "ratio_clip_max": "clip(high=...)",
    "ratio_clip_c": "dual-clip(cap=...)",
    "use_cispo": "cispo(floor=..., cap=...), as 1 - ratio_clip_min and 1 + ratio_clip_max",
    "sequence_level_importance_ratios": 'level="sequence-mean"',
    "disable_ppo_ratio": "reinforce",
    "force_on_policy_ratio": "any shape: where every ratio is 1 they all are the same",
}
READ = ("input_type", "loss_type", "reference_policy_kl_penalty", "use_fused_linear_logprobs")
"""What NeMo-RL reads of a loss beside calling it."""
OF_CLIP = ("probs_ratio_clamped", "probs_ratio_clamped_min", "probs_ratio_clamped_max")
"""Metrics of the stock loss that speak of a clip which is not there."""
MEANS = (*FATES, "ratio_deviation", "k3")
"""The diagnostics that may be added up over microbatches once they are divided by all tokens."""


class ShapedLoss:
    """loss = -sum_t weight_t c_t J_t + the rest: J the shape's, all else as the stock loss has it.

    `weight` is NeMo-RL's reduction and c its correction for the sampler, both read from the slope
    of its loss at a ratio of 1; the rest, its KL among them, is its loss at advantages of 0.
    """

    input_type: Any
    loss_type: Any

    def __init__(self, stock: Callable[..., Any], region: TokenRegion) -> None:
        self.stock: Any = _checked(stock, region)
        self.region = region
        uncorrected: Any = copy.copy(stock)
        uncorrected.use_importance_sampling_correction = False
        self.reducing: Any = uncorrected
        for name in READ:
            if hasattr(stock, name):
                setattr(self, name, getattr(stock, name))
        known = getattr(stock, "metric_normalizations", None)
        if known is not None:  # probs_ratio is a mean over tokens, whatever the loss is
            ours = logged(dict.fromkeys((*MEANS, *PARTS), known["probs_ratio"]))
            self.metric_normalizations = {**known, **ours}

    @native_exp()
    def __call__(
        self,
        next_token_logprobs: Tensor,
        data: Mapping[str, Any],
        global_valid_seqs: Tensor,
        global_valid_toks: Tensor,
    ) -> tuple[Tensor, dict[str, Any]]:
        """The loss and what NeMo-RL logs of it; log-probs are `[B, T-1]`, the data's `[B, T]`."""
        new = next_token_logprobs
        old, sampler, advantages, mask = (
            data[name][:, 1:]
            for name in ("prev_logprobs", "generation_logprobs", "advantages", "token_mask")
        )
        mask = mask * data["sample_mask"].unsqueeze(-1)

        def theirs(stock: Any, log_probs: Tensor, seen: Tensor) -> Any:
            return stock(
                next_token_logprobs=log_probs,
                data={**data, "advantages": pad(seen, (1, 0))},
                global_valid_seqs=global_valid_seqs,
                global_valid_toks=global_valid_toks,
            )

        whole, _ = slope(lambda ones: theirs(self.reducing, old, ones), old)
        gates = self.region.gates
        if self.stock.use_importance_sampling_correction:
            corrected, _ = slope(lambda ones: theirs(self.stock, old, ones), old)
            gates = (*gates, TrainersWeight(torch.where(whole == 0, 0.0, corrected / whole)))
        loss, seen = token_loss(
            new,
            old,
            advantages,
            mask,
            self.region.shape,
            token_context(new, old, behaviour_log_prob=sampler),
            level=self.region.level,
            gates=gates,
            penalties=self.region.penalties,
            reducer=RowWeights(whole.amax(-1, keepdim=True)),
        )
        assert seen is not None
        rest, row = theirs(self.stock, new, torch.zeros_like(old))
        loss = loss + rest
        kept = {name: value for name, value in row.items() if name not in OF_CLIP}
        return loss, kept | {"loss": loss.item()} | _shares(seen, global_valid_toks)


def shaped(
    stock: Callable[..., Any],
    shape: Shape | str = "clip(eps=0.2)",
    *,
    level: str = "token",
    gates: Iterable[str] = (),
    penalties: Iterable[str] = (),
) -> ShapedLoss:
    """NeMo-RL's loss with a shape in the place of its clip.

    Args:
        stock: the `loss_fn` that NeMo-RL's `setup` returns, a `ClippedPGLossFn`
        shape: a shape or its spelling
        level: as in `klip.tokens.token_loss`
        gates: the spellings of gates
        penalties: the spellings of penalties

    Returns:
        what NeMo-RL's training functions take as `loss_fn`

    """
    return ShapedLoss(stock, given_region(TRAINER, FIELDS, shape, level, gates, penalties))


def _shares(seen: Diagnostics, tokens: Tensor) -> dict[str, float]:
    """Shares and means over all tokens of the global batch: NeMo-RL adds microbatches up."""
    row = metrics(totals(seen.observed, seen.active) | {"count": tokens}, seen.mark)
    names = MEANS if seen.mark else (*MEANS, *PARTS)
    return logged({name: float(row[name]) for name in names})


def _checked(stock: Callable[..., Any], region: TokenRegion) -> Callable[..., Any]:
    """The stock loss; raises if it is another, or has settings that a shape would replace."""
    for name, usual in USUAL.items():
        if not hasattr(stock, name):
            raise KlipError(
                f"{type(stock).__name__} has no {name}: give the ClippedPGLossFn that NeMo-RL's "
                "setup returns; the adapter was written to that of NeMo-RL 0.7"
            )
        if (value := getattr(stock, name)) != usual:
            raise KlipError(
                f"loss_fn.{name}={value} is not used beside a shape: leave it at {usual}, and give "
                f"{INSTEAD[name]}"
            )
    if stock.use_importance_sampling_correction:  # type: ignore[attr-defined]
        setting = "loss_fn.use_importance_sampling_correction=True"
        check_corrected_once(region, setting, "leave the gate out, or set it to False")
    return stock
