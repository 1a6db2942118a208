"""What every adapter asks of the shape it is given."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch

from klip.errors import KlipError
from klip.shapes import CONTEXT_FIELDS, Gate, Penalty, Region, Shape, parse
from klip.tokens.levels import GeometricMean, Level, sequence_mean, sequence_sum, token


def given_shape(shape: str | Region, trainer: str, fields: Iterable[str]) -> Shape:
    """The shape that `shape` is or spells, if `trainer` can give it what it needs.

    `fields` are the context fields that reach the loss in that trainer.

    >>> given_shape("clip(eps=0.3)", "TRL", ())
    Clip(eps=0.3, low=None, high=None)
    >>> given_shape("age-conditioned", "verl", ())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    klip.errors.KlipError: age-conditioned needs age (how many updates old the sample is), which ...
    """
    value = parse(shape) if isinstance(shape, str) else shape
    if not isinstance(value, Region):
        raise KlipError(
            f"shape={value!r} must be a shape or its spelling, such as 'clip(eps=0.2)'; "
            "`klip shapes` lists them"
        )
    if value.adapts:
        raise KlipError(
            f"{value.name} adapts between updates, and {trainer} keeps no state for it: give a "
            "shape with a fixed coefficient, such as kl-k3(b=1)"
        )
    check_fields((value.initial,), trainer, fields)
    return value.initial


def check_fields(
    parts: Iterable[Shape | Gate | Penalty], trainer: str, fields: Iterable[str]
) -> None:
    """Refuse what `trainer` cannot serve: context that it lacks, or a closed-form KL."""
    fields = frozenset(fields)
    for part in parts:
        for name in sorted(part.needs - fields):
            raise KlipError(
                f"{part.name} needs {name} ({CONTEXT_FIELDS[name]}), which does not reach the "
                f"loss in {trainer}; it has {', '.join(sorted(fields)) or 'no context'}"
            )
        weighs = isinstance(part, Shape) and part.weighs_kl(torch.ones(1, 1))
        if weighs and "kl" not in fields:
            raise KlipError(
                f"{part.name} weighs the closed-form KL of each distribution, which {trainer} "
                "does not compute: choose a sampled penalty (kl-k1, kl-k2, kl-k3)"
            )


def named_level(name: Any) -> Level:
    """The ratio level that `name` spells.

    >>> named_level("geometric-mean(low=0.3, high=0.5)")
    GeometricMean(low=0.3, high=0.5)
    """
    levels: dict[str, Level] = {
        "token": token,
        "sequence-mean": sequence_mean,
        "sequence-sum": sequence_sum,
        "geometric-mean": GeometricMean(),
    }
    if isinstance(name, str) and name in levels:
        return levels[name]
    number = r"\s*=\s*([\d.eE+-]+)\s*"
    found = re.fullmatch(rf"geometric-mean\(\s*low{number},\s*high{number}\)", str(name))
    try:
        if found:
            return GeometricMean(low=float(found[1]), high=float(found[2]))
    except ValueError:
        pass
    raise KlipError(
        f"level={name!r} is unknown; there are {', '.join(levels)} and "
        "geometric-mean(low=0.4, high=0.4)"
    )
