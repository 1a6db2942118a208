"""The vocabulary of diagnostics, defined once: what a trust region does to its samples.

    w = e^(log w)          surrogate = w A        mass = |w A|        beta = m - w A
    k1 = -log w            k3 = w - 1 - log w

Its fate is what the multiplier m does to a sample, whatever the shape:

    kept                   m = wA
    weakened               smaller than wA, of its sign
    zeroed                 m = 0
    reversed               m A < 0: it pulls the other way
    strengthened           larger than wA, or m without an advantage

Inside, kill and pass are the paper's partition by the shape's band. For PPO-Clip the zeroed are the
killed. A shape without a band is divided by a reference band, and the names say so: `kill@0.2`.

`Observed.of` looks at each sample, `totals` sums over samples, `merged` puts the sums of several
batches together, and `metrics` turns sums into fractions and means. The trainer, the token loss,
the token experiment and every adapter use these four, in NumPy, JAX or PyTorch, so a name means
the same everywhere, and a new diagnostic is a line in `totals` and one in `metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import array_api_compat
import numpy as np

from klip.shapes.backend import Array, absolute, maximum, namespace, ratio, sqrt, where
from klip.theory.partition import split

FATES: Final = ("kept", "weakened", "zeroed", "reversed", "strengthened")
"""What a multiplier does to a sample, in the order of `Observed.fate`."""

ROUNDING: Final = 1e-6
"""The share of |wA| up to which m counts as equal to wA, or to 0."""

PARTS: Final = ("inside", "kill", "pass")
"""The three sets of the partition, in the order of `Observed.part`."""

QUANTILES: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99)
"""The quantiles that are kept of beta and of the ratio, in percent."""

QUANTILE_LABELS: Final = tuple(f"p{q:02d}" for q in QUANTILES)
"""How each of `QUANTILES` is written in a name: `beta_p05`."""

EXTREMES: Final = {"ratio_max": "max", "ratio_min": "min"}
"""The totals that are not sums, and the function that makes each and merges batches."""

EMPTY: Final = {"ratio_max": 0.0, "ratio_min": float("inf")}
"""The extremes over no samples."""

_MEANS = ("surrogate", "ratio_deviation", "k1", "k3")
_SIGNS = ("positive", "negative", "zero")


class Observed(NamedTuple):
    """What a trust region does to each sample; every field is an array of the samples' shape."""

    log_ratio: Array
    advantage: Array
    m: Array
    """the multiplier that the sample was trained with"""
    ratio: Array
    """w"""
    surrogate: Array
    """w A: the multiplier without a trust region"""
    beta: Array
    """m - w A, and exactly 0 where the two are equal"""
    inside: Array
    kill: Array
    passing: Array

    @staticmethod
    def of(
        log_ratio: Array,
        advantage: Array,
        m: Array,
        edges: tuple[Array, Array],
        kept: Array | None = None,
    ) -> Observed:
        """What multipliers `m` do to samples whose band is `edges`, ratios (1 - low, 1 + high).

        `kept` is False where a sample was dropped before the shape saw it: it counts as killed.

        >>> l = np.log(np.array([1.1, 1.5, 0.5]))
        >>> clip = Observed.of(l, np.ones(3), np.array([1.1, 0.0, 0.5]), (0.8, 1.2))
        >>> [PARTS[i] for i in clip.part], clip.beta.round(2).tolist()
        (['inside', 'kill', 'pass'], [0.0, -1.5, 0.0])
        """
        w = ratio(log_ratio)
        surrogate = w * advantage
        # A compiler may fuse m - w*A and leave its rounding error; where they are equal beta is 0.
        beta = where(m == surrogate, 0.0, m - surrogate)
        inside, kill, passing = split(w, advantage, *edges)
        if kept is not None:
            kill, passing = kill | ~kept, passing & kept
            inside = ~(kill | passing)
        advantage = namespace(w).broadcast_to(advantage, w.shape)
        return Observed(log_ratio, advantage, m, w, surrogate, beta, inside, kill, passing)

    @property
    def fate(self) -> Array:
        """What m does to each sample as its index in `FATES`, int8.

        >>> m = np.array([1.5, 1.0, 0.0, -0.5, 2.0])
        >>> samples = Observed.of(np.full(5, np.log(1.5)), np.ones(5), m, (0.8, 1.2))
        >>> [FATES[i] for i in samples.fate]
        ['kept', 'weakened', 'zeroed', 'reversed', 'strengthened']
        """
        return fate(self.surrogate, self.m)

    @property
    def part(self) -> Array:
        """The set of each sample as its index in `PARTS`, int8."""
        xp = namespace(self.kill)
        return xp.astype(self.kill, xp.int8) + 2 * xp.astype(self.passing, xp.int8)

    def at(self, places: Array) -> Observed:
        """The samples at these indices of the flattened arrays, `[n]`."""
        return Observed(*(row.reshape(-1)[places] for row in self))


def fate(surrogate: Array, m: Array) -> Array:
    """What multipliers `m` do to samples with this w A, as indices in `FATES`, int8."""
    xp = namespace(m)
    size, near = absolute(surrogate), ROUNDING * absolute(surrogate)
    against = ((m > 0) & (surrogate < 0)) | ((m < 0) & (surrogate > 0))
    index = xp.where(absolute(m) < size, 1, 4)
    index = xp.where(against, 3, index)
    index = xp.where(absolute(m) <= near, 2, index)
    return xp.astype(xp.where(absolute(m - surrogate) <= near, 0, index), xp.int8)


def totals(observed: Observed, active: Array | None = None) -> dict[str, Array]:
    """Sums over the samples (those that are `active`, if given), and the extremes of the ratio.

    >>> l = np.log(np.array([1.1, 1.5, 9.9]))
    >>> clip = Observed.of(l, np.ones(3), np.array([1.1, 0.0, 0.0]), (0.8, 1.2))
    >>> sums = totals(clip, active=np.array([True, True, False]))
    >>> [round(float(sums[name]), 3) for name in ("count", "kill_positive", "mass", "ratio_max")]
    [2.0, 1.0, 2.6, 1.5]
    """
    log_ratio, advantage, m, w, surrogate, _, inside, kill, passing = observed
    xp = namespace(w)
    positive, negative = advantage > 0, advantage < 0
    mass = absolute(surrogate)

    def count(mask: Array) -> Array:
        return xp.sum(mask if active is None else mask & active, dtype=w.dtype)

    def total(values: Array) -> Array:
        return xp.sum(values if active is None else where(active, values, 0.0))

    def extreme(name: str) -> Array:
        values = w if active is None else where(active, w, EMPTY[name])
        return getattr(xp, EXTREMES[name])(values)

    if active is None:
        number = xp.asarray(float(array_api_compat.size(w)), dtype=w.dtype)
    else:
        number = xp.sum(active, dtype=w.dtype)
    return {
        "count": number,
        "inside_positive": count(inside & positive),
        "inside_negative": count(inside & negative),
        "inside_zero": count(inside & ~positive & ~negative),
        "kill_positive": count(kill & positive),
        "kill_negative": count(kill & negative),
        "pass_positive": count(passing & positive),
        "pass_negative": count(passing & negative),
        "mass": total(mass),
        "killed_mass": total(where(kill, mass, 0.0)),
        "pulled_mass": total(absolute(m)),
        "surrogate": total(surrogate),
        "ratio": total(w),
        "ratio_square": total(w * w),
        "ratio_deviation": total(absolute(w - 1)),
        "ratio_max": extreme("ratio_max"),
        "ratio_min": extreme("ratio_min"),
        "k1": -total(log_ratio),
        "k3": total(w - 1 - log_ratio),
        **_by_fate(observed.fate if active is None else where(active, observed.fate, -1), observed),
    }


def _by_fate(fates: Array, observed: Observed) -> dict[str, Array]:
    """For each of `FATES` its samples, those of either sign of the advantage, and their mass."""
    w, advantage = observed.ratio, observed.advantage
    xp = namespace(w)
    chosen = xp.stack([fates == i for i in range(len(FATES))])
    rows = {
        "": xp.astype(chosen, w.dtype),
        "_positive": xp.astype(chosen & (advantage > 0), w.dtype),
        "_negative": xp.astype(chosen & (advantage < 0), w.dtype),
        "_mass": where(chosen, absolute(observed.surrogate), 0.0),
    }
    samples = tuple(range(1, chosen.ndim))
    sums = {end: xp.sum(row, axis=samples) for end, row in rows.items()}
    return {name + end: row[i] for end, row in sums.items() for i, name in enumerate(FATES)}


def merged(stacked: Mapping[str, Array]) -> dict[str, Array]:
    """The totals of several batches as those of one; batches are stacked along the first axis.

    >>> merged({"count": np.array([1.0, 2.0]), "ratio_max": np.array([1.5, 1.2])})
    {'count': np.float64(3.0), 'ratio_max': np.float64(1.5)}
    """
    return {
        name: getattr(namespace(values), EXTREMES.get(name, "sum"))(values, axis=0)
        for name, values in stacked.items()
    }


def metrics(sums: Mapping[str, Array], mark: str = "") -> dict[str, Array]:
    """Fractions of the samples and means over them, by name, from the sums of `totals`.

    Each of `FATES` and of `PARTS` is a fraction, also of the samples of one sign of the advantage
    (`zeroed_positive`, `kill_positive`). `zeroed_mass` is the share of sum |wA| that the zeroed
    samples have, and `killed_mass` that of the killed; `pull` is sum |m| / sum |wA|. `k1`, `k3`,
    `surrogate` and `ratio_deviation` (|w - 1|) are means. The names of the three sets end with
    `mark` (`klip.theory.partition.mark_of`).

    >>> l = np.log(np.array([1.1, 1.5]))
    >>> clip = Observed.of(l, np.ones(2), np.array([1.1, 0.0]), (0.8, 1.2))
    >>> row = metrics(totals(clip))
    >>> [round(float(row[name]), 3) for name in ("kill", "killed_mass", "pull", "ratio_mean")]
    [0.5, 0.577, 0.423, 1.3]
    """
    count = sums["count"]
    row = {name: sums[name] / count for name in _MEANS}
    for part in PARTS:
        named = [f"{part}_{sign}" for sign in _SIGNS if f"{part}_{sign}" in sums]
        row |= {name + mark: sums[name] / count for name in named}
        row[part + mark] = sum(sums[name] for name in named) / count
    for name in FATES:
        row |= {key: sums[key] / count for key in (name, f"{name}_positive", f"{name}_negative")}
    mean = sums["ratio"] / count
    variance = maximum(sums["ratio_square"] / count - mean * mean, 0.0)
    row |= {"ratio_mean": mean, "ratio_std": sqrt(variance)}
    row |= {name: sums[name] for name in EXTREMES}
    whole = maximum(sums["mass"], 1e-30)
    row |= {f"{name}_mass": sums[f"{name}_mass"] / whole for name in FATES}
    row["killed_mass" + mark] = sums["killed_mass"] / whole
    return row | {"pull": sums["pulled_mass"] / whole}


def quantiles(values: Array) -> list[float] | None:
    """The `QUANTILES` of an array, computed on the host; None if it is empty.

    >>> quantiles(np.arange(101.0))
    [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0]
    """
    host: Any = values.detach().cpu() if hasattr(values, "detach") else values
    array = np.asarray(host)
    return [float(q) for q in np.percentile(array, QUANTILES)] if array.size else None
