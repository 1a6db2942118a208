"""Tinker: a loss for `TrainingClient.forward_backward_custom`, which sends one weight per token.

    training_client.forward_backward_custom(data, klip.adapters.tinker.loss("spo(eps=0.2)"))

Tinker runs a custom loss on its client, over the log-probs that its server has computed, and sends
the negative gradient back as per-token weights: they are the multipliers. Its package is not
imported here; a datum is known by its `loss_fn_inputs`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from klip.adapters.common import given_shape
from klip.adapters.samples import check_recorded
from klip.errors import KlipError
from klip.shapes import Context, Shape
from klip.shapes.backend import native_exp
from klip.tokens import Denominator, Level, Reducer, token, token_context, token_loss

TRAINER = "Tinker"
FROM_BATCH = frozenset({"old_log_prob", "mask", "position", "length", "sequence"})
FROM_DATA = {"age": "age", "reward": "reward", "reference_log_ratio": "reference_logprobs"}
"""Context fields, and the `loss_fn_inputs` in which a datum may bring them."""

LossFunction = Callable[[Sequence[Any], Sequence[Tensor]], tuple[Tensor, dict[str, float]]]
"""(data, logprobs of each datum `[T]`) -> (loss, metrics)."""


def loss(
    shape: str | Shape = "clip(eps=0.2)",
    *,
    level: Level = token,
    reducer: Reducer = Denominator(1.0),  # noqa: B008 - a frozen value
    nonfinite: str = "raise",
) -> LossFunction:
    """loss = -sum_t J_t over all data, d loss / d logprob_t = -m_t: Tinker's weight of t is m_t.

    Each datum has in its `loss_fn_inputs` the `target_tokens`, the sampler's `logprobs` and the
    `advantages`, as Tinker's own losses take them, and a `mask` (1 where a token was sampled). A
    sum over tokens is what Tinker's own losses are; another `reducer` of `klip.tokens` may stand
    there. Without a mask the tokens that count are those with an advantage, and shapes that pull
    without one (the KL penalties) are refused.

    >>> from types import SimpleNamespace
    >>> row = {"logprobs": torch.tensor([0.0, -1.0]), "advantages": torch.tensor([0.0, 2.0])}
    >>> inputs = {k: SimpleNamespace(to_torch=lambda x=x: x) for k, x in row.items()}
    >>> now = torch.tensor([-3.0, -0.5], requires_grad=True)
    >>> value, metrics = loss("clip(eps=0.25)")([SimpleNamespace(loss_fn_inputs=inputs)], [now])
    >>> value.item(), metrics["klip/tokens"], metrics["klip/kill"]
    (-2.5, 1.0, 1.0)
    """
    region = given_shape(shape, TRAINER, FROM_BATCH | FROM_DATA.keys())
    brought = {name: key for name, key in FROM_DATA.items() if name in region.needs}
    keys = ["logprobs", "advantages", *brought.values()]
    if _pulls_without_advantage(region):
        keys.append("mask")

    @native_exp()
    def function(
        data: Sequence[Any], logprobs: Sequence[Tensor]
    ) -> tuple[Tensor, dict[str, float]]:
        if not data:
            raise KlipError("there are no data to compute a loss of")
        rows = [
            _row(f"data[{i}]", datum.loss_fn_inputs, now, keys, region)
            for i, (datum, now) in enumerate(zip(data, logprobs, strict=True))
        ]
        new = pad_sequence(list(logprobs), batch_first=True)
        old, advantages, mask = (_padded(rows, key) for key in ("logprobs", "advantages", "mask"))
        check_recorded(new.detach()[mask], old[mask])
        fields = {name: _padded(rows, key) for name, key in brought.items()}
        reference = fields.pop("reference_log_ratio", None)
        value, seen = token_loss(
            new,
            old,
            advantages,
            mask,
            region,
            token_context(new, old, reference_log_prob=reference, **fields),
            level=level,
            reducer=reducer,
            nonfinite=nonfinite,
        )
        assert seen is not None
        for said in seen.warnings():
            warnings.warn(said, stacklevel=2)
        return value, {f"klip/{name}": number for name, number in seen.metrics().items()}

    return function


def _row(
    where: str, given: Mapping[str, Any], now: Tensor, keys: Sequence[str], region: Shape
) -> dict[str, Tensor]:
    """What is needed of one datum, `[T]` each; the mask is made of the advantages if need be."""
    found = {}
    for key in dict.fromkeys([*keys, *({"mask"} & given.keys())]):
        if key not in given:
            raise KlipError(f"{where}.loss_fn_inputs has no {key!r}: {_why(key, region)}")
        found[key] = given[key].to_torch().to(now.device)
        if now.ndim != 1 or found[key].shape != now.shape:
            raise KlipError(
                f"{where}: {key} {list(found[key].shape)} and the logprobs that Tinker computed "
                f"{list(now.shape)} must both be [T], one number a target token"
            )
    return found | {"mask": found.get("mask", found["advantages"]) != 0}


def _why(key: str, region: Shape) -> str:
    match key:
        case "logprobs":
            return "without the sampler's log-probs there is no ratio"
        case "advantages":
            return "give one number a token, 0 where nothing was sampled"
        case "mask":
            return (
                f"{region} pulls on tokens without an advantage too, so give 1 where a token was "
                "sampled and 0 elsewhere"
            )
    return f"{region} needs it"


def _padded(rows: Sequence[Mapping[str, Tensor]], key: str) -> Tensor:
    return pad_sequence([row[key] for row in rows], batch_first=True)


def _pulls_without_advantage(region: Shape) -> bool:
    """Whether m is not 0 somewhere at A = 0."""
    x = torch.linspace(-1, 1, 9)[None]
    known = Context(**{name: torch.full_like(x, 0.5) for name in region.needs})
    return bool(region.multiplier(x, torch.zeros_like(x), known).any())
