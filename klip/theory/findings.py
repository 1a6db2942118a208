"""What is odd about a loss's pull m(w, A): each finding is a mistake or the method's design."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from klip.theory.blackbox import BlackBox, call
from klip.theory.fit import Match
from klip.theory.reduction import Coupling, Reduction
from klip.theory.samples import ADVANTAGES, LOG_RATIOS
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
    pull: Pull, match: Match, published: Pull | None, tolerance: float, hint: str
) -> Iterator[Finding]:
    """What the pull itself shows; `published` is the pull of the shape that the loss equals."""

    def finding(code: str, message: str, designed: Callable[[Pull], object]) -> Finding:
        by_design = published is not None and bool(designed(published))
        why = f"; that is how {match.name} is defined" if by_design else ""
        return Finding(code, message + why + ".", by_design)

    here = anchor(pull, tolerance)
    if here.outcome != "exact":

        def same(published: Pull) -> bool:
            there = anchor(published, tolerance)
            return (there.outcome, there.flipped) == (here.outcome, here.flipped)

        yield finding("anchor", _anchor_message(pull, here) + hint, same)
    if idle := pull_at_zero(pull, tolerance):
        yield finding(
            "zero-advantage",
            f"a sample with A = 0 still pulls (m = {idle[1]:.4g} at w = {idle[0]:.3g}), which "
            "usually comes from a KL, entropy or other penalty inside the policy loss",
            lambda p: pull_at_zero(p, tolerance),
        )
    if not here.flipped and (dead := dead_regions(pull)):  # a flipped pull has its sides swapped
        where = " and ".join(_region(*region) for region in dead)
        yield finding(
            "pass-killed",
            f"samples that would come back towards the old policy get no gradient ({where}), "
            f"which usually comes from {_dead_cause(pull, len(dead))}",
            dead_regions,
        )


def _anchor_message(pull: Pull, here: Anchor) -> str:
    c = here.constant
    if here.outcome == "gauge":
        return (
            f"at w = 1 the pull is A {'+' if c > 0 else '-'} {abs(c):.6g} and not A: a gauge, zero "
            "in expectation at the old policy, which usually comes from a k1 KL or an entropy bonus"
        )
    if here.flipped:
        return (
            f"at w = 1 the pull is {c:.6g} A: minimising this loss lowers the objective, which "
            "usually comes from a missing minus sign or from exp(old - new) for the ratio"
        )
    if here.outcome == "scale":
        return (
            f"at w = 1 the pull is {c:.6g} A and not A, which usually comes from a coefficient on "
            "the loss or from dividing by a constant"
        )
    a = np.array([1.0, -1.0])
    up, down = pull(np.zeros(2), a)
    return (
        f"at w = 1 the pull is {up:.4g} for A = 1 and {down:.4g} for A = -1, neither A, nor a "
        "multiple of it, nor A plus a constant, which usually comes from transforming advantages"
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
        yield _not_finite("gradient", float(x[first]), float(a[first]), "float64")
        return
    here = np.tile([True, False], (4, 3))  # not all alike: a loss may divide by their deviation
    for dtype, far in (("float64", 20.0), ("float32", 20.0), ("float64", 50.0)):
        for log_ratio in (far, -far):
            for advantage in (1.0, -1.0, 0.0):
                x, a = np.where(here, log_ratio, 0.0), np.where(here, advantage, 0.5)
                out = call(box, x, a, dtype=dtype)
                for what, values in (("gradient", out.gradient), ("value", out.value)):
                    if not np.all(np.isfinite(values)):
                        yield _not_finite(what, log_ratio, advantage, dtype)
                        return


def _not_finite(what: str, log_ratio: float, advantage: float, dtype: str) -> Finding:
    return Finding(
        "not-finite",
        f"the {what} is NaN or infinite at log w = {log_ratio:.4g}, A = {advantage:g} in {dtype}, "
        "which usually comes from exp overflowing, also in the branch of a where that is not "
        "taken: clamp its argument first.",
    )


def of_batch(mix: Coupling, reduction: Reduction, leak: str, normalises: bool) -> Iterator[Finding]:
    """What growing, mixing and masking batches shows about the loss."""
    if mix.across_batch or mix.within_sequence:
        what = "a sample's pull changes with the other samples of the batch"
        if not mix.across_batch:
            what = "a token's pull changes with the other tokens of its sequence"
        cause = "a ratio or weight that is shared by the batch"
        if mix.by_advantage:
            cause = "normalising advantages inside the loss"
            if normalises:
                cause += (
                    " (it was asked in batches of mean 0 and variance 1, where that is neutral)"
                )
        elif not mix.across_batch:
            cause = "a sequence-level ratio, as in GSPO and GMPO (it was asked one token at a time)"
        yield Finding("batch-dependent", f"{what}, which usually comes from {cause}.")
    if reduction.problem:
        yield Finding("reduction", f"the weights of samples {reduction.problem}.")
    if leak:
        yield Finding(
            "masked-gradient",
            f"{leak}, which usually comes from reducing before the mask is applied.",
        )
