"""The token loss: m per token, and a scalar whose value users know and whose gradient is m.

    loss = -reduce(J)        d loss / d log pi(t) = -m(t) * weight(t)

with J the shape's own objective. Five independent choices make up the published algorithms: a
ratio level, a shape, gates, penalties and a reducer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from klip.errors import KlipError, NotFinite
from klip.shapes import Clip, Context, Gate, Penalty, Shape, check_needs
from klip.shapes.backend import cast
from klip.shapes.context import NO_CONTEXT, TWO_RATIOS
from klip.theory.partition import edges_of, mark_of
from klip.tokens.context import from_batch, given_fields, in_dtype, working_dtype
from klip.tokens.diagnostics import Diagnostics
from klip.tokens.levels import Level, Token, View
from klip.tokens.old import TwoRatios, of_batch, two_ratios
from klip.tokens.packing import Packing
from klip.tokens.reducers import Reducer, TokenMean
from klip.tokens.region import TokenRegion, named

_NO_STATE_KL = (
    "the shape weighs the closed-form KL of each token's distribution: pass "
    "token_loss(state_kl=...) [B, T], with gradient, or choose a sampled penalty "
    "(kl-k1, kl-k2, kl-k3)"
)


class TokenLoss(NamedTuple):
    """What `token_loss` returns."""

    loss: Tensor
    """`[]`, to be minimised"""
    diagnostics: Diagnostics | None
    """computed when they are read; None with `diagnostics=False`"""


def token_multiplier(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    mask: Tensor | None = None,
    shape: Shape | str = Clip(),  # noqa: B008 - a frozen value
    context: Context = NO_CONTEXT,
    *,
    level: Level | str = Token(),  # noqa: B008 - a frozen value
    gates: Sequence[Gate | str] = (),
    penalties: Sequence[Penalty | str] = (),
    segments: Tensor | None = None,
    nonfinite: str = "raise",
) -> Tensor:
    """m = prod_g c_g * m_shape + sum_p beta_p, `[B, T]`, detached and 0 under the mask.

    It is for a trainer that takes one coefficient per token and reduces by itself. The arguments
    are those of `token_loss`; of a pack, m is `[N]`.

    >>> token_multiplier(torch.tensor([[0.0, 0.5]]), torch.zeros(1, 2), torch.tensor([2.0]))
    tensor([[2., 0.]])
    """
    region = TokenRegion.read(shape, level, gates, penalties)
    arguments = _Arguments(log_prob, old_log_prob, advantages, mask, context)
    packing = None if segments is None else Packing.of(segments)
    arguments = arguments if packing is None else arguments.padded(packing)
    batch, pulled = _pulled(arguments, region, nonfinite)
    if nonfinite == "raise" and not bool(torch.isfinite(pulled.m + batch.log_ratio).all()):
        _refuse(batch, pulled.m)
    if pulled.kl_weight is not None:
        raise KlipError(_NO_STATE_KL)
    return pulled.m if packing is None else packing.flat(pulled.m)


def token_loss(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    mask: Tensor | None = None,
    shape: Shape | str = Clip(),  # noqa: B008 - a frozen value
    context: Context = NO_CONTEXT,
    *,
    level: Level | str = Token(),  # noqa: B008 - a frozen value
    reducer: Reducer | str = TokenMean(),  # noqa: B008 - a frozen value
    gates: Sequence[Gate | str] = (),
    penalties: Sequence[Penalty | str] = (),
    state_kl: Tensor | None = None,
    spans: Mapping[str, Tensor] | None = None,
    segments: Tensor | None = None,
    nonfinite: str = "raise",
    diagnostics: bool = True,
) -> TokenLoss:
    """loss = -reduce(J), d loss / d log_prob = -weight * (prod_g c_g * m_shape + sum_p beta_p).

    float16 and bfloat16 are computed in float32, and the gradient is returned in their own dtype.
    If J is not published (`Ramp`, `PerSample`, ...), m takes its place in the value. What lies
    under the mask changes nothing, whatever it is.

    >>> new = torch.tensor([[0.0, 0.5]], requires_grad=True)
    >>> one = torch.tensor([1.0])
    >>> loss, diagnostics = token_loss(new, torch.zeros(1, 2), one, shape=Clip(eps=0.25))
    >>> loss.backward()
    >>> loss.item(), new.grad.tolist()  # -(1 + 1.25) / 2; the second token is killed
    (-1.125, [[-0.5, -0.0]])
    >>> diagnostics.metrics()["kill"]
    0.5

    Args:
        log_prob: of the new policy, `[B, T]`, with gradient
        old_log_prob: of the policy that the ratio divides by, `[B, T]`
        advantages: `[B]` or `[B, T]`
        mask: `[B, T]`, true where a token counts; by default all do
        shape: a shape or its spelling, which sees the log-ratio of `level`
        context: fields that the shape needs; `old_log_prob`, `mask`, `position`, `length` and
            `sequence` follow from the batch
        level: a level or its spelling
        reducer: a reducer or its spelling
        gates: gates or their spellings, which see the token's own log-ratio
        penalties: penalties or their spellings, which see the token's own log-ratio
        state_kl: closed-form KL(old || new) of each token's distribution, `[B, T]`, with gradient,
            for shapes that weigh it
        spans: masks `[B, T]` by name, for diagnostics of their own
        segments: of a pack, the id of each token's sequence, `[N]`; what is `[B, T]` above is then
            `[N]`, what is `[B]` is a number for each segment by ascending id, and the diagnostics
            are those of the padded form (`klip.tokens.Packing`)
        nonfinite: "raise" refuses tokens whose numbers are not finite, at the cost of the one host
            read of this function; "drop" treats them exactly as if they were masked
        diagnostics: whether to return diagnostics

    Returns:
        the loss, a number with gradient, and the diagnostics, unless they were not asked for

    """
    region = TokenRegion.read(shape, level, gates, penalties)
    arguments = _Arguments(log_prob, old_log_prob, advantages, mask, context, state_kl, spans)
    if segments is not None:
        arguments = arguments.padded(Packing.of(segments))
    batch, pulled = _pulled(arguments, region, nonfinite)
    with torch.no_grad():
        count = batch.active.sum(-1, keepdim=True).to(batch.log_ratio.dtype)
        weight = named(Reducer, reducer).weight(count)
        by_row = torch.where(batch.active, pulled.value, 0.0).sum(-1, keepdim=True)
        total = -(by_row * weight).sum()
        if nonfinite == "raise" and not bool(torch.isfinite(total + batch.log_ratio.sum())):
            _refuse(batch, pulled.m)

    loss: Tensor = _Pull.apply(arguments.log_prob, pulled.m, weight, total)  # type: ignore[no-untyped-call]
    if pulled.kl_weight is not None:
        loss = loss + _weighed_kl(arguments.state_kl, pulled.kl_weight, batch.active, weight)
    if not diagnostics:
        return TokenLoss(loss, None)
    return TokenLoss(
        loss,
        Diagnostics(
            log_ratio=pulled.view.log_ratio,
            advantage=batch.advantage,
            m=pulled.m,
            active=batch.active,
            edges=edges_of(pulled.shape, batch.context, pulled.view.log_ratio),
            mark=mark_of(pulled.shape),
            kept=pulled.view.kept,
            counted=batch.counted,
            spans=dict(arguments.spans or {}),
            **given_fields(arguments.context, frozenset({"age", "entropy"}), batch.log_ratio, {}),
            ratios=_shown(batch, region.level),
            own_edges=_own_edges(pulled, batch),
        ),
    )


class _Arguments(NamedTuple):
    """The batch as the caller passes it."""

    log_prob: Tensor
    old_log_prob: Tensor
    advantages: Tensor
    mask: Tensor | None
    context: Context
    state_kl: Tensor | None = None
    spans: Mapping[str, Tensor] | None = None

    def padded(self, packing: Packing) -> _Arguments:
        """The arguments of a pack, in rows `[S, T]`."""
        tokens: dict[str, Any] = {
            name: packing.tokens(name, getattr(self, name))
            for name in ("log_prob", "old_log_prob", "state_kl")
        }
        return self._replace(
            **tokens,
            advantages=packing.any("advantages", self.advantages),
            mask=packing.mask(self.mask),
            context=packing.context(self.context),
            spans=packing.spans(self.spans),
        )


class _Batch(NamedTuple):
    """The arguments, checked, in the working dtype, and 0 under the mask."""

    log_ratio: Tensor
    advantage: Tensor
    active: Tensor
    counted: Tensor
    context: Context
    ratios: TwoRatios | None
    """of the new policy to the start, and of that to the sampler, if both are known"""


class _Pulled(NamedTuple):
    """What level, shape, gates and penalties make of a batch; tensors are `[B, T]`."""

    m: Tensor
    value: Tensor
    kl_weight: Any
    view: View
    shape: Shape
    """with its numbers rounded to the working dtype"""


@torch.no_grad()
def _pulled(arguments: _Arguments, region: TokenRegion, nonfinite: str) -> tuple[_Batch, _Pulled]:
    """The checked batch, and what a region makes of it."""
    _check_shapes(arguments)
    if nonfinite not in ("raise", "drop"):
        raise KlipError(f"nonfinite={nonfinite!r} must be 'raise' or 'drop'")
    batch = _prepare(arguments, region, drop=nonfinite == "drop")
    return batch, _pull(batch, region)


def _prepare(arguments: _Arguments, region: TokenRegion, drop: bool) -> _Batch:
    log_prob, old_log_prob, advantages, mask, context, state_kl, _ = arguments
    needs = region.needs
    dtype = working_dtype(log_prob, old_log_prob)
    old = old_log_prob.detach().to(dtype)
    raw = log_prob.detach().to(dtype) - old
    counted = torch.ones_like(raw, dtype=torch.bool) if mask is None else mask.bool()
    advantage = advantages.detach().to(dtype)
    advantage = advantage[:, None] if advantage.ndim == 1 else advantage

    placed = given_fields(context, TWO_RATIOS, raw, {})

    def known(active: Tensor) -> dict[str, Any]:
        closed_form = {} if state_kl is None else {"kl": state_kl}
        found = from_batch(needs, old, active) | of_batch(needs, raw, placed, active)
        return given_fields(context, needs, raw, found | closed_form)

    active, fields = counted, known(counted)
    for part in region.parts:
        check_needs(part, fields)
    if drop:
        active = _finite(counted, raw, advantage, *fields.values())
        fields = known(active)  # a dropped token has no position in its sequence
    clean = Context(**{name: _masked(value, active) for name, value in fields.items()})
    log_ratio = torch.where(active, raw, 0.0)
    ratios = two_ratios(log_ratio, placed)
    return _Batch(log_ratio, _masked(advantage, active), active, counted, clean, ratios)


def _pull(batch: _Batch, region: TokenRegion) -> _Pulled:
    own = (batch.log_ratio, batch.advantage, batch.context)
    dtype = batch.log_ratio.dtype
    shape = in_dtype(region.shape, dtype)
    shown, kept = region.level.view(batch.log_ratio, batch.advantage, batch.active)
    view = View(shown.expand_as(batch.log_ratio), kept)
    m, value = shape.evaluate(view.log_ratio, batch.advantage, batch.context)
    value = m if value is None else value
    if kept is not None:
        m = torch.where(kept, m, 0.0)
    kl_weight = shape.kl_weight(view.log_ratio, batch.advantage, batch.context)
    for gate in (in_dtype(gate, dtype) for gate in region.gates):
        c = cast(gate.weight(*own), batch.log_ratio)
        m, value = c * m, c * value
        kl_weight = None if kl_weight is None else c * kl_weight
    for penalty in (in_dtype(penalty, dtype) for penalty in region.penalties):
        m, value = m + penalty.beta(*own), value + penalty.cost(*own)
        if (more := penalty.kl_weight(*own)) is not None:
            kl_weight = more if kl_weight is None else kl_weight + more
    return _Pulled(torch.where(batch.active, m, 0.0), value, kl_weight, view, shape)


def _shown(batch: _Batch, level: Level) -> TwoRatios | None:
    """Both ratios as the level shows them; NaN where a token's own are not finite."""
    if batch.ratios is None:
        return None
    known = batch.ratios.move.isfinite() & batch.ratios.mismatch.isfinite()
    some = batch.active & known
    views = (level.view(torch.where(some, x, 0.0), batch.advantage, some) for x in batch.ratios)
    return TwoRatios(*(torch.where(known, view.log_ratio, torch.nan) for view in views))


def _own_edges(pulled: _Pulled, batch: _Batch) -> tuple[Any, Any]:
    """The band of the shape where sampler, start and old policy are one."""
    known = {name: getattr(batch.context, name) for name in batch.context.given}
    same = Context(**known | dict.fromkeys(TWO_RATIOS & known.keys(), 0.0))
    return edges_of(pulled.shape, same, pulled.view.log_ratio)


class _Pull(torch.autograd.Function):
    """`value`, whose gradient with respect to log_prob is -m * weight."""

    @staticmethod
    def forward(ctx: Any, log_prob: Tensor, m: Tensor, weight: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(m, weight)
        ctx.dtype = log_prob.dtype
        return value.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        m, weight = ctx.saved_tensors
        return (m * (-gradient * weight)).to(ctx.dtype), None, None, None


def _masked(value: Any, active: Tensor) -> Any:
    """`value` where tokens count and 0 elsewhere; `[B, 1]` stays so, numbers are left alone."""
    if not isinstance(value, Tensor) or not value.ndim:
        return value
    counts = active.any(-1, keepdim=True) if value.shape[-1] == 1 else active
    return torch.where(counts, value, torch.zeros((), dtype=value.dtype, device=value.device))


def _finite(active: Tensor, *values: Any) -> Tensor:
    """The tokens of `active` at which all values are finite."""
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point():
            active = active & torch.isfinite(value)
    return active


def _weighed_kl(state_kl: Tensor | None, kl_weight: Any, active: Tensor, weight: Tensor) -> Tensor:
    """reduce(kl_weight * KL(state)), `[]`: the second channel."""
    if state_kl is None:
        raise KlipError(_NO_STATE_KL)
    if state_kl.shape != active.shape:
        raise KlipError(f"state_kl {list(state_kl.shape)} must be [B, T] {list(active.shape)}")
    cost = torch.where(active, kl_weight, 0.0) * torch.where(active, state_kl, 0.0)
    return (cost.sum(-1, keepdim=True) * weight).sum()


def _check_shapes(arguments: _Arguments) -> None:
    log_prob, old_log_prob, advantages, mask, *_ = arguments

    def say(x: Tensor) -> str:
        return str(list(x.shape))

    if log_prob.ndim != 2 or not log_prob.is_floating_point():
        raise KlipError(f"log_prob {say(log_prob)} {log_prob.dtype} must be [B, T] and real")
    rows, length = log_prob.shape
    for name, x in (("old_log_prob", old_log_prob), ("mask", mask)):
        if x is not None and x.shape != log_prob.shape:
            raise KlipError(f"{name} {say(x)} must be [B, T] like log_prob {say(log_prob)}")
    if tuple(advantages.shape) not in ((rows,), (rows, 1), (rows, length)):
        raise KlipError(f"advantages {say(advantages)} must be [B] or [B, T] of {say(log_prob)}")


def _refuse(batch: _Batch, m: Tensor) -> None:
    """Raise an error that says which number is not finite, and where it is first."""
    named = {"log_prob - old_log_prob": batch.log_ratio, "advantages": batch.advantage}
    known = batch.context
    named |= {f"context {name}": getattr(known, name) for name in sorted(known.given)}
    for name, value in (named | {"the multiplier": m}).items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        bad = (batch.active & ~torch.isfinite(value)).nonzero()
        if len(bad):
            row, place = (int(i) for i in bad[0])
            raise NotFinite(
                f"{name} is not finite at sequence {row}, token {place} ({len(bad)} tokens in all)",
                "mask them, or pass nonfinite='drop' to leave them out",
            )
    raise NotFinite("the value of the loss is not finite although every multiplier is")
