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
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.workers.config import ActorConfig

from klip.adapters.common import FEW, check_fields, logged, say_once
from klip.adapters.verl_batch import (
    Loss,
    context_of,
    missing,
    names_of,
    row_of,
    spans_of,
    told,
)
from klip.adapters.verl_keeping import keep_tokens
from klip.adapters.verl_settings import FIELDS, TRAINER, settings, tokens_asked
from klip.errors import KlipError
from klip.shapes import REFERENCE_BAND, Context
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
    token_loss,
)
from klip.tokens.instead import OF_ZEROED, PREFIX, regions
from klip.tokens.old import two_ratios

VARIABLE = "KLIP_WATCH"
KLIP = "klip"
"""Our own loss among verl's."""
ALONE = "on"
"""What the variable says if no other shape is asked about."""

_CLIPS = frozenset({"vanilla", "gspo", "clip_cov"})
"""verl's losses whose band is `clip_ratio_low` and `clip_ratio_high`."""

Pooling = Callable[[Mapping[str, float], float, ActorConfig], dict[str, Any]]

_WANTED = ("mismatch", "entropy", "age", "span")


def is_watched(name: str) -> bool:
    """Whether the loss of that name is watched, and its tokens are kept by the watcher."""
    return hasattr(POLICY_LOSS_REGISTRY.get(name), "klip_watches")


def watch_losses(pool: Pooling) -> None:
    """Watch every loss that verl knows by now, if the environment says so."""
    if not os.environ.get(VARIABLE, "").strip():
        return
    for name, loss in list(POLICY_LOSS_REGISTRY.items()):
        if not is_watched(name):
            POLICY_LOSS_REGISTRY[name] = watched(name, loss, pool)


def watched(name: str, loss: Loss, pool: Pooling) -> Loss:
    """`loss`, whose metrics also say what became of the tokens; value and gradient are its own."""

    @functools.wraps(loss)
    def watching(*args: Any, **arguments: Any) -> tuple[Tensor, dict[str, Any]]:
        if args:
            raise KlipError(f"{VARIABLE} watches losses that are called by keyword, as verl does")
        others, tokens = asked(os.environ.get(VARIABLE, "")), tokens_asked()
        config, batch = arguments["config"], told()
        value, metrics = loss(**arguments)
        own, others_did = looks(name, loss, others, arguments)
        if batch is not None and (lacks := missing(batch, config, tokens.marker, _WANTED)):
            say_once(f"{VARIABLE} watches without {lacks}")
        label = str(settings().shape) if name == KLIP else name
        keep_tokens({label: own, **others_did}, batch, config, tokens)
        row = watched_row(own, others_did)
        return value, {**metrics, **logged(pool(row, float(own.active.sum()), config))}

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
    batch = told()
    context = context_of(batch, new, old)
    spans = spans_of(batch, mask, config, tokens_asked().marker)
    own = Diagnostics(
        log_ratio=view.log_ratio.expand_as(new),
        advantage=advantage,
        m=multiplier(loss, arguments),
        active=mask,
        edges=edges,
        mark=mark,
        kept=view.kept,
        spans=spans,
        age=None if batch is None else batch.age,
        entropy=None if batch is None else batch.entropy,
        ratios=_ratios(new - old, context),
        own_edges=edges,
    )
    did = {}
    for label, region in others.items():
        diagnostics = token_loss(
            new, old, advantage, mask, region.shape, context,
            level=region.level, gates=region.gates, penalties=region.penalties, nonfinite="drop",
            spans=spans,
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
    row = row_of(beside(own, others, details=False))
    names = [*FEW, "kill" + own.mark, *names_of(own)]
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
    return settings().level if name == KLIP else Token()


def _ratios(log_ratio: Tensor, context: Context) -> Any:
    if not context.given >= TWO_RATIOS:
        return None
    return two_ratios(log_ratio, {name: getattr(context, name) for name in TWO_RATIOS})
