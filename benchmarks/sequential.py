"""Which interval may be looked at again and again, and how many seeds does an answer take?

    nice python benchmarks/sequential.py [--repetitions 10000] [--quick]

Two shapes get seeds, up to 60, and one looks where `klip compare` looks, until the interval of
the difference leaves 0 or lies within a margin. How often is "better or worse" said of equal means,
"equivalent" of means that are a margin apart, and does every look's interval hold the truth? And
how many seeds does an answer take? Writes `benchmarks/results/sequential.json` and prints tables:
two and a half minutes on one core.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from coverage import POINTS, populations
from rich.console import Console
from rich.table import Table
from scipy import stats

from klip.studies.bootstrap import Floats
from klip.studies.sequential import FIRST, LEVEL, looks, reach

ALPHA, MOST = 1 - LEVEL, 60
RESULTS = Path(__file__).parent / "results" / "sequential.json"
EFFECTS = (0.25, 0.5, 1.0, 2.0)  # deviations of one shape's scores
LOOK_RULES = {
    "klip": looks(MOST),
    "every seed": tuple(range(2, MOST + 1)),
    "half more": (6, 9, 14, 21, 32, 48, 60),
}

Row = dict[str, Any]
Reach = Callable[[Floats], Floats]
"""From the numbers of seeds at all looks to half widths, in units of s / sqrt(n)."""


class Case(NamedTuple):
    """Two populations of scores; the reference has a deviation of 1."""

    shape: str
    reference: str
    spread: float = 1.0
    """Deviation of the shape's scores."""

    @property
    def name(self) -> str:
        """As tables call it."""
        if self.shape == self.reference and self.spread == 1:
            return f"both {self.shape}"
        return f"{self.shape} x {self.spread:g} against {self.reference}"


ALIKE = tuple(Case(name, name) for name in ("normal", "lognormal", "bimodal", "student t3"))
UNLIKE = (
    Case("normal", "normal", 3.0),
    Case("lognormal", "normal"),
    Case("bimodal", "normal"),
    Case("lognormal", "normal", 3.0),
    Case("bimodal", "normal", 3.0),
)


# -- the contenders -------------------------------------------------------------------------------


def mixture(prior: float) -> Reach:
    """The t martingale with a normal prior of variance 1/prior."""
    return lambda n: reach(n, ALPHA, prior)


def repeated(n: Floats) -> Floats:
    """Student's interval, as if one looked once."""
    return np.asarray(stats.t.isf(ALPHA / 2, n - 1))


def spending(kind: str) -> Reach:
    """Lan and DeMets' alpha spending, like Pocock's or O'Brien and Fleming's, with t quantiles."""

    def reaches(n: Floats) -> Floats:
        z = bounds(tuple(n / n[-1]), kind)
        return np.asarray(stats.t.isf(stats.norm.sf(z), n - 1))

    return reaches


@functools.cache
def bounds(shares: tuple[float, ...], kind: str) -> Floats:
    """|Z| at which to stop at each share of the information: Armitage's recursion on a grid."""
    t = np.array(shares)
    if kind == "Pocock":
        spent = ALPHA * np.log(1 + (np.e - 1) * t)
    else:
        spent = 2 * stats.norm.sf(stats.norm.isf(ALPHA / 2) / np.sqrt(t))
    b = np.linspace(-6, 6, 2401)  # the score process, of variance t
    step, found, before = b[1] - b[0], [], 0.0
    density = None
    for k, share in enumerate(t):
        gap = np.sqrt(share - (t[k - 1] if k else 0.0))
        if density is None:
            density = stats.norm.pdf(b, scale=gap)
        else:
            density = stats.norm.pdf(b[:, None], b[None, :], gap) @ density * step
        size = np.abs(b)
        order = np.argsort(-size, kind="stable")
        outside = np.cumsum(density[order]) * step
        edge = size[order][np.searchsorted(outside, spent[k] - before)]
        density = np.where(size < edge, density, 0.0)
        before = spent[k]
        found.append(edge / np.sqrt(share))
    return np.array(found)


METHODS: dict[str, Reach] = {
    "martingale, c = 0.5": mixture(0.5),
    "martingale, c = 1": mixture(1.0),
    "martingale, c = 2": mixture(2.0),
    "martingale, c = 4": mixture(4.0),
    "martingale, c = 8": mixture(8.0),
    "alpha spending, Pocock": spending("Pocock"),
    "alpha spending, O'Brien-Fleming": spending("O'Brien-Fleming"),
    "Student at every look": repeated,
}
CHOSEN = "martingale, c = 2"


# -- experiments ----------------------------------------------------------------------------------


def draw(name: str, size: tuple[int, ...], generator: np.random.Generator) -> Floats:
    """Scores of a population, of mean 0 and a deviation of 1."""
    values = populations_once()[name]
    return np.asarray(values[generator.integers(POINTS, size=size)])


@functools.cache
def populations_once() -> dict[str, Floats]:
    """The populations of `coverage.py`, each less its mean."""
    return {name: values - values.mean() for name, values in populations().items()}


def pairs(case: Case, repetitions: int, stream: int) -> tuple[Floats, Floats]:
    """Scores `[repetitions, MOST]` of the shape and of its reference."""
    generator = np.random.Generator(np.random.Philox(key=np.array([stream, 18], dtype="u8")))
    size = (repetitions, MOST)
    shape = case.spread * draw(case.shape, size, generator)
    return shape, draw(case.reference, size, generator)


class Seen(NamedTuple):
    """What each look shows, `[repetitions, looks]`."""

    n: Floats
    middle: Floats
    error: Floats
    """s / sqrt(n)"""


def seen(differences: Floats, rule: str = "klip") -> Seen:
    """Mean and standard error of the first n differences, at every look."""
    n = np.arange(1, differences.shape[-1] + 1)
    total = np.cumsum(differences, axis=-1)
    squares = np.cumsum(differences**2, axis=-1)
    variance = np.maximum(squares - total**2 / n, 0.0) / np.maximum(n - 1, 1)
    at = np.array(LOOK_RULES[rule]) - 1
    error = np.sqrt(variance[:, at] / n[at])
    return Seen(n[at].astype(float), total[:, at] / n[at], error)


def stops(said: Any, n: Floats) -> tuple[Any, Any]:
    """The first look `[repetitions]` at which something was said, and whether anything was."""
    place = said.argmax(axis=-1)
    some = said.any(axis=-1)
    return np.where(some, n[place], n[-1]), some


def false_claims(repetitions: int) -> Iterator[Row]:
    """Equal means: how often "better or worse" is said by the last look, and what is covered."""
    for rule, (stream, case) in (
        (rule, numbered) for rule in LOOK_RULES for numbered in enumerate((*ALIKE, *UNLIKE))
    ):
        shape, reference = pairs(case, repetitions, stream)
        look = seen(shape - reference, rule)
        for method, reaches in METHODS.items():
            wrong = np.abs(look.middle) > reaches(look.n) * look.error
            yield {
                "looks": rule, "case": case.name, "method": method,
                "wrong": float(wrong.any(axis=-1).mean()),
            }  # fmt: skip


def false_equivalences(repetitions: int) -> Iterator[Row]:
    """Means exactly a margin apart: how often "equivalent" is said.

    The reference scores 20 deviations, the margin is 5 or 10 % of what its mean seems to be.
    """
    for stream, case in enumerate((*ALIKE, *UNLIKE)):
        for share in (0.05, 0.1):
            shape, reference = pairs(case, repetitions, 100 + stream)
            reference = reference + 20.0
            shape = shape + 20.0 * (1 - share)
            margin = share * seen(reference).middle
            look = seen(shape - reference)
            for method, reaches in METHODS.items():
                half = reaches(look.n) * look.error
                within = np.abs(look.middle) + half < margin
                apart = np.abs(look.middle) > half
                first, _ = stops(within | apart, look.n)
                said = (within & ~apart & (look.n == first[:, None])).any(axis=-1)
                yield {
                    "case": case.name, "margin": 20 * share, "method": method,
                    "wrong": float(said.mean()),
                }  # fmt: skip


def until_clear(repetitions: int) -> Iterator[Row]:
    """Seeds until an answer, for effects in deviations; 0 with a margin of 1 and of 2."""
    cases = [(case, effect, 0.0) for case in ALIKE for effect in EFFECTS]
    cases += [(case, 0.0, margin) for case in ALIKE for margin in (1.0, 2.0)]
    for stream, (case, effect, margin) in enumerate(cases):
        shape, reference = pairs(case, repetitions, 200 + stream)
        for rule in LOOK_RULES:
            look = seen(shape + effect - reference, rule)
            for method, reaches in METHODS.items():
                half = reaches(look.n) * look.error
                apart = np.abs(look.middle) > half
                within = np.abs(look.middle) + half < margin
                first, some = stops(apart | within, look.n)
                right = (apart & (look.middle > 0)) if effect else within
                at = look.n == first[:, None]
                yield {
                    "looks": rule, "case": case.name, "effect": effect, "margin": margin,
                    "method": method, "seeds": float(first.mean()), "answered": float(some.mean()),
                    "right": float((right & at).any(axis=-1)[some].mean()) if some.any() else 1.0,
                }  # fmt: skip


def families(repetitions: int) -> Iterator[Row]:
    """Five shapes against one reference at alpha / 5, and three tasks as strata: false claims."""
    for stream, case in enumerate(ALIKE):
        generator = np.random.Generator(np.random.Philox(key=np.array([stream, 300], dtype="u8")))
        arms = draw(case.shape, (repetitions, 6, MOST), generator)
        wrong = np.zeros(repetitions, bool)
        for arm in range(1, 6):
            look = seen(arms[:, arm] - arms[:, 0])
            wrong |= (np.abs(look.middle) > reach(look.n, ALPHA / 5) * look.error).any(axis=-1)
        tasks = draw(case.shape, (2, repetitions, 3, MOST), generator)
        tasks *= np.array([0.5, 1.0, 2.0])[:, None]  # scores of tasks scatter unequally
        look = seen((tasks[0] - tasks[1]).mean(axis=1))
        strata = (np.abs(look.middle) > reach(look.n, ALPHA) * look.error).any(axis=-1)
        yield {"case": case.name, "five pairs": float(wrong.mean()),
               "three tasks": float(strata.mean())}  # fmt: skip


# -- tables and record ----------------------------------------------------------------------------


def table(rows: list[Row], column: str, form: Callable[[Row], str], title: str) -> Table:
    """Methods down, `column` across."""
    shown = Table(title=title)
    shown.add_column("method")
    across = list(dict.fromkeys(row[column] for row in rows))
    for name in across:
        shown.add_column(str(name), justify="right")
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = {row[column]: form(row) for row in rows if row["method"] == method}
        shown.add_row(method, *(mine[name] for name in across))
    return shown


def write(record: dict[str, list[Row]], repetitions: int) -> None:
    """The record, a line per simulation."""
    parts = []
    for name, rows in record.items():
        short = [
            {k: round(x, 4) if isinstance(x, float) else x for k, x in r.items()} for r in rows
        ]
        parts.append(f'"{name}": [\n' + ",\n".join("  " + json.dumps(row) for row in short) + "\n]")
    head = f'"level": {LEVEL}, "chosen": "{CHOSEN}", "first": {FIRST}, "repetitions": {repetitions}'
    RESULTS.write_text(f"{{{head},\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Simulate, print the tables, and write the record."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--repetitions", type=int, default=10_000)
    options.add_argument("--quick", action="store_true", help="1000 repetitions; writes nothing")
    chosen = options.parse_args()
    began = time.perf_counter()
    n = 1000 if chosen.quick else chosen.repetitions
    record = {
        "false better or worse": list(false_claims(n)),
        "false equivalent": list(false_equivalences(n)),
        "until clear": list(until_clear(n)),
        "families": list(families(n)),
    }
    console = Console(width=170)
    for rule in LOOK_RULES:
        rows = [row for row in record["false better or worse"] if row["looks"] == rule]
        title = f"False better or worse, in per cent; looks: {rule}"
        console.print(table(rows, "case", lambda row: f"{100 * row['wrong']:.1f}", title))
    for margin in (1.0, 2.0):
        rows = [row for row in record["false equivalent"] if row["margin"] == margin]
        title = f"False equivalent, in per cent, at a margin of {margin:g} deviations"
        console.print(table(rows, "case", lambda row: f"{100 * row['wrong']:.1f}", title))
    for rule in LOOK_RULES:
        for case in ALIKE:
            rows = [row | {"what": f"{row['effect']:g}, margin {row['margin']:g}"}
                    for row in record["until clear"]
                    if row["case"] == case.name and row["looks"] == rule]  # fmt: skip
            title = f"Seeds until an answer (% answered by {MOST}); looks: {rule}; {case.name}"
            console.print(
                table(
                    rows, "what", lambda r: f"{r['seeds']:.1f} ({100 * r['answered']:.0f})", title
                )
            )
    for row in record["families"]:
        console.print(row)
    console.print(f"{time.perf_counter() - began:.0f} s")
    if not chosen.quick:
        write(record, n)


if __name__ == "__main__":
    main()
