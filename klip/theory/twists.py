"""Losses that are a shape of the catalogue but for one thing.

That thing is a factor, a sign, the ratio upside down or once too often, or a penalty that rewards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from klip.shapes import KLk1, Penalty
from klip.theory.fit import Match, compare, match, reversed_penalty
from klip.theory.reduction import Question
from klip.theory.samples import SampledPull, sample
from klip.theory.views import Floats, Pull, anchor


@dataclass(frozen=True)
class Twist:
    """What a loss is but for one thing."""

    match: Match
    """The shape, which is not the pull itself, and what makes the pull of it."""
    hint: str = ""
    """The same as the end of a sentence that names the thing."""
    penalty: Penalty | None = None
    """The penalty that is subtracted from the loss instead of added to it."""
    target: str = "the old policy"
    """What the penalty should hold the policy to."""
    power: int = 1
    """The loss has w to this power where a surrogate has w."""


def twist_of(question: Question, samples: SampledPull, tolerance: float, nearest: Match) -> Twist:
    """What the loss is but for one thing, or only its nearest shape."""
    here = anchor(question.pull, tolerance)
    if here.outcome == "scale":
        c = here.constant
        rescaled = match(samples.changed(samples.pull / c), tolerance)
        if rescaled.exact:
            hint = f"; divided by {c:.6g} it is exactly {rescaled}"
            return Twist(_of(rescaled, samples, f"times {c:.6g}"), hint)
    if here.flipped and not samples.by_old:
        inverted = match(sample(lambda x, a, o: -question.pull(-x, a)), tolerance)
        if inverted.exact:
            hint = f"; with the ratio the other way round it is exactly {inverted}"
            return Twist(_of(inverted, samples, "with the ratio the other way round"), hint)
    if not here.flipped and (penalty := reversed_penalty(samples, tolerance)):
        return _rewarding(samples, tolerance, nearest, penalty)
    power = power_at_one(question.pull, tolerance)
    if power > 1:
        w = "w" if power == 2 else f"w^{power - 1}"
        divided = samples.pull / np.exp((power - 1) * samples.log_ratio)
        plain = match(samples.changed(divided), tolerance)
        if plain.exact:
            hint = f"; divided by {w} it is exactly {plain}"
            return Twist(_of(plain, samples, f"times {w}"), hint, power=power)
    return Twist(nearest, power=power)


def _of(found: Match, samples: SampledPull, twist: str) -> Match:
    """The shape that was found, compared with the pull as it is."""
    assert found.shape is not None
    return replace(compare(found.shape, samples), twist=twist)


def _rewarding(samples: SampledPull, tolerance: float, nearest: Match, penalty: Penalty) -> Twist:
    """The shape from which a penalty's reward is subtracted, if it is one of the catalogue."""
    beta: Floats = penalty.beta(samples.log_ratio, samples.advantage, samples.context)
    plain = match(samples.changed(samples.pull + beta), tolerance)
    if not plain.exact:
        return Twist(nearest, penalty=penalty)
    hint = f"; with the other sign it is exactly {plain} + {penalty}"
    kind = "a penalty with the wrong sign"
    if isinstance(penalty, KLk1):
        kind += ", or an entropy bonus"
    return Twist(_of(plain, samples, f"minus {penalty}, {kind}"), hint, penalty)


def power_at_one(pull: Pull, tolerance: float) -> int:
    """The p for which m goes like w^p near w = 1, whatever the advantage; 1 if it has no such p."""
    reach = 1e-4 if tolerance < 1e-3 else 0.1
    x = np.tile([-reach, reach], 4)
    a = np.repeat([1.0, -1.0, 0.5, -0.5], 2)
    m = pull(x, a) * np.sign(a)
    if not np.all(m > 0):
        return 1
    slopes = np.diff(np.log(m).reshape(4, 2)).ravel() / (2 * reach)
    power = round(float(slopes.mean()))
    return power if np.all(np.abs(slopes - power) < 0.25) else 1
