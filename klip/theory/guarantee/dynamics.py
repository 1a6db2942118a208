"""What a shape's inner loop does to small MDPs: tabular, and with parameters that states share."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from klip.shapes import Shape
from klip.theory.guarantee.law import Law
from klip.theory.guarantee.mdps import (
    MDPs,
    certified,
    change,
    random_mdps,
    surrogate,
    variation,
)
from klip.theory.guarantee.verdict import Verdict
from klip.theory.views import Floats

CLAIM: Final = "dynamics"
TABULAR, SHARED = 60, 120
"""How many MDPs of each kind the suite has."""
RATES: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
LENGTHS: Final = (10, 100, 1000)
LIMIT: Final = 40.0
"""Log-probabilities are kept within this of one another: an action may vanish, not be infinite."""
FELL: Final = 1e-9


@functools.cache
def suites(seed: int) -> dict[str, MDPs]:
    """The two suites of a seed."""
    rng = np.random.default_rng(seed)
    return {
        "tabular": random_mdps(rng, TABULAR, shared=False),
        "shared": random_mdps(rng, SHARED, shared=True),
    }


def dynamics(shape: Shape, seed: int = 0) -> Verdict:
    """The suites under the shape's inner loop: returns, ratios, and the largest safe rate.

    >>> from klip.shapes import Clip
    >>> dynamics(Clip()).figures["tabular"]["largest safe rate"]
    100.0
    """
    law = Law(shape)
    with np.errstate(all="ignore"):
        figures = {name: _measured(law, suite) for name, suite in suites(seed).items()}
    words = "; ".join(f"{name}, {_said(row)}" for name, row in figures.items())
    return Verdict(CLAIM, "measured", words, figures=figures)


def _said(row: Mapping[str, Any]) -> str:
    """A suite's figures in a line, those after each number of steps side by side."""

    def each(name: str, form: str = ".3g") -> str:
        return " / ".join(f"{x:{form}}" for x in row[name])

    rate = row["largest safe rate"]
    return (
        f"after {' / '.join(map(str, LENGTHS))} steps of rate 1: {each('fell', '.0%')} of "
        f"{row['count']} fell (worst {each('worst', '+.3g')}, mean {each('mean', '+.3g')}), "
        f"largest ratio {each('largest ratio')}, TV {each('variation')}, KL {each('kl')}, "
        f"certified by Achiam's bound {each('certified', '.0%')}, "
        + ("no rate is safe" if rate is None else f"safe to rate {rate:g}")
    )


def _measured(law: Law, suite: MDPs) -> dict[str, Any]:
    """What came out after each of `LENGTHS`, and the largest rate at which no return falls."""
    rows = [_figures(suite, policy) for policy in run(law, suite, np.array([1.0]), LENGTHS)]
    return {
        "count": len(suite),
        **{name: [row[name] for row in rows] for name in rows[0]},
        "largest safe rate": _safe_rate(law, suite),
    }


def _figures(suite: MDPs, policies: Floats) -> dict[str, float]:
    policy = policies[0]
    moved = change(suite, policy)
    w = policy / suite.old
    kl = -(suite.old * np.log(np.maximum(w, 1e-30))).sum(axis=-1)
    whole = np.isfinite(moved)
    return {
        "fell": float((~whole | (moved < -FELL)).mean()),
        "worst": _round(moved[whole].min()) if whole.any() else float("-inf"),
        "mean": _round(moved[whole].mean()) if whole.any() else float("-inf"),
        "largest ratio": _round(np.nanmax(w)),
        "variation": _round(np.nanmax(variation(suite, policy))),
        "kl": _round(np.nanmax(kl)),
        "certified": _round(certified(suite, policy).mean()),
        "surrogate fell": float((surrogate(suite, policy) < -FELL).mean()),
    }


def _round(x: Any) -> float:
    return float(f"{float(x):.6g}")


def _safe_rate(law: Law, suite: MDPs) -> float | None:
    """The largest rate of `RATES` with no return down after 100 steps, at it or at any below."""
    (policies,) = run(law, suite, np.array(RATES), (100,))
    down = ~(change(suite, policies) >= -FELL)
    broken = down.any(axis=1)
    first = int(np.argmax(broken)) if broken.any() else len(RATES)
    return None if first == 0 else RATES[first - 1]


def run(law: Law, suite: MDPs, rates: Floats, lengths: tuple[int, ...]) -> list[Floats]:
    """The policies `[rate, N, S, A]` after each number of steps of ascent at each rate.

    Tabular: exponentiated gradient in every state, logits + rate m/w. Shared: the gradient of the
    mean over old visits, theta + rate sum d p m (features - their mean).
    """
    rate = rates[:, None, None, None]
    log_w = np.zeros((len(rates), *suite.old.shape))
    kept, made = set(lengths), []
    theta = (
        None
        if suite.features is None
        else np.zeros((len(rates), len(suite), suite.features.shape[-1]))
    )
    weight = suite.visits[..., None] * suite.old
    for step in range(1, max(lengths) + 1):
        m = law.of_actions(log_w, suite.advantages, suite.old)
        if suite.features is None or theta is None:
            log_w = log_w + rate * m * np.exp(-np.clip(log_w, -20, 20))
        else:
            push = weight * m
            inner = push - suite.old * np.exp(log_w) * push.sum(axis=-1, keepdims=True)
            theta = theta + rates[:, None, None] * np.einsum(
                "rnsa,nsad->rnd", inner, suite.features
            )
            log_w = np.einsum("nsad,rnd->rnsa", suite.features, theta)
        log_w = _normalised(log_w, suite.old)
        if step in kept:
            made.append(suite.old * np.exp(log_w))
    return made


def _normalised(log_w: Floats, old: Floats) -> Floats:
    """Log-ratios whose probabilities sum to one again, none of them further down than `LIMIT`."""
    log_w = np.maximum(log_w - log_w.max(axis=-1, keepdims=True), -LIMIT)
    return np.asarray(log_w - np.log((old * np.exp(log_w)).sum(axis=-1, keepdims=True)))
