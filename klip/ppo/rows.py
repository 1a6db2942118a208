"""A line of the metrics file: what one iteration of one run says about itself.

Where samples may be old, it has lists by age, `age.<name>`: the first entry is of samples of age 0,
and an age of which there were none has None.

    age.samples       the share of all samples          age.pull    the share of the gradient, of
    age.ess           effective sample size of w_b, as              sum |m| with the weights of age
                      a share of the age's samples                  and correction
    age.ratio_mean    of the ratio that the shape sees  age.behaviour_ratio    mean of w_b
    age.kl, age.inside, age.kill, age.pass, age.killed_mass, age.kept, age.zeroed, ...
                      as without `age.`, among the samples of that age

w_b is the new policy over the one that acted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from klip.ppo.diagnostics import (
    BY_SLOT,
    MASSES,
    NOT_RUN,
    SHARES,
    beta_quantiles,
    explained_variance,
)
from klip.ppo.member import PPOMember
from klip.ppo.replay import Learned
from klip.ppo.update import Outcome
from klip.theory.diagnostics import PARTS
from klip.theory.partition import mark_of

Metrics = dict[str, Any]


def row_of(run: PPOMember, data: Learned, outcome: Outcome, lr: float) -> Metrics:
    """One line of the metrics file.

    Args:
        run: as it was before this iteration
        data: what it learned from
        outcome: of the update
        lr: the step size of it

    """
    c = run.config
    returns = np.array([r for r, _ in run.returns])
    lengths = np.array([n for _, n in run.returns])
    metrics = jax.device_get(outcome.metrics)
    row: Metrics = {
        "iteration": run.iteration + 1,
        "step": (run.iteration + 1) * c.batch,
        "episodes": len(returns),
        "return_mean": float(returns.mean()) if returns.size else None,
        "return_iqm": _iqm(returns) if returns.size else None,
        "length_mean": float(lengths.mean()) if returns.size else None,
        "lr": lr,
    }
    sets = np.asarray(outcome.sets)
    ran = (sets.reshape(-1, c.batch)[:, 0] != NOT_RUN).tolist()
    row |= {
        k: [x if there else None for x, there in zip(v.tolist(), ran, strict=True)]
        if k.startswith("epoch.")
        else v.tolist()
        for k, v in metrics.items()
    }
    mark = mark_of(run.value.initial)
    row |= beta_quantiles(np.asarray(outcome.beta), sets, mark)
    there = slice(len(data.ages) * c.batch)
    row["explained_variance"] = explained_variance(
        np.asarray(data.batch.target)[there], np.asarray(data.batch.old_value)[there]
    )
    if outcome.by_slot is not None:
        sums = dict(zip(BY_SLOT, np.asarray(outcome.by_slot), strict=True))
        row |= by_age(sums, data.ages, mark, c.lag + c.replay)
    return row | {f"controller.{k}": float(v) for k, v in run.controller.items()}


def by_age(
    sums: Mapping[str, NDArray[Any]], ages: Sequence[int], mark: str, count: int
) -> dict[str, list[float | None]]:
    """What happened to samples of each age, as lists by age, None where there were none.

    Args:
        sums: over the samples of each rollout, `[replay]` each, as `klip.ppo.diagnostics` has them
        ages: of the samples of each rollout that is there
        mark: what the names of the three sets end with
        count: how many ages there may be

    Returns:
        lists `[count]` by name; only the names that `sums` has

    >>> sums = {name: np.array([4.0, 0.0]) for name in ("count", "pull", "weight", "square")}
    >>> by_age(sums, [1], "", 3)["age.samples"]
    [None, 1.0, None]

    """
    rows: dict[str, list[float | None]] = {}
    plain = {name: values.tolist() for name, values in sums.items()}  # NumPy is slow on so few
    whole = {name: max(sum(plain[name]), 1e-30) for name in ("count", "pull")}
    for age in sorted(set(ages)):
        slots = [slot for slot, each in enumerate(ages) if each == age]
        own = {name: sum(values[slot] for slot in slots) for name, values in plain.items()}
        if not own["count"]:
            continue
        for name, value in _of_one_age(own, whole, mark).items():
            rows.setdefault(f"age.{name}", [None] * count)[age] = value
    return rows


def _of_one_age(
    own: Mapping[str, float], whole: Mapping[str, float], mark: str
) -> dict[str, float]:
    n = own["count"]
    row = {"samples": n / whole["count"], "pull": own["pull"] / whole["pull"]}
    row["ess"] = own["weight"] ** 2 / max(n * own["square"], 1e-30)
    row["behaviour_ratio"] = own["weight"] / n
    means = {"ratio": "ratio_mean", "kl": "kl"} | {name: name for name in SHARES}
    row |= {_marked(k, mark): own[name] / n for name, k in means.items() if name in own}
    mass = max(own.get("mass", 0.0), 1e-30)
    return row | {_marked(name, mark): own[name] / mass for name in MASSES if name in own}


def _marked(name: str, mark: str) -> str:
    return name + mark if name in {*PARTS, "killed_mass"} else name


def _iqm(values: NDArray[Any]) -> float:
    """The mean of the middle half."""
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())
