"""A search for an MDP with shared parameters on which a shape's inner loop lowers the return.

Chains of hill climbing mutate MDPs; the score is the change of the return per total variation,
since the plain change stalls. They begin at MDPs that defeat the unconstrained surrogate. Not
finding one says "no counterexample in N", and nothing more.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from klip.errors import KlipError
from klip.shapes import ImportanceSampling, Shape
from klip.theory.guarantee import recheck
from klip.theory.guarantee.dynamics import run
from klip.theory.guarantee.law import Law
from klip.theory.guarantee.mdps import (
    ACTIONS,
    SHARED,
    STATES,
    MDPs,
    change,
    of_fields,
    solved,
    surrogate,
    to_fields,
    variation,
)
from klip.theory.guarantee.verdict import Verdict
from klip.theory.views import Floats

CLAIM: Final = "adversary"
FORMAT: Final = "klip guarantee 1"
CHAINS, MUTATIONS, WARMUP = 64, 70, 60
RATE, STEPS = 0.2, 25
"""The inner loop that the adversary plays against."""
SIZES: Final = (0.1, 0.3, 1.0)
LIMITS: Final = (6.0, 6.0, 4.0, 2.0)
"""How large logits of transitions, rewards, logits of the policy and features may grow: with large
features any rate is a large one, and the adversary would only find that."""
FELL: Final = 1e-6
LARGEST: Final = 1_000_000
"""A file of more bytes is no counterexample of Klip's."""


@dataclass(frozen=True)
class _Genes:
    """What is mutated: transitions by their logits, rewards, the policy's logits, features."""

    arrays: tuple[Floats, Floats, Floats, Floats]

    def mdps(self) -> MDPs:
        moves, rewards, logits, features = self.arrays
        e = np.exp(moves - moves.max(axis=-1, keepdims=True))
        return solved(e / e.sum(axis=-1, keepdims=True), rewards, logits, features)

    def mutated(self, rng: np.random.Generator) -> _Genes:
        size = rng.choice(SIZES, size=CHAINS)
        which = rng.integers(4, size=CHAINS)
        made = []
        for i, array in enumerate(self.arrays):
            scale = np.where(which == i, size, 0.0).reshape(-1, *[1] * (array.ndim - 1))
            made.append(
                np.clip(array + scale * rng.normal(size=array.shape), -LIMITS[i], LIMITS[i])
            )
        return _Genes((made[0], made[1], made[2], made[3]))

    def where(self, better: NDArray[np.bool_], other: _Genes) -> _Genes:
        def chosen(ours: Floats, theirs: Floats) -> Floats:
            return np.where(better.reshape(-1, *[1] * (ours.ndim - 1)), theirs, ours)

        a = [chosen(*pair) for pair in zip(self.arrays, other.arrays, strict=True)]
        return _Genes((a[0], a[1], a[2], a[3]))


def adversary(shape: Shape, seed: int = 0) -> tuple[Verdict, dict[str, Any] | None]:
    """The verdict of the search, and the counterexample as plain data if it found one.

    The counterexample is the MDP of the lowest score whose return falls when it is computed again.
    """
    law = Law(shape)
    with np.errstate(all="ignore"):
        genes, score = _climbed(law, _start(seed), np.random.default_rng([seed, 1]), MUTATIONS)
        mdps = genes.mdps()
        (policies,) = run(law, mdps, np.array([RATE]), (STEPS,))
    looked = CHAINS * (MUTATIONS + 1)
    moved, raised = change(mdps, policies)[0], surrogate(mdps, policies)[0]
    for i in np.argsort(score):
        if not moved[i] < -FELL:
            continue
        found: dict[str, Any] = {
            "format": FORMAT, "shape": str(shape), "rate": RATE, "steps": STEPS,
            "change": _round(moved[i]), "surrogate": _round(raised[i]),
            "mdp": to_fields(mdps, int(i)),
        }  # fmt: skip
        checked = recheck.fallen(shape, found["mdp"], float(moved[i]), RATE, STEPS)
        if not checked:
            continue
        cause = "rose: the states moved" if raised[i] > 0 else "fell too"
        words = (
            f"an MDP of {STATES} states with shared parameters: after {STEPS} steps of rate "
            f"{RATE:g} the return moved by {moved[i]:+.3g}; the surrogate {cause} "
            f"({raised[i]:+.3g}); {looked:,} MDPs were tried"
        )
        figures = {"tried": looked, "change": found["change"], "surrogate": found["surrogate"]}
        return Verdict(CLAIM, "refuted", words, checked=checked, figures=figures), found
    words = f"no counterexample in {looked:,} MDPs"
    return Verdict(CLAIM, "measured", words, figures={"tried": looked}), None


def _round(x: Any) -> float:
    return float(f"{float(x):.9g}")


def _climbed(
    law: Law, genes: _Genes, rng: np.random.Generator, mutations: int
) -> tuple[_Genes, Floats]:
    score = _score(law, genes)
    for _ in range(mutations):
        other = genes.mutated(rng)
        rival = _score(law, other)
        better = rival < score
        genes, score = genes.where(better, other), np.where(better, rival, score)
    return genes, score


def _score(law: Law, genes: _Genes) -> Floats:
    mdps = genes.mdps()
    (policies,) = run(law, mdps, np.array([RATE]), (STEPS,))
    moved = change(mdps, policies)[0]
    away = (mdps.visits * variation(mdps, policies)[0]).sum(axis=-1)
    return np.asarray(np.where(np.isfinite(moved), moved / (away + 0.02), np.inf))


@functools.cache
def _start(seed: int) -> _Genes:
    """MDPs that defeat the unconstrained surrogate, by the same search."""
    rng = np.random.default_rng([seed, 0])
    shape = (CHAINS, STATES, ACTIONS)
    genes = _Genes((
        rng.normal(size=(*shape, STATES), scale=2.0), rng.normal(size=shape),
        rng.normal(size=shape), rng.normal(size=(*shape, SHARED)),
    ))  # fmt: skip
    return _climbed(Law(ImportanceSampling()), genes, rng, WARMUP)[0]


# -- a counterexample on disk ----------------------------------------------------------------------


@dataclass(frozen=True)
class Replay:
    """A counterexample, played again."""

    shape: str
    rate: float
    steps: int
    kept: float
    """The change of the return that the file says."""
    change: float
    """The change that this Klip computes."""
    surrogate: float
    variation: float
    """The mean total variation over old visits."""


def read(data: bytes) -> dict[str, Any]:
    """The counterexample in a file; raises `KlipError`, saying why, for anything else."""
    try:
        about = json.loads(data) if len(data) <= LARGEST else None
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise KlipError("it is not a counterexample of `klip guarantee --keep`")
    numbers = [about.get(name) for name in ("rate", "steps", "change")]
    plain = all(isinstance(x, (int, float)) and abs(x) < 1e300 for x in numbers)
    if not plain or not isinstance(about.get("shape"), str) or not 0 < about["steps"] <= 10_000:
        raise KlipError("it lacks its shape, rate, steps (1 to 10,000) or change")
    return about


def replayed(about: Mapping[str, Any], shape: Shape) -> Replay:
    """The counterexample under `shape`, computed anew."""
    mdps = of_fields(about["mdp"] if isinstance(about.get("mdp"), dict) else {})
    rates, steps = np.array([float(about["rate"])]), int(about["steps"])
    (policies,) = run(Law(shape), mdps, rates, (steps,))
    away = (mdps.visits * variation(mdps, policies)[0]).sum(axis=-1)
    return Replay(
        str(shape), float(about["rate"]), steps, float(about["change"]),
        _round(change(mdps, policies)[0, 0]), _round(surrogate(mdps, policies)[0, 0]),
        _round(away[0]),
    )  # fmt: skip
