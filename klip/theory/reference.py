"""The penalty by which a loss is held to a reference policy, as in GRPO.

A loss is first asked with the reference at the old policy, where a KL to the one looks like a KL to
the other. Moving the reference tells them apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from klip.shapes import NO_CONTEXT, KLInverseK3, KLk1, KLk2, KLReverseK3, Penalty, Shape, numbers
from klip.theory.fit import Match
from klip.theory.reduction import Question
from klip.theory.views import Floats

Use = Literal["unused", "penalty", "unknown"]
"""What moving the reference does: nothing, what a penalty to it would do, or something else."""

ESTIMATORS: dict[type[Penalty], str] = {
    KLk1: "k1",
    KLk2: "k2",
    KLInverseK3: "k3",
    KLReverseK3: "weighted-k3",
}
"""The estimator of `reference-kl` that has a penalty's gradient if the reference is old."""


def use_of_reference(question: Question, penalty: Penalty | None, sign: float, error: float) -> Use:
    """What the reference does to the pull, if `sign * penalty` is part of it where it is old."""
    x, a = np.meshgrid(np.linspace(-1.5, 1.5, 31), [-1.0, 0.0, 0.7])
    here = question.pull(x, a)
    used = explained = True
    for offset in (0.4, -0.3):  # log reference - log old
        change = question.pull(x, a, reference=offset) - here
        close = error * np.maximum(1.0, np.abs(here))
        used = used and bool(np.any(np.abs(change) > close))
        if penalty is not None:
            expected = sign * (_beta(penalty, x, a, offset) - _beta(penalty, x, a, 0.0))
            explained = explained and bool(np.all(np.abs(change - expected) <= close))
    if not used:
        return "unused"
    return "penalty" if penalty is not None and explained else "unknown"


def _beta(penalty: Penalty, log_ratio: Floats, advantage: Floats, offset: float) -> Floats:
    """beta where the penalty's ratio is the one to the reference."""
    if isinstance(penalty, KLReverseK3):  # -b w u, with u = log new - log reference
        return np.asarray(-penalty.b * np.exp(log_ratio) * (log_ratio - offset))
    return np.asarray(penalty.beta(log_ratio - offset, advantage, NO_CONTEXT))


def penalty_in(shape: Shape | None) -> Penalty | None:
    """The penalty that a shape is or has added to it."""
    if isinstance(shape, Penalty):
        return shape
    parts = [] if shape is None else list(shape.parameters.values())
    return next((part for part in parts if isinstance(part, Penalty)), None)


def to_reference(match: Match, penalty: Penalty) -> Match:
    """The match, spelled with its penalty as one to the reference."""
    there = spelled(penalty)
    whole = str(match)
    if isinstance(match.shape, Penalty):  # the surrogate is part of it
        whole, name = f"is + {there}", "is + reference-kl"
    else:
        whole = whole.replace(str(penalty), there)
        name = match.name.replace(penalty.name, "reference-kl")
    twist = match.twist.replace(str(penalty), there)
    return replace(match, spelling=whole, name=name, twist=twist, equivalents=[])


def spelled(penalty: Penalty) -> str:
    """The penalty to the reference as `klip.tokens` spells it."""
    estimator = ESTIMATORS.get(type(penalty))
    if estimator is None:
        return f"{penalty} to the reference"
    return f"reference-kl(b={numbers(penalty)['b']:.6g}, estimator={estimator})"
