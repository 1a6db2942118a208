"""What is odd about a loss's pull m(w, A): each finding is a mistake or the method's design."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from klip.shapes import KLk1, Penalty, numbers
from klip.theory.blackbox import HALF, BlackBox, call
from klip.theory.reduction import Coupling, Reduction
from klip.theory.reference import Use
from klip.theory.samples import ADVANTAGES, LOG_RATIOS
from klip.theory.sharing import Sharing
from klip.theory.twists import Twist
from klip.theory.views import Anchor, Floats, Pull, anchor

NOTHING = 1e-12
"""A pull this small counts as none."""


@dataclass(frozen=True)
class Finding:
    """Something about a loss that a person should know."""

    code: str
    message: str
    by_design: bool = False
    """Whether the published shape that the loss is does the same."""


def pull_at_zero(pull: Pull, tolerance: float) -> tuple[float, float] | None:
    """(w, m) where a sample of advantage 0 pulls hardest, within w = 1/2 .. 2 or else anywhere."""
    m = pull(LOG_RATIOS, np.zeros_like(LOG_RATIOS))
    m = np.where(np.isfinite(m), m, 0.0)
    near = np.abs(LOG_RATIOS) < 0.7
    for x, here in ((LOG_RATIOS[near], m[near]), (LOG_RATIOS, m)):
        worst = int(np.argmax(np.abs(here)))
        if abs(here[worst]) > tolerance:
            return float(np.exp(x[worst])), float(here[worst])
    return None


def dead_regions(pull: Pull) -> list[tuple[float, tuple[float, float]]]:
    """(A, (from w, to w)) where nothing pulls on the pass side, beyond a definite edge.

    A gate that fades away has no such edge: 1e-3 before its zeros it is already almost zero.
    """
    regions = []
    for a in (1.0, -1.0):
        distance = np.arange(1, 257) / 64.0
        dead = _dead(pull, -a * distance, a)
        if not dead.any():
            continue
        first = int(np.argmax(dead))
        alive_again = np.flatnonzero(~dead[first:])
        low, high = (distance[first - 1] if first else 0.0), distance[first]
        for _ in range(7 if first else 0):
            steps = np.linspace(low, high, 65)
            edge = int(np.argmax(_dead(pull, -a * steps, a)))
            low, high = steps[max(edge - 1, 0)], steps[edge]
        before = np.array([high - 1e-3])
        if first and abs(pull(-a * before, np.array([a]))[0]) < 1e-5 * np.exp(-a * before)[0]:
            continue
        end = distance[first + alive_again[0]] if alive_again.size else np.inf
        start = high if first else 0.0
        region = sorted((float(np.exp(-a * start)), float(np.exp(-a * end))))
        regions.append((a, (region[0], region[1])))
    return regions


def _dead(pull: Pull, log_ratio: Floats, advantage: float) -> npt.NDArray[np.bool_]:
    m = pull(log_ratio, np.full_like(log_ratio, advantage))
    dead: npt.NDArray[np.bool_] = np.abs(m) <= NOTHING * np.exp(log_ratio)
    return dead


def _kill_side_is_dead(pull: Pull) -> bool:
    return bool(np.all(_dead(pull, np.array([2.0]), 1.0) & _dead(pull, np.array([-2.0]), -1.0)))


def of_pull(
    pull: Pull, twist: Twist, published: Pull | None, tolerance: float
) -> Iterator[Finding]:
    """What the pull itself shows; `published` is the pull of the shape that the loss equals."""

    def finding(code: str, what: str, cause: str, designed: Callable[[Pull], object]) -> Finding:
        if published is not None and designed(published):
            return Finding(code, f"{what}; that is how {twist.match.name} is defined.", True)
        return Finding(code, f"{what}, which usually comes from {cause}.")

    here = anchor(pull, tolerance)
    explained = twist.penalty is not None and here.outcome == "gauge"
    if here.outcome != "exact" and not explained:

        def same(published: Pull) -> bool:
            there = anchor(published, tolerance)
            return (there.outcome, there.flipped) == (here.outcome, here.flipped)

        what, cause = _anchor_words(pull, here)
        yield finding("anchor", what, cause + twist.hint, same)
    if twist.penalty is not None:
        yield _penalty_sign(twist.penalty, twist.target, twist.hint)
    elif idle := pull_at_zero(pull, tolerance):
        w, m = idle
        cause = "a KL, entropy or other penalty inside the policy loss"
        if m * np.log(w) > 0 and _drives_away(pull, tolerance):
            cause = "a penalty with the wrong sign: it drives the policy away from the old one"
        what = f"a sample with A = 0 still pulls (m = {m:.4g} at w = {w:.3g})"
        yield finding("zero-advantage", what, cause, lambda p: pull_at_zero(p, tolerance))
    if twist.power > 1:
        what = f"near w = 1 the pull goes like w^{twist.power} and not like w"
        cause = "multiplying by the ratio twice, a squared importance weight"
        yield finding("squared-ratio", what, cause + twist.hint, lambda p: False)
    if not here.flipped and (dead := dead_regions(pull)):  # a flipped pull has its sides swapped
        where = " and ".join(_region(*region) for region in dead)
        what = f"samples that would come back towards the old policy get no gradient ({where})"
        yield finding("pass-killed", what, _dead_cause(pull, len(dead)), dead_regions)


def _drives_away(pull: Pull, tolerance: float) -> bool:
    """Whether samples of advantage 0 are pulled away from w = 1 on both sides of it."""
    m = pull(LOG_RATIOS, np.zeros_like(LOG_RATIOS)) * np.sign(LOG_RATIOS)
    away = m > tolerance
    return bool(np.all(m >= -tolerance) and np.any(away[LOG_RATIOS < 0]) and np.any(away))


def _penalty_sign(penalty: Penalty, target: str, hint: str) -> Finding:
    """That a penalty enters with a negative coefficient."""
    coefficient = -next(iter(numbers(penalty).values()))
    what = f"at A = 0 the pull is that of {penalty.name} with the coefficient {coefficient:.6g}"
    if isinstance(penalty, KLk1):
        return Finding(
            "penalty-sign",
            f"{what}, so that at w = 1 it is A - {-coefficient:.6g}: a KL penalty with the wrong "
            "sign, or else the log-probability itself, as an entropy bonus or as the k1 of "
            f"KL(new || old), whose gradient is zero in expectation{hint}.",
        )
    return Finding(
        "penalty-sign",
        f"{what}: the penalty has the wrong sign and drives the policy away from {target}, which "
        f"usually comes from subtracting it from the loss instead of adding it{hint}.",
    )


def _anchor_words(pull: Pull, here: Anchor) -> tuple[str, str]:
    """What the pull is at w = 1, and what that usually comes from."""
    c = here.constant
    if here.outcome == "gauge":
        return (
            f"at w = 1 the pull is A {'+' if c > 0 else '-'} {abs(c):.6g} and not A: a gauge, zero "
            "in expectation at the old policy",
            "a k1 KL or an entropy bonus",
        )
    if here.flipped:
        return (
            f"at w = 1 the pull is {c:.6g} A: minimising this loss lowers the objective",
            "a missing minus sign or from exp(old - new) for the ratio",
        )
    if here.outcome == "scale":
        return (
            f"at w = 1 the pull is {c:.6g} A and not A",
            "a coefficient on the loss or from dividing by a constant",
        )
    a = np.array([1.0, -1.0])
    up, down = pull(np.zeros(2), a)
    return (
        f"at w = 1 the pull is {up:.4g} for A = 1 and {down:.4g} for A = -1, neither A, nor a "
        "multiple of it, nor A plus a constant",
        "transforming advantages",
    )


def _region(a: float, region: tuple[float, float]) -> str:
    low, high = region
    if low == 0.0:
        text = f"w < {high:.4g}"
    else:
        text = f"w > {low:.4g}" if np.isinf(high) else f"{low:.4g} < w < {high:.4g}"
    return f"{text} with A {'>' if a > 0 else '<'} 0"


def _dead_cause(pull: Pull, sides: int) -> str:
    if not _kill_side_is_dead(pull):
        return "max where min is meant (or min of two losses that are already negated)"
    if sides == 2:
        return "clipping the ratio without taking the min with the unclipped term"
    return "a cap on the ratio, as in dual clip"


def not_finite(box: BlackBox, pull: Pull) -> Iterator[Finding]:
    """The first point, going out from w = 1, where the loss or its gradient is not a number."""
    x, a = (part.ravel() for part in np.meshgrid(LOG_RATIOS, ADVANTAGES))
    bad = np.flatnonzero(~np.isfinite(pull(x, a)))
    if bad.size:
        first = bad[np.argmin(np.abs(x[bad]))]
        yield _not_finite("gradient", float(x[first]), float(a[first]), box.half or "float64")
        return
    here = np.tile([True, False], (4, 3))  # not all alike: a loss may divide by their deviation
    for dtype, far in (("float64", 20.0), ("float32", 20.0), ("float64", 50.0)):
        for log_ratio in (far, -far):
            for advantage in (1.0, -1.0, 0.0):
                x, a = np.where(here, log_ratio, 0.0), np.where(here, advantage, 0.5)
                out = call(box, x, a, dtype=dtype)
                for what, values in (("gradient", out.gradient), ("value", out.value)):
                    if not np.all(np.isfinite(values)):
                        yield _not_finite(what, log_ratio, advantage, box.half or dtype)
                        return


def _not_finite(what: str, log_ratio: float, advantage: float, dtype: str) -> Finding:
    cause = "also in the branch of a where that is not taken: clamp its argument first"
    if dtype in HALF:
        cause = f"which happens early in {dtype}: take the ratio in float32"
    return Finding(
        "not-finite",
        f"the {what} is NaN or infinite at log w = {log_ratio:.4g}, A = {advantage:g} in {dtype}, "
        f"which usually comes from exp overflowing, {cause}.",
    )


def of_reference(use: Use, penalty: Penalty | None) -> Iterator[Finding]:
    """What is odd about the use that a loss makes of its reference."""
    if use == "unused" and penalty is not None and not isinstance(penalty, KLk1):
        yield Finding(
            "reference",
            f"the loss takes the log-probabilities of a reference, but its penalty, {penalty}, "
            "holds the policy to the old one, which usually comes from mixing up the two.",
        )


def of_batch(
    mix: Coupling,
    reduction: Reduction,
    leak: str = "",
    neutral: bool = False,
    sharing: Sharing | None = None,
) -> Iterator[Finding]:
    """What growing, mixing and masking batches shows about the loss.

    `neutral` says that its normalisation of advantages could be undone, `sharing` which ratio its
    samples share, if they share one.
    """
    if mix.across_batch or mix.within_sequence:
        what = "a sample's pull changes with the other samples of the batch"
        if not mix.across_batch:
            what = "a token's pull changes with the other tokens of its sequence"
        if sharing is not None and sharing.name and not mix.across_batch:
            message = f"{what}: a sequence-level ratio, {sharing.words}"
            yield Finding(
                "batch-dependent", f"{message}; that is how such a loss is defined.", True
            )
        else:
            cause = _coupling_cause(mix, neutral, sharing)
            yield Finding("batch-dependent", f"{what}, which usually comes from {cause}.")
    if reduction.problem:
        yield Finding("reduction", f"the weights of samples {reduction.problem}.")
    if leak:
        yield Finding(
            "masked-gradient",
            f"{leak}, which usually comes from reducing before the mask is applied.",
        )


def _coupling_cause(mix: Coupling, neutral: bool, sharing: Sharing | None) -> str:
    if sharing is not None:
        return f"reducing before the ratio is taken: they share {sharing.words}"
    if not mix.by_advantage:
        return "a ratio or weight that is shared by the batch"
    undone = " (it was asked in batches of mean 0 and variance 1, where that is neutral)"
    return "normalising advantages inside the loss" + (undone if neutral else "")
