"""verl: a policy loss called `klip`, whose shape comes from the environment.

    actor_rollout_ref.actor.policy_loss.loss_mode=klip
    KLIP_SHAPE="clip(low=0.2, high=0.28)"

verl imports this module in each of its processes, as an entry point of the group `verl.plugins`.
Its configuration of losses is closed, so the shape comes from `KLIP_SHAPE` or, with a level, from
the TOML file that `KLIP_CONFIG` names. `klip doctor verl` says whether all of this is in place.

verl takes the mean over microbatches of whatever a loss reports, also of a maximum. So this module
lets verl's `Metric.from_dict` keep a value that is a `Metric` already, with an aggregation of its
own, which verl itself would refuse.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, register_policy_loss
from verl.utils.metric import Metric
from verl.workers.config import ActorConfig, PolicyLossConfig

from klip.adapters.common import FEW, TrainersWeight, defaults, logged, short_log
from klip.adapters.verl_batch import context_of, names_of, row_of, spans_of, tell_losses, told
from klip.adapters.verl_keeping import keep_tokens
from klip.adapters.verl_settings import Settings, settings, tokens_asked
from klip.adapters.verl_watch import KLIP, is_watched, watch_losses
from klip.errors import KlipError
from klip.shapes import LOG_RATIO_LIMIT, Parameter, numbers, parameter
from klip.shapes.backend import native_exp
from klip.theory.diagnostics import EMPTY, EXTREMES
from klip.tokens import Diagnostics, Reducer, token_loss


@native_exp()
def policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: ActorConfig | None = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """loss = agg_loss(-c J), d loss / d log_prob = -c m d agg_loss, c = rollout_is_weights.

    verl calls it by keyword, with tensors `[B, T]`; the value is that of the shape's objective.
    """
    chosen = settings()
    if config is None:
        raise KlipError("verl's loss is called without its config: pass config=ActorConfig(...)")
    check_config(config, chosen)
    gates = list(chosen.gates)
    if rollout_is_weights is not None:
        if rollout_is_weights.shape != log_prob.shape:
            raise KlipError(
                f"rollout_is_weights {list(rollout_is_weights.shape)} must be [B, T] like "
                f"log_prob {list(log_prob.shape)}"
            )
        gates.append(TrainersWeight(rollout_is_weights))
    dtype = torch.float64 if log_prob.dtype == torch.float64 else torch.float32
    batch, tokens = told(), tokens_asked()
    weight = token_weight(response_mask, loss_agg_mode, config.global_batch_info, dtype)
    loss, diagnostics = token_loss(
        log_prob,
        old_log_prob,
        advantages,
        response_mask,
        chosen.shape,
        context_of(batch, log_prob, old_log_prob),
        level=chosen.level,
        reducer=Aggregated(weight),
        gates=gates,
        penalties=chosen.penalties,
        nonfinite=chosen.nonfinite,
        spans=spans_of(batch, response_mask.bool(), config, tokens.marker),
    )
    assert diagnostics is not None
    _warn_if_inert(diagnostics, config)
    log_ratio = log_prob.detach().to(dtype) - old_log_prob.to(dtype)
    row = usual_metrics(diagnostics, log_ratio, rollout_is_weights)
    if not is_watched(KLIP):
        keep_tokens({str(chosen.shape): diagnostics}, batch, config, tokens)
    if chosen.diagnostics:
        own = row_of(diagnostics.pool(details=False))
        names = (*_names(chosen.metrics, diagnostics.mark), *names_of(diagnostics))
        own = {name: own.get(name, 0.0) for name in names}
        row |= logged(pooled_by_verl(own, float(diagnostics.active.sum()), config))
    return loss, row


register_policy_loss(KLIP)(policy_loss)


def _names(which: str, mark: str) -> tuple[str, ...]:
    """The diagnostics that are logged, the same in every call: verl gathers them by name."""
    if which == "all":
        return (*short_log(mark), "inert")
    return FEW if mark else (*FEW, "kill")


def pooled_by_verl(row: Mapping[str, float], tokens: float, config: ActorConfig) -> dict[str, Any]:
    """The metrics of a microbatch of so many tokens, so that verl makes those of a minibatch of it.

    Extremes stay extremes. Of all else verl adds up the microbatch's part, by its share of the
    minibatch's tokens over all machines. Without verl's trainer, which says how large the minibatch
    is, the numbers come back as they are.
    """
    whole = config.global_batch_info.get("batch_num_tokens")
    if not whole:
        return dict(row)
    share = tokens * config.global_batch_info.get("dp_size", 1) / whole
    return {
        name: Metric(EXTREMES[name], value if tokens else EMPTY[name])
        if name in EXTREMES
        else Metric("sum", share * value)
        for name, value in row.items()
    }


def _keep_own_aggregation() -> None:
    made = Metric.from_dict

    def from_dict(data: Mapping[str, Any], aggregation: Any) -> dict[str, Metric]:
        kept = {name: value for name, value in data.items() if isinstance(value, Metric)}
        rest = {name: value for name, value in data.items() if name not in kept}
        return {**made(rest, aggregation), **kept}

    Metric.from_dict = staticmethod(from_dict)


_keep_own_aggregation()
tell_losses()
watch_losses(pooled_by_verl)


@dataclass(frozen=True, eq=False)
class Aggregated(Reducer):
    """The weight `[B, 1]` that verl's own aggregation gives to a token of each sequence."""

    value: Parameter = parameter(dataclasses.MISSING)

    def weight(self, count: Tensor) -> Tensor:
        weight: Tensor = self.value
        return weight


def token_weight(
    mask: Tensor, mode: str, info: Mapping[str, Any], dtype: torch.dtype = torch.float32
) -> Tensor:
    """d agg_loss / d (loss of a token), `[B, 1]`: the weight that verl gives to each sequence.

    >>> mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    >>> token_weight(mask, "seq-mean-token-sum", {"global_batch_size": 8}).tolist()
    [[0.125], [0.125]]
    """
    counts = mask.bool()
    with torch.enable_grad():
        losses = torch.zeros(mask.shape, dtype=dtype, device=mask.device, requires_grad=True)
        try:
            total = agg_loss(loss_mat=losses, loss_mask=mask, loss_agg_mode=mode, **info)
        except ValueError as error:
            raise KlipError(f"verl does not aggregate by loss_agg_mode={mode!r}: {error}") from None
        (slope,) = torch.autograd.grad(total, losses)
    # If no token counts, the mean over tokens is 0/0.
    slope = torch.where(counts, slope, 0.0)
    weight = slope.amax(-1, keepdim=True)
    if not torch.equal(torch.where(counts, weight, 0.0), slope):
        raise KlipError(
            f"loss_agg_mode={mode!r} weighs the tokens of a sequence differently, which no reducer "
            "of Klip's does: choose token-mean or one of the seq-mean modes"
        )
    return weight


def usual_metrics(
    diagnostics: Diagnostics, log_ratio: Tensor, rollout_is_weights: Tensor | None
) -> dict[str, float]:
    """verl's own metrics: the shares without pull of the kill side and of A < 0, w > 1; and k1.

    For a dual clip they are the numbers of verl's vanilla loss.
    """
    active, a, x = diagnostics.active, diagnostics.advantage, diagnostics.log_ratio
    dropped = active & (diagnostics.m == 0)
    if rollout_is_weights is not None:
        dropped = dropped & (rollout_is_weights != 0)
    held = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)  # as verl's losses do
    rows = (dropped & (x * a > 0), dropped & (a < 0) & (x > 0), torch.where(active, -held, 0.0))
    totals = torch.stack([row.sum(dtype=torch.float32) for row in rows]) / active.sum().clamp(min=1)
    names = ("actor/pg_clipfrac", "actor/pg_clipfrac_lower", "actor/ppo_kl")
    return dict(zip(names, totals.tolist(), strict=True))


def _warn_if_inert(diagnostics: Diagnostics, config: ActorConfig) -> None:
    """Warn (once per process) if all ratios are 1; later minibatches are unknown here."""
    if config.get("ppo_epochs", 1) <= 1 and bool(diagnostics.inert):
        warnings.warn(
            "every ratio of this batch is 1, so no trust region does anything yet. With "
            "actor.ppo_epochs=1 it stays so unless data.train_batch_size is larger than "
            "actor.ppo_mini_batch_size: take several updates per batch if the shape is to matter",
            stacklevel=2,
        )


NAMES = {
    "clip_ratio": ("eps",),
    "clip_ratio_low": ("eps", "low"),
    "clip_ratio_high": ("eps", "high"),
    "clip_ratio_c": ("cap",),
    "tau_pos": ("tau_positive",),
    "tau_neg": ("tau_negative",),
}
"""verl's numbers for its own losses, and their names in shapes."""


def check_config(config: ActorConfig, given: Settings) -> None:
    """Refuse a number that is set for one of verl's own losses and that the shape does not have.

    verl's defaults pass, since the user did not choose them.
    """
    usual = defaults(ActorConfig)
    for name, spellings in NAMES.items():
        value = config.get(name, usual[name])
        if value is None or value == usual[name]:
            continue
        if not any(math.isclose(value, number) for number in _meant(given, name, spellings)):
            raise KlipError(
                f"actor.{name}={value:g} is not used by loss_mode=klip, and {given.shape} does not "
                f"say so too: write it into the shape, or leave actor.{name} at verl's default "
                f"{usual[name]:g}"
            )
    for name, default in defaults(PolicyLossConfig).items():
        value = config.policy_loss.get(name, default)
        of_any_loss = name in ("loss_mode", "_target_")
        if of_any_loss or value == default or default is dataclasses.MISSING:
            continue
        raise KlipError(
            f"actor.policy_loss.{name}={value} belongs to another loss_mode and is not used "
            f"by klip: leave it at verl's default {default}"
        )


def _meant(given: Settings, name: str, spellings: tuple[str, ...]) -> Iterator[float]:
    """The numbers of the shape and the level that mean what verl's setting `name` means."""
    for path, number in (*numbers(given.shape).items(), *numbers(given.level).items()):
        leaf = path.rpartition(".")[2]
        if leaf in spellings:
            yield number
        # CISPO's edges are ratios; verl's are distances from 1.
        elif (name, leaf) == ("clip_ratio_high", "cap"):
            yield number - 1
        elif (name, leaf) == ("clip_ratio_low", "floor"):
            yield 1 - number


PlainLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(new_log_probs, old_log_probs, advantages, mask) -> loss."""


def plain_loss(
    loss: str | Callable[..., Any], *, loss_agg_mode: str = "token-mean", **config: Any
) -> PlainLoss:
    """A loss of verl, or the one of that name, as a function of tensors `[B, T]` alone.

    `config` holds fields of verl's `ActorConfig` and `PolicyLossConfig`.

    >>> old, one = torch.zeros(1, 2), torch.ones(1, 2)
    >>> plain_loss("vanilla", clip_ratio_high=0.28)(old + 0.5, old, one, one)
    tensor(-1.2800)
    """
    own = defaults(PolicyLossConfig)
    outer = {name: x for name, x in config.items() if name not in own}
    try:
        call = get_policy_loss_fn(loss) if isinstance(loss, str) else loss
        inner = PolicyLossConfig(**{name: x for name, x in config.items() if name in own})
        actor = ActorConfig(
            strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, policy_loss=inner, **outer
        )
    except (TypeError, ValueError) as error:
        raise KlipError(f"verl has no loss {loss} with these settings: {error}") from None

    def plain(
        new_log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor
    ) -> Tensor:
        value: Tensor = call(
            old_log_prob=old_log_probs,
            log_prob=new_log_probs,
            advantages=advantages,
            response_mask=mask,
            loss_agg_mode=loss_agg_mode,
            config=actor,
        )[0]
        return value

    return plain
