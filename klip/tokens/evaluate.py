"""A shape at a batch: its multiplier and the value of its objective, in one pass."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from klip.shapes import (
    BySign,
    Clip,
    ClipHigher,
    Context,
    Gated,
    Shape,
    Sum,
    clip,
    numbers,
    ratio,
    with_numbers,
)
from klip.shapes.backend import LOG_RATIO_LIMIT, cast, rounded_exp
from klip.shapes.value import Value

V = TypeVar("V", bound=Value)


def in_dtype(value: V, dtype: torch.dtype) -> V:
    """The value with its numbers rounded to `dtype`, as the arrays are.

    A threshold that depends on a token is an array of that dtype; a plain number has to be the
    same one, or equal thresholds would not be equal shapes.
    """
    if dtype == torch.float64:
        return value
    rounded = {k: float(np.float32(x)) for k, x in numbers(value).items() if isinstance(x, float)}
    return with_numbers(value, rounded)


def evaluate(
    shape: Shape, log_ratio: Tensor, advantage: Tensor, context: Context
) -> tuple[Tensor, Tensor | None]:
    """(m, J): the multiplier and the published objective; J is None for a shape without one.

    m is `shape.multiplier`, to the last bit. J of gated, summed and by-sign shapes is made of their
    parts'.

    >>> x, a = torch.tensor([[0.5]]), torch.tensor([[1.0]])
    >>> m, value = evaluate(Clip(eps=0.25), x, a, Context())
    >>> m.tolist(), value.tolist()
    ([[0.0]], [[1.25]])
    """
    shape = shape.at(context, log_ratio)
    if isinstance(shape, Clip) and type(shape) in (Clip, ClipHigher):
        return _clip(shape, log_ratio, advantage)
    match shape:
        case Gated(gate, inner):
            m, value = evaluate(inner, log_ratio, advantage, context)
            c = cast(gate.weight(log_ratio, advantage, context), log_ratio)
            return c * m, None if value is None else c * value
        case Sum(inner, penalty):
            m, value = evaluate(inner, log_ratio, advantage, context)
            beta, cost = added(penalty, log_ratio, advantage, context)
            return m + beta, None if value is None else value + cost
        case BySign(positive, negative):
            m, value = evaluate(positive, log_ratio, advantage, context)
            other, other_value = evaluate(negative, log_ratio, advantage, context)
            good = advantage > 0
            m = torch.where(good, m, other)
            if value is None or other_value is None:
                return m, None
            return m, torch.where(good, value, other_value)
    if "objective" not in shape.definitions:
        return shape.multiplier(log_ratio, advantage, context), None
    if shape.definitions & {"multiplier", "beta"}:
        m = shape.multiplier(log_ratio, advantage, context)
        return m, shape.objective(log_ratio, advantage, context).detach()
    # m is defined as dJ / d log w: differentiate the J that is wanted anyway.
    with torch.enable_grad():
        leaf = log_ratio.detach().requires_grad_(True)
        value = shape.objective(leaf, advantage, context)
        (m,) = torch.autograd.grad(value.sum(), leaf)
    return m, value.detach()


def added(
    penalty: Shape, log_ratio: Tensor, advantage: Tensor, context: Context
) -> tuple[Tensor, Tensor]:
    """(beta, J - wA): what a penalty adds to another shape; 0 for a value that nobody published."""
    beta = penalty.beta(log_ratio, advantage, context)
    if "objective" not in penalty.definitions:
        return beta, torch.zeros_like(log_ratio)
    unconstrained = ratio(log_ratio) * advantage
    return beta, penalty.objective(log_ratio, advantage, context) - unconstrained


def _clip(shape: Clip, log_ratio: Tensor, advantage: Tensor) -> tuple[Tensor, Tensor]:
    """PPO-Clip, by far the most used shape, in a third of the passes over memory.

    The `min` takes its second argument on the kill set, where the slope of the clip is 0. The tests
    hold this to `Clip.multiplier`, bit for bit.
    """
    bottom, top = shape.edges
    w = rounded_exp(log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
    pull, killed = w * advantage, shape.killed(w, advantage)
    if isinstance(bottom, Tensor) or isinstance(top, Tensor):
        clipped = clip(w, bottom, top) * advantage
    else:
        clipped = w.clamp_(bottom, top).mul_(advantage)
    return torch.where(killed, 0.0, pull), torch.minimum(clipped, pull)
