"""Tinker: a loss for `TrainingClient.forward_backward_custom`, which sends one weight per token.

    training_client.forward_backward_custom(data, klip.adapters.tinker.loss("spo(eps=0.2)"))

Tinker runs a custom loss on its client, over the log-probs that its server has computed, and sends
the negative gradient back as per-token weights: they are the multipliers. Its package is not
imported here; of a datum only its `loss_fn_inputs` are read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from klip.adapters.common import given_region, logged, shown_metrics
from klip.adapters.samples import check_recorded
from klip.errors import KlipError
from klip.shapes import Context, Gate, Penalty, Shape
from klip.shapes.backend import native_exp
from klip.tokens import Level, Reducer, TokenRegion, token_context, token_loss
from klip.tokens.region import named

TRAINER = "Tinker"
FROM_BATCH = frozenset({"old_log_prob", "mask", "position", "length", "sequence"})
FROM_DATA = {"age": "age", "reward": "reward", "reference_log_ratio": "reference_logprobs"}
"""Context fields, and the `loss_fn_inputs` from which they come."""

LossFunction = Callable[[Sequence[Any], Sequence[Tensor]], tuple[Tensor, dict[str, float]]]
"""(data, logprobs of each datum `[T]`) -> (loss, metrics)."""


def loss(
    shape: str | Shape = "clip(eps=0.2)",
    *,
    level: str | Level = "token",
    gates: Sequence[str | Gate] = (),
    penalties: Sequence[str | Penalty] = (),
    reducer: str | Reducer = "denominator(1)",
    nonfinite: str = "raise",
    metrics: str = "few",
) -> LossFunction:
    """loss = -sum_t J_t over all data, d loss / d logprob_t = -m_t: Tinker's weight of t is m_t.

    Each datum has in its `loss_fn_inputs` the `target_tokens`, the sampler's `logprobs` and the
    `advantages`, as Tinker's own losses take them, and a `mask` (1 where a token was sampled).
    Without a mask the tokens that count are those with an advantage, and shapes that pull without
    one (the KL penalties) are refused.

    Args:
        shape: a shape or its spelling
        level: a level or its spelling
        gates: gates or their spellings
        penalties: penalties or their spellings
        reducer: a reducer or its spelling; by default the sum over tokens, as in Tinker's losses
        nonfinite: as in `klip.tokens.token_loss`
        metrics: "few" or "all" diagnostics come back

    >>> from types import SimpleNamespace
    >>> row = {"logprobs": torch.tensor([0.0, -1.0]), "advantages": torch.tensor([0.0, 2.0])}
    >>> inputs = {k: SimpleNamespace(to_torch=lambda x=x: x) for k, x in row.items()}
    >>> now = torch.tensor([-3.0, -0.5], requires_grad=True)
    >>> value, metrics = loss("clip(eps=0.25)")([SimpleNamespace(loss_fn_inputs=inputs)], [now])
    >>> value.item(), metrics["klip/zeroed"], metrics["klip/kill"]
    (-2.5, 1.0, 1.0)

    """
    fields = FROM_BATCH | FROM_DATA.keys()
    region = given_region(TRAINER, fields, shape, level, gates, penalties)
    reducer, shown = named(Reducer, reducer), shown_metrics(metrics)
    brought = {name: key for name, key in FROM_DATA.items() if name in region.needs}
    keys = ["logprobs", "advantages", *brought.values()]
    if region.penalties or _pulls_without_advantage(region.shape):
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
        value, diagnostics = token_loss(
            new,
            old,
            advantages,
            mask,
            region.shape,
            token_context(new, old, reference_log_prob=reference, **fields),
            level=region.level,
            reducer=reducer,
            gates=region.gates,
            penalties=region.penalties,
            nonfinite=nonfinite,
        )
        assert diagnostics is not None
        for sentence in diagnostics.warnings():
            warnings.warn(sentence, stacklevel=2)
        return value, logged(shown(diagnostics.metrics()))

    return function


def _row(
    where: str, inputs: Mapping[str, Any], now: Tensor, keys: Sequence[str], region: TokenRegion
) -> dict[str, Tensor]:
    """The inputs `keys` of one datum, `[T]` each; without a mask, it is where A is not 0."""
    row = {}
    for key in dict.fromkeys([*keys, *({"mask"} & inputs.keys())]):
        if key not in inputs:
            raise KlipError(f"{where}.loss_fn_inputs has no {key!r}: {_why(key, region)}")
        row[key] = inputs[key].to_torch().to(now.device)
        if now.ndim != 1 or row[key].shape != now.shape:
            raise KlipError(
                f"{where}: {key} {list(row[key].shape)} and the logprobs that Tinker computed "
                f"{list(now.shape)} must both be [T], one number per target token"
            )
    return row | {"mask": row.get("mask", row["advantages"]) != 0}


def _why(key: str, region: TokenRegion) -> str:
    match key:
        case "logprobs":
            return "without the sampler's log-probs there is no ratio"
        case "advantages":
            return "give one number per token, 0 where nothing was sampled"
        case "mask":
            pulls = (*region.penalties, region.shape)[0]
            return (
                f"{pulls} pulls on tokens without an advantage too, so give 1 where a token was "
                "sampled and 0 elsewhere"
            )
    field = next(name for name, brought in FROM_DATA.items() if brought == key)
    return f"{next(part for part in region.parts if field in part.needs)} needs it"


def _padded(rows: Sequence[Mapping[str, Tensor]], key: str) -> Tensor:
    return pad_sequence([row[key] for row in rows], batch_first=True)


def _pulls_without_advantage(shape: Shape) -> bool:
    """Whether m differs from 0 anywhere at A = 0."""
    x = torch.linspace(-1, 1, 9)[None]
    known = Context(**{name: torch.full_like(x, 0.5) for name in shape.needs})
    return bool(shape.multiplier(x, torch.zeros_like(x), known).any())
