"""Watch verl's own losses: which tokens they zero, and what other shapes would have done.

    KLIP_WATCH="sapo; cispo(cap=5)" python -m verl.trainer.main_ppo ...

verl calls its loss as before, and gets back what it returns; its metrics have `klip/...` more. What
the loss did to a token is measured, not looked up: a second call on detached log-probs gives its
slope, and a third, where every ratio and advantage is 1, the weight that it gives each token.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.workers.config import ActorConfig
from verl.workers.utils import losses

from klip.adapters.common import FEW, check_fields, logged
from klip.adapters.verl_settings import FIELDS, TRAINER, settings
from klip.errors import KlipError
from klip.shapes import NO_CONTEXT, REFERENCE_BAND, Context
from klip.shapes.backend import native_exp
from klip.shapes.context import TWO_RATIOS
from klip.theory.partition import REFERENCE_MARK
from klip.tokens import (
    Diagnostics,
    GeometricMean,
    Level,
    SequenceMean,
    Token,
    TokenRegion,
    beside,
    token_context,
    token_loss,
)
from klip.tokens.instead import OF_ZEROED, PREFIX, regions
from klip.tokens.old import two_ratios

VARIABLE = "KLIP_WATCH"
ALONE = "on"
"""What the variable says if no other shape is asked about."""

_CLIPS = frozenset({"vanilla", "gspo", "clip_cov"})
"""verl's losses whose band is `clip_ratio_low` and `clip_ratio_high`."""

Loss = Callable[..., tuple[Tensor, dict[str, Any]]]
Pooling = Callable[[Mapping[str, float], float, ActorConfig], dict[str, Any]]

_sampler: ContextVar[Tensor | None] = ContextVar("_sampler", default=None)
"""The sampler's log-probs of the batch whose loss is being computed, `[B, T]`."""


def watch_losses(pool: Pooling) -> None:
    """Watch every loss that verl knows by now, if the environment says so."""
    if not os.environ.get(VARIABLE, "").strip():
        return
    for name, loss in list(POLICY_LOSS_REGISTRY.items()):
        if not hasattr(loss, "klip_watches"):
            POLICY_LOSS_REGISTRY[name] = watched(name, loss, pool)
    if not hasattr(losses.ppo_loss, "klip_watches"):
        losses.ppo_loss = _telling(losses.ppo_loss)


def watched(name: str, loss: Loss, pool: Pooling) -> Loss:
    """`loss`, whose metrics also say what became of the tokens; value and gradient are its own."""

    @functools.wraps(loss)
    def watching(*args: Any, **arguments: Any) -> tuple[Tensor, dict[str, Any]]:
        if args:
            raise KlipError(f"{VARIABLE} watches losses that are called by keyword, as verl does")
        others = asked(os.environ.get(VARIABLE, ""))
        value, metrics = loss(**arguments)
        own, others_did = looks(name, loss, others, arguments)
        row = watched_row(own, others_did)
        tokens = float(own.active.sum())
        return value, {**metrics, **logged(pool(row, tokens, arguments["config"]))}

    watching.klip_watches = True  # type: ignore[attr-defined]
    return watching


@functools.cache
def asked(text: str) -> dict[str, TokenRegion]:
    """The regions that `KLIP_WATCH` asks about, by their spellings.

    >>> list(asked("sapo; cispo(cap=5)")), asked("on")
    (['sapo', 'cispo(cap=5)'], {})
    """
    spelled = [part.strip() for part in text.split(";") if part.strip()]
    try:
        found = regions([] if spelled == [ALONE] else spelled)
        for region in found.values():
            check_fields(region.parts, TRAINER, FIELDS)
    except KlipError as error:
        raise KlipError(
            f"{VARIABLE}={text!r}: {error}; write shapes with ; between them, or '{ALONE}'"
        ) from None
    return found


@native_exp()
def looks(
    name: str, loss: Loss, others: Mapping[str, TokenRegion], arguments: Mapping[str, Any]
) -> tuple[Diagnostics, dict[str, Diagnostics]]:
    """What the loss did to the tokens of a call, and what each of `others` would have."""
    config, mask = arguments["config"], arguments["response_mask"].bool()
    new, old = (arguments[key].detach().float() for key in ("log_prob", "old_log_prob"))
    advantage = arguments["advantages"].detach().float()
    view = _level(name, config).view(torch.where(mask, new - old, 0.0), advantage, mask)
    edges, mark = REFERENCE_BAND, REFERENCE_MARK
    if name in _CLIPS:
        low, high = (config.get(f"clip_ratio_{side}") for side in ("low", "high"))
        usual = config.get("clip_ratio")
        edges = (1 - (usual if low is None else low), 1 + (usual if high is None else high))
        mark = ""
    context = _context(new, old)
    own = Diagnostics(
        log_ratio=view.log_ratio.expand_as(new),
        advantage=advantage,
        m=multiplier(loss, arguments),
        active=mask,
        edges=edges,
        mark=mark,
        kept=view.kept,
        ratios=_ratios(new - old, context),
        own_edges=edges,
    )
    did = {}
    for label, region in others.items():
        diagnostics = token_loss(
            new, old, advantage, mask, region.shape, context,
            level=region.level, gates=region.gates, penalties=region.penalties, nonfinite="drop",
        ).diagnostics  # fmt: skip
        assert diagnostics is not None
        did[label] = diagnostics
    return own, did


def multiplier(loss: Loss, arguments: Mapping[str, Any]) -> Tensor:
    """m of each token `[B, T]`: the slope of the loss over its slope where w = A = 1."""
    new, old = (arguments[key].detach().float() for key in ("log_prob", "old_log_prob"))
    advantage, mask = arguments["advantages"].detach().float(), arguments["response_mask"].bool()

    def slope(at: Tensor, pulls: Tensor) -> Tensor:
        x = at.clone().requires_grad_(True)
        changed = {"log_prob": x, "old_log_prob": old, "advantages": pulls}
        value = loss(**{**arguments, **changed, "rollout_is_weights": None})[0]
        return torch.autograd.grad(value, x)[0]

    devices = [new.device] if new.is_cuda else []
    with torch.enable_grad(), torch.random.fork_rng(devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl's own call has said it
        own, weight = slope(new, advantage), slope(old, torch.ones_like(advantage))
    return torch.where(mask & (weight != 0), own / weight, 0.0)


def watched_row(own: Diagnostics, others: Mapping[str, Diagnostics]) -> dict[str, float]:
    """The metrics of a call, under the same names in every call, since verl gathers them by name.

    `restored_mass` is the share of sum |wA| that was zeroed and that the other would have left:
    beside `zeroed_mass`, it says how much of what was zeroed it would have.
    """
    row = beside(own, others, details=False).metrics()
    names = [*FEW, "kill" + own.mark]
    if own.ratios is not None:
        names += [f"{which}/kill{own.mark}" for which in ("move", "mismatch")]
        names += ["mismatch/k3"]
    shown = {name: row.get(name, 0.0) for name in names}
    for label in others:
        at = f"{PREFIX}{label}/"
        shown[f"{at}zeroed"] = row.get(f"{at}zeroed", 0.0)
        left = row.get(f"{at}{OF_ZEROED}pull", 0.0)
        shown[f"{at}restored_mass"] = left * shown["zeroed_mass"]
    return shown


def _level(name: str, config: ActorConfig) -> Level:
    if name == "gspo":
        return SequenceMean()
    if name == "geo_mean":
        return GeometricMean(low=config.clip_ratio_low, high=config.clip_ratio_high)
    return settings().level if name == "klip" else Token()


def _context(new: Tensor, old: Tensor) -> Context:
    sampler = _sampler.get()
    if sampler is None or sampler.shape != new.shape:
        return NO_CONTEXT
    return token_context(new, old, behaviour_log_prob=sampler)


def _ratios(log_ratio: Tensor, context: Context) -> Any:
    if not context.given >= TWO_RATIOS:
        return None
    return two_ratios(log_ratio, {name: getattr(context, name) for name in TWO_RATIOS})


def _telling(ppo_loss: Loss) -> Loss:
    """verl's `ppo_loss`, during which the sampler's log-probs are known, if verl has them."""

    @functools.wraps(ppo_loss)
    def telling(config: Any, model_output: Any, data: Any, *args: Any, **named: Any) -> Any:
        sampler = None
        if "rollout_log_probs" in data.keys():  # noqa: SIM118 - a TensorDict
            sampler = data.select("rollout_log_probs").to_padded_tensor()["rollout_log_probs"]
        with _known(sampler):
            return ppo_loss(config, model_output, data, *args, **named)

    telling.klip_watches = True  # type: ignore[attr-defined]
    return telling


@contextmanager
def _known(sampler: Tensor | None) -> Iterator[None]:
    token = _sampler.set(sampler)
    try:
        yield
    finally:
        _sampler.reset(token)
