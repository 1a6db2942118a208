"""A shape in TRL's AsyncGRPOTrainer: ages from model versions, sampler and trainer told apart.

TRL's loss stays as it is, and none of it is copied. It sees old log-probs of 0 and advantages of 1,
and, where it asks the model for log-probs, m (log pi - sg log pi): the ratio is then 1, nothing is
clipped, and the gradient is that of the shape.

    ratio      trainer now / sampler      what the shape sees, as in TRL
    mismatch   all of it, by age          a completion is learned from once, so nothing has moved
                                          since the start of its update
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from klip.adapters.common import OF_SAMPLER, OF_TOKENS, given_region, nothing_dropped
from klip.adapters.trl_record import record_of, recording
from klip.adapters.trl_window import Windows
from klip.errors import KlipError
from klip.shapes import Gate, Penalty, Shape
from klip.shapes.backend import native_exp
from klip.tokens import Diagnostics, Level, Packing, TokenRegion, token_context, token_loss

try:
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer
except ModuleNotFoundError:
    raise KlipError("klip.adapters.trl_async needs TRL: pip install 'klip-rl[trl]'") from None

__all__ = ["KlipAsyncGRPOTrainer"]

TRAINER = "TRL's AsyncGRPOTrainer"
FIELDS = OF_TOKENS | OF_SAMPLER | {"age", "entropy"}
"""The context fields that reach its loss."""

AGE = "klip_age"
"""`[rows, M]`, how many versions of the model ago each token that is trained on was sampled."""
_INERT = re.compile(r"ratio|kl|clip_ratio/.*")
"""The metrics that TRL makes of a ratio that is 1 by design."""
_NOT_FIRED = (
    "TRL computed its loss without asking the model for log-probs in the way that 1.16 does, so "
    "the shape would not act: install trl==1.16.*"
)


class KlipAsyncGRPOTrainer(AsyncGRPOTrainer):
    """AsyncGRPOTrainer with `shape` as its trust region.

    `shape`, `level`, `gates` and `penalties` are those of `klip.tokens.token_loss`; `metrics` is
    "few" or "all". A completion's `age` is the number of weight syncs since it was sampled.
    `epsilon` and `epsilon_high` are refused, since the shape says them. All other arguments are
    AsyncGRPOTrainer's, by keyword after the third.
    """

    rollout_queue: Any

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: AsyncGRPOConfig | None = None,
        *,
        shape: str | Shape,
        level: str | Level = "token",
        gates: Sequence[str | Gate] = (),
        penalties: Sequence[str | Penalty] = (),
        metrics: str = "few",
        **options: Any,
    ) -> None:
        self._klip_region = given_region(TRAINER, FIELDS, shape, level, gates, penalties)
        self._klip_windows = Windows(metrics)
        if args is not None:
            _check(args)
        super().__init__(model, reward_funcs, args, **options)
        self.klip_record = record_of(self._klip_region)
        self.args: Any = recording(self.args, self.klip_record)

    def get_train_dataloader(self) -> Any:
        """TRL's loader, whose batches also say how old each token is."""
        if self.rollout_queue is not None:
            self.rollout_queue = _Versioning(self.rollout_queue)
        loader = super().get_train_dataloader()
        base = getattr(loader, "base_dataloader", loader)
        base.collate_fn = with_ages(base.collate_fn, lambda: int(self.model_version))
        return loader

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """TRL's loss of the multiplier; its value is -m, reduced."""
        seen: list[Diagnostics] = []
        asked = _Asked(model, self._klip_region, inputs, seen)
        loss: Tensor = super().compute_loss(
            asked, as_shown(inputs), return_outputs, num_items_in_batch
        )
        if not seen:
            raise KlipError(_NOT_FIRED)
        (diagnostics,) = seen
        log = self._metrics["train"]  # whatever the mode, as in TRL
        for name in [name for name in log if _INERT.fullmatch(name)]:
            del log[name]
        self._klip_windows.take_in(self, diagnostics.pool(details=False))
        if not self.aux_loss_enabled:
            # TRL's value is -1 for each token; what has no gradient is set to -m.
            tokens = diagnostics.active.sum().clamp(min=1)
            loss = loss + loss.detach() * (diagnostics.m.sum() / tokens - 1).to(loss.dtype)
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log, in which our diagnostics are those of all tokens since the last entry."""
        self._klip_windows.close(self)
        super().log(logs, start_time)


def _check(args: Any) -> None:
    if args.epsilon != 0.2 or args.epsilon_high is not None:
        high = args.epsilon if args.epsilon_high is None else args.epsilon_high
        raise KlipError(
            f"epsilon={args.epsilon}, epsilon_high={args.epsilon_high} would act on a ratio that "
            f"is 1: leave both unset and write shape='clip(low={args.epsilon}, high={high})'"
        )


def as_shown(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A batch as TRL's loss sees it: terms counted through, old log-probs 0, advantages 1."""
    selected = inputs["token_index"] >= 0
    order = (selected.flatten().cumsum(0) - 1).reshape(selected.shape)
    return {
        **{name: value for name, value in inputs.items() if name != AGE},
        "token_index": torch.where(selected, order, -1),
        "old_log_probs": torch.zeros_like(inputs["old_log_probs"]),
        "advantages": torch.ones_like(inputs["advantages"]),
    }


class _Asked:
    """The model, whose log-probs pull by m once TRL's loss asks for them."""

    def __init__(
        self,
        model: Any,
        region: TokenRegion,
        inputs: Mapping[str, Tensor],
        seen: list[Diagnostics],
    ) -> None:
        self._model, self._region, self._inputs, self._seen = model, region, inputs, seen

    def __call__(self, **arguments: Any) -> Any:
        outputs = self._model(**arguments)
        index = self._inputs["token_index"]
        terms = index[index >= 0]
        log_prob = outputs.log_probs.flatten()[terms]
        entropy = outputs.entropy.flatten()[terms]
        diagnostics = look(self._region, self._inputs, log_prob.detach(), entropy)
        self._seen.append(diagnostics)
        m = Packing.of(_segments(self._inputs)).flat(diagnostics.m).to(log_prob.dtype)
        outputs.log_probs = m * (log_prob - log_prob.detach())
        outputs.entropy = entropy
        return outputs


def _segments(inputs: Mapping[str, Tensor]) -> Tensor:
    """`[M]`, the completion of each term, told apart between rows."""
    selected = inputs["token_index"] >= 0
    ids = inputs["segment_id"]
    rows = torch.arange(len(ids), device=ids.device)[:, None]
    return (rows * (int(ids.max()) + 1) + ids)[selected]


@nothing_dropped()
@native_exp()
def look(
    region: TokenRegion, inputs: Mapping[str, Tensor], log_prob: Tensor, entropy: Tensor
) -> Diagnostics:
    """The diagnostics of a batch whose terms `[M]` have these log-probs, in rows by completion."""
    selected = inputs["token_index"] >= 0
    old = inputs["old_log_probs"][selected]
    known: dict[str, Any] = {"entropy": entropy.detach()}
    if AGE in inputs:
        known["age"] = inputs[AGE][selected].to(log_prob.dtype)
    diagnostics = token_loss(
        log_prob,
        old,
        inputs["advantages"][selected],
        None,
        region.shape,
        token_context(log_prob, old, start_log_prob=log_prob, **known),
        level=region.level,
        gates=region.gates,
        penalties=region.penalties,
        segments=_segments(inputs),
    ).diagnostics
    assert diagnostics is not None
    return diagnostics


class _OfVersion(float):
    """An advantage that remembers which version of the model its completion is of."""

    version: int


class _Versioning:
    """TRL's queue of rollouts; the version of each travels with its advantage."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def get(self, *args: Any, **named: Any) -> Any:
        sample = self._queue.get(*args, **named)
        sample.advantage = _OfVersion(sample.advantage)
        sample.advantage.version = int(sample.model_version)
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def with_ages(
    collate: Callable[[Any], dict[str, Any]], now: Callable[[], int]
) -> Callable[[Any], dict[str, Any]]:
    """TRL's collator, whose batch also has the age of each term; `now` is the model's version.

    Ages are made here, in the process that counts versions, and are sent to the others.
    """

    def collated(examples: Any) -> dict[str, Any]:
        batch = collate(examples)
        (rows,) = examples
        ages = torch.zeros_like(batch["segment_id"])
        for i, row in enumerate(rows):
            versions = [getattr(sample["advantage"], "version", None) for sample in row.samples]
            if None in versions:
                raise KlipError(
                    "a rollout reached the collator without its model version: install trl==1.16.*"
                )
            ages[i] = (now() - torch.tensor(versions))[batch["segment_id"][i]]
        batch[AGE] = ages
        return batch

    return collated
