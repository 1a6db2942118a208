"""prime-rl: `klip.adapters.prime_rl.loss` as its custom loss, one sequence at a time.

In the trainer's configuration, whose kwargs may hold every argument of `loss`:

    [trainer.loss]
    type = "custom"
    import_path = "klip.adapters.prime_rl.loss"
    kwargs = { shape = "clip(low=0.2, high=0.28)" }

prime-rl itself is not imported: it and a custom loss share only the fields of inputs and outputs.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from klip.adapters.common import TrainersWeight, given_region, logged, short_log
from klip.adapters.samples import check_recorded
from klip.errors import KlipError
from klip.shapes import (
    Array,
    Parameter,
    Sample,
    Shape,
    exp,
    minimum,
    parameter,
    where,
)
from klip.shapes.backend import native_exp
from klip.theory.diagnostics import FATES, metrics, totals
from klip.tokens import Denominator, Diagnostics, TokenRegion, token_context, token_loss

TRAINER = "prime-rl"
FIELDS = ("old_log_prob", "mask", "position", "length", "sequence", "reference_log_ratio")
LOGGED = (*FATES, "zeroed_mass", "pull", "ratio_deviation")
"""The diagnostics whose mean over sequences is meaningful."""


class Outputs(NamedTuple):
    """The result of a loss, with the fields that prime-rl reads."""

    loss: Tensor
    """`[]`, a sum over the sequence's tokens: prime-rl divides by those of the whole batch"""
    metrics: dict[str, Tensor]
    """each `[]`, with the same names for every sequence; prime-rl averages over sequences"""


@native_exp()
def loss(
    inputs: Any,
    *,
    shape: str = "clip(eps=0.2)",
    level: str = "token",
    gates: Sequence[str] = (),
    penalties: Sequence[str] = (),
    nonfinite: str = "raise",
) -> Outputs:
    """loss = -sum_t weight_t J_t over one sequence, d loss / d log pi(t) = -weight_t m_t.

    The ratio is the trainer's over the sampler's: for a shape "old" is the policy that sampled.

    Args:
        inputs: has `trainer_logprobs`, `inference_logprobs`, `advantages` and `loss_mask`, `[T]`
            each, and perhaps `ref_logprobs` and `loss_weights`
        shape: the spelling of a shape
        level: the ratio that the shape sees: token, sequence-mean (GSPO), sequence-sum or
            geometric-mean(low=0.4, high=0.4) (GMPO)
        gates: the spellings of gates, such as opsm(delta=0.5)
        penalties: the spellings of penalties, such as kl-k3(b=0.1)
        nonfinite: as in `klip.tokens.token_loss`

    >>> import torch
    >>> from types import SimpleNamespace
    >>> new = torch.tensor([-1.0, -0.5], requires_grad=True)
    >>> sequence = SimpleNamespace(trainer_logprobs=new, inference_logprobs=torch.full((2,), -1.0),
    ...     advantages=torch.ones(2), loss_mask=torch.tensor([True, True]))
    >>> outputs = loss(sequence, shape="clip(eps=0.25)")
    >>> outputs.loss.item(), outputs.metrics["klip/kill"].item()
    (-2.25, 0.5)

    """
    region = _read(shape, level, _listed(gates), _listed(penalties))
    new, old, mask = inputs.trainer_logprobs, inputs.inference_logprobs, inputs.loss_mask
    if old is None:
        raise KlipError(
            "inference_logprobs is None: without the sampler's log-probs there is no ratio; let "
            "inference return them"
        )
    check_recorded(new[mask], old[mask])
    reference = getattr(inputs, "ref_logprobs", None)
    if "reference_log_ratio" in region.needs and reference is None:
        part = next(part for part in region.parts if "reference_log_ratio" in part.needs)
        raise KlipError(
            f"{part.name} needs reference_log_ratio, and these inputs have no "
            "ref_logprobs: prime-rl has them only for algorithms that score a reference"
        )
    weights = getattr(inputs, "loss_weights", None)
    value, diagnostics = token_loss(
        new[None],
        old[None],
        inputs.advantages[None],
        mask[None],
        region.shape,
        token_context(
            new[None],
            old[None],
            reference_log_prob=None if reference is None else reference[None],
        ),
        level=region.level,
        reducer=Denominator(1.0),
        gates=[*region.gates, *([] if weights is None else [TrainersWeight(weights[None])])],
        penalties=region.penalties,
        nonfinite=nonfinite,
    )
    assert diagnostics is not None
    row = _metrics(diagnostics)
    if bool(row["klip/inert"]):
        warnings.warn(
            "every ratio of a sequence is exactly 1, so every shape is inert there: the "
            "inference_logprobs seem to be the trainer's own, not the sampler's",
            stacklevel=2,
        )
    return Outputs(value, row)


def _listed(values: Sequence[str]) -> Sequence[str]:
    """Values that can be looked up in a cache; a text stays one, for `_read` to refuse."""
    return values if isinstance(values, str) else tuple(values)


@functools.lru_cache(maxsize=16)
def _read(shape: str, level: str, gates: Sequence[str], penalties: Sequence[str]) -> TokenRegion:
    """`given_region`, cached: it runs once per run, not once per sequence."""
    return given_region(TRAINER, FIELDS, shape, level, gates, penalties)


def _metrics(diagnostics: Diagnostics) -> dict[str, Tensor]:
    """Means over the sequence's tokens, as tensors `[]`: reading numbers would wait for the GPU."""
    sums = totals(diagnostics.observed, diagnostics.active)
    row = metrics(sums | {"count": sums["count"].clamp(min=1)}, diagnostics.mark)
    inert = diagnostics.inert.to(sums["count"].dtype)
    names = short_log(diagnostics.mark, LOGGED)
    return logged({name: row[name] for name in names} | {"inert": inert})


@dataclass(frozen=True)
class IPO(Shape):
    """m = min(w, cap) A unless the probability moved by more than eps, either way: then 0.

    It is the loss that prime-rl uses by default, spelled "klip.adapters.prime_rl:IPO(eps=0.3)".

    >>> from klip.shapes import Context
    >>> likely = Context(old_log_prob=-0.6931)
    >>> [round(float(IPO(eps=0.3).multiplier(x, 1.0, likely)), 3) for x in (0.2, 0.5)]
    [1.221, 0.0]
    """

    number = "31b"
    family = "old probability"
    reference = "prime-rl's default loss"
    requires = ("old_log_prob",)

    eps: Parameter = parameter(0.3, above=0)
    cap: Parameter = parameter(1e4, at_least=1)

    def multiplier(self, s: Sample) -> Array:
        moved = exp(s.old_log_prob) * (s.w - 1)
        far = (moved > self.eps) | (moved < -self.eps)
        return where(far, 0.0, minimum(s.w, self.cap) * s.advantage)
