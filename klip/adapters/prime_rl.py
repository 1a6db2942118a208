"""prime-rl: `klip.adapters.prime_rl.loss` as its custom loss, one sequence at a time.

In the trainer's configuration, where every argument of `loss` may stand among the kwargs:

    [trainer.loss]
    type = "custom"
    import_path = "klip.adapters.prime_rl.loss"
    kwargs = { shape = "clip(low=0.2, high=0.28)" }

prime-rl itself is not imported: a custom loss reads the fields of its inputs and is read by the
fields of its outputs, and nothing else.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from klip.adapters.common import given_shape, named_level
from klip.adapters.samples import check_recorded
from klip.errors import KlipError
from klip.shapes import (
    Array,
    Gate,
    Parameter,
    Sample,
    Shape,
    exp,
    minimum,
    parameter,
    ratio,
    where,
)
from klip.shapes.backend import native_exp
from klip.tokens import (
    Denominator,
    Diagnostics,
    token_context,
    token_loss,
)

TRAINER = "prime-rl"
FIELDS = ("old_log_prob", "mask", "position", "length", "sequence", "reference_log_ratio")


class Outputs(NamedTuple):
    """What prime-rl reads of a loss's result."""

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
    nonfinite: str = "raise",
) -> Outputs:
    """loss = -sum_t weight_t J_t over one sequence, d loss / d log pi(t) = -weight_t m_t.

    `inputs` has `trainer_logprobs`, `inference_logprobs`, `advantages` and `loss_mask`, `[T]` each,
    and perhaps `ref_logprobs` and `loss_weights`. The ratio is the trainer's over the sampler's:
    for a shape "old" is the policy that sampled. `level` is the ratio that the shape sees: token,
    sequence-mean (GSPO), sequence-sum or geometric-mean(low=0.4, high=0.4) (GMPO).

    >>> from types import SimpleNamespace
    >>> new = torch.tensor([-1.0, -0.5], requires_grad=True)
    >>> sequence = SimpleNamespace(trainer_logprobs=new, inference_logprobs=torch.full((2,), -1.0),
    ...     advantages=torch.ones(2), loss_mask=torch.tensor([True, True]))
    >>> found = loss(sequence, shape="clip(eps=0.25)")
    >>> found.loss.item(), found.metrics["klip/kill"].item()
    (-2.25, 0.5)
    """
    region = _read(shape)
    new, old, mask = inputs.trainer_logprobs, inputs.inference_logprobs, inputs.loss_mask
    if old is None:
        raise KlipError(
            "inference_logprobs is None: without the sampler's log-probs there is no ratio; let "
            "inference return them"
        )
    check_recorded(new[mask], old[mask])
    reference = getattr(inputs, "ref_logprobs", None)
    if "reference_log_ratio" in region.needs and reference is None:
        raise KlipError(
            f"{region.name} needs reference_log_ratio, and these inputs have no ref_logprobs: "
            "prime-rl has them for algorithms that score a reference alone"
        )
    weights = getattr(inputs, "loss_weights", None)
    found, seen = token_loss(
        new[None],
        old[None],
        inputs.advantages[None],
        mask[None],
        region,
        token_context(
            new[None],
            old[None],
            reference_log_prob=None if reference is None else reference[None],
        ),
        level=named_level(level),
        reducer=Denominator(1.0),
        gates=[] if weights is None else [_Weight(weights[None])],
        nonfinite=nonfinite,
    )
    assert seen is not None
    metrics = _metrics(seen)
    if bool(metrics["klip/inert"]):
        warnings.warn(
            "every ratio of a sequence is exactly 1, so every shape is inert there: the "
            "inference_logprobs seem to be the trainer's own, not the sampler's",
            stacklevel=2,
        )
    return Outputs(found, metrics)


@functools.lru_cache(maxsize=16)
def _read(shape: str) -> Shape:
    """Once a run, not once a sequence."""
    return given_shape(shape, TRAINER, FIELDS)


@dataclass(frozen=True, eq=False)
class _Weight(Gate):
    """c = the weight that prime-rl has for the token in this loss."""

    value: Parameter = parameter(1.0)

    def weight(self, s: Sample) -> Array:
        return self.value


def _metrics(seen: Diagnostics) -> dict[str, Tensor]:
    """Means over the sequence's tokens; tensors, so that a GPU need not be waited for."""
    inside, kill, passing = seen.sets()
    count = seen.active.sum().clamp(min=1)
    w = ratio(seen.log_ratio)
    mass = torch.where(seen.active, (w * seen.advantage).abs(), 0.0)
    whole = mass.sum().clamp(min=torch.finfo(mass.dtype).tiny)
    moved = torch.where(seen.active, w - 1, 0.0)
    return {
        "klip/in": inside.sum() / count,
        "klip/kill": kill.sum() / count,
        "klip/pass": passing.sum() / count,
        "klip/killed_mass": torch.where(kill, mass, 0.0).sum() / whole,
        "klip/pull": seen.m.abs().sum() / whole,
        "klip/ratio_deviation": moved.abs().sum() / count,
        "klip/inert": (seen.active.any() & ~moved.any()).to(mass.dtype),
    }


@dataclass(frozen=True)
class IPO(Shape):
    """m = min(w, cap) A unless the probability moved by more than eps, either way: then 0.

    prime-rl's own default as a shape, to start from: "klip.adapters.prime_rl:IPO(eps=0.3)".

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
