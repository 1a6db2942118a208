"""The report's tables: final returns, the paper's Table 1, paired differences, knob sweeps.

In the paper's definitions: the final return is a run's mean over the last tenth of its steps; a
cell is mean and population deviation over seeds. Intervals are Student's, of 95 %.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klip.shapes.names import shape_of
from klip.studies.published import (
    PAPER,
    TASKS,
    TITLES,
    Published,
    algorithm,
    published_return,
    why_not_compared,
)
from klip.studies.scores import Estimate, Paired, Scores, Summary
from klip.studies.statistics import against_published, mean, paired_difference, summarise
from klip.studies.study import Study, Variant


@dataclass(frozen=True)
class FinalReturns:
    """A variant's final returns, over its seeds."""

    variant: Variant
    summary: Summary | None
    """None while no run has a score."""
    mean: Estimate | None
    published: Published | None
    difference: Estimate | None
    """Ours minus the published mean."""
    apart: str
    """Why nothing published stands beside it."""

    @property
    def open(self) -> int:
        """Runs that are not done and not diverged."""
        return len(self.variant.runs) - self.variant.count("done", "diverged")


@dataclass(frozen=True)
class Difference:
    """A variant minus another, seed by seed."""

    first: Variant
    second: Variant
    paired: Paired


@dataclass(frozen=True)
class Sweep:
    """Final returns of one shape against one of its parameters."""

    task: str
    shape: str
    knob: str
    about: str
    """Settings that are not the paper's."""
    points: tuple[tuple[float, FinalReturns], ...]
    """By the knob's value."""


def finals(study: Study) -> list[FinalReturns]:
    """Every variant's final returns."""
    return [_final(variant) for variant in study.variants]


def _final(variant: Variant) -> FinalReturns:
    apart = why_not_compared(variant.task, variant.shape, variant.settings)
    key = None if apart else algorithm(variant.shape)
    published = published_return(variant.task, key) if key else None
    scores = variant.scores
    if all(score is None for score in scores.values()):
        return FinalReturns(variant, None, None, published, None, apart)
    known = Scores.of(scores.values())
    difference = None
    if published is not None:
        difference = against_published(known, published.mean, published.std, published.n)
    return FinalReturns(variant, summarise(known), mean(known), published, difference, apart)


def table_1(rows: Sequence[FinalReturns]) -> dict[str, dict[str, FinalReturns]]:
    """The paper's table: by task and algorithm, what was run with the paper's config."""
    table: dict[str, dict[str, FinalReturns]] = {}
    for task in TASKS:
        cells = {
            key: row
            for row in rows
            if row.variant.task == task and not row.apart
            for key in [algorithm(row.variant.shape)]
            if key is not None
        }
        if cells:
            table[task] = {key: cells[key] for key in PAPER if key in cells}
    return table


def differences(study: Study) -> list[Difference]:
    """Each variant against a reference of the same task and settings: PPO-Clip if it is there."""
    compared = []
    groups: dict[tuple[str, str], list[Variant]] = defaultdict(list)
    for variant in study.variants:
        groups[variant.task, repr(sorted(variant.settings.items()))].append(variant)
    for members in groups.values():
        reference, *others = sorted(members, key=lambda v: v.shape != PAPER["ppo_clip"])
        for variant in others:
            first, second = variant.scores, reference.scores
            both = first.keys() & second.keys()
            if any(first[s] is not None and second[s] is not None for s in both):
                paired = paired_difference(first, second)
                compared.append(Difference(variant, reference, paired))
    return compared


def sweeps(rows: Sequence[FinalReturns]) -> list[Sweep]:
    """Shapes that were run with at least two values of one parameter, all else being equal."""
    groups: dict[tuple[str, str, str, str], list[tuple[float, FinalReturns]]] = defaultdict(list)
    for row in rows:
        shape = shape_of(row.variant.shape)
        if shape is None or row.mean is None:
            continue
        numbers = {k: v for k, v in shape.parameters.items() if isinstance(v, float)}
        for knob, value in numbers.items():
            rest = {k: str(v) for k, v in shape.parameters.items() if k != knob}
            alike = f"{sorted(rest.items())} {sorted(row.variant.settings.items())!r}"
            groups[row.variant.task, shape.name, knob, alike].append((value, row))
    swept = []
    for (task, name, knob, _), points in groups.items():
        if len({value for value, _ in points}) > 1:
            ordered = tuple(sorted(points, key=lambda point: point[0]))
            label = ordered[0][1].variant.label
            about = label.partition("), ")[2] if "), " in label else label.partition(", ")[2]
            swept.append(Sweep(task, name, knob, about, ordered))
    return swept


def records(rows: Sequence[FinalReturns], paired: Sequence[Difference]) -> list[dict[str, Any]]:
    """One flat record per variant, with all that the page's tables show: for CSV and LaTeX."""
    against = {id(d.first): d for d in paired}
    lines = []
    for row in rows:
        v, s, m, d = row.variant, row.summary, row.mean, against.get(id(row.variant))
        pair = d.paired.difference if d else None
        lines.append({
            "task": v.task, "shape": v.shape, "label": v.label, "runs": len(v.runs),
            "done": v.count("done"), "diverged": v.count("diverged"), "open": row.open,
            "seeds": s.n if s else 0,
            "mean": s.mean if s else None, "std": s.std if s else None,
            "sample_std": s.sample_std if s else None, "iqm": s.iqm if s else None,
            **ends("mean", m),
            "published_mean": row.published.mean if row.published else None,
            "published_std": row.published.std if row.published else None,
            "minus_published": row.difference.estimate if row.difference else None,
            **ends("minus_published", row.difference),
            "reference": d.second.label if d else None, "pairs": pair.n if pair else None,
            "minus_reference": pair.estimate if pair else None,
            **ends("minus_reference", pair),
            "identical": d.paired.identical if d else None,
            "not_compared": row.apart or None,
        })  # fmt: skip
    return lines


def ends(name: str, estimate: Estimate | None) -> Mapping[str, float | None]:
    """The ends of an interval under the names `<name>_low` and `<name>_high`."""
    low, high = (estimate.low, estimate.high) if estimate else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


# -- as files -------------------------------------------------------------------------------------


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Comma-separated, numbers in full."""
    file = io.StringIO()
    if records:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    return file.getvalue()


def as_latex(cells: Mapping[str, Mapping[str, FinalReturns]]) -> str:
    r"""Table 1 for a paper that uses booktabs: ours, and what was published below it."""
    heads = [TITLES[key].replace("β", r"$\beta$") for key in PAPER]
    lines = [
        "% Final return, mean ± population std over seeds, last tenth of training.",
        "% Ours, and below it what Colletti and Holzinger (2026) published, over 5 seeds.",
        r"\begin{tabular}{ll" + "r" * len(PAPER) + "}",
        r"\toprule",
        " & ".join(["Task", "", *heads]) + r" \\",
        r"\midrule",
    ]
    for task, row in cells.items():
        ours = [_cell(row[key].summary) if key in row else "--" for key in PAPER]
        counts = sorted({cell.summary.n for cell in row.values() if cell.summary is not None})
        seeds = (
            f" ($n = {'$ to $'.join(map(str, counts[:: len(counts) - 1 or 1]))}$)" if counts else ""
        )
        theirs = [_cell(published_return(task, key)) for key in PAPER]
        lines.append(" & ".join([latex(task.split("-")[0]), f"ours{seeds}", *ours]) + r" \\")
        lines.append(" & ".join(["", "paper", *theirs]) + r" \\")
    if not cells:
        lines.append(
            rf"\multicolumn{{{len(PAPER) + 2}}}{{l}}{{No finished runs of the paper's.}} \\"
        )
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def returns_as_latex(rows: Sequence[FinalReturns]) -> str:
    """Every variant's final return, a line each."""
    lines = [
        "% Final return: mean ± population std over seeds, and the 95 % Student t interval.",
        r"\begin{tabular}{llrrr}",
        r"\toprule",
        r"Task & Shape & Final return & 95\,\% interval & Seeds \\",
        r"\midrule",
    ]
    for row in rows:
        m = row.mean
        interval = "--"
        if m is not None and m.low is not None and m.high is not None:
            interval = f"$[{m.low:.0f}, {m.high:.0f}]$"
        names = [latex(row.variant.task), latex(row.variant.label)]
        seeds = str(row.summary.n if row.summary else 0)
        value = f"${m.estimate:.0f} \\pm {row.summary.std:.0f}$" if m and row.summary else "--"
        lines.append(" & ".join([*names, value, interval, seeds]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _cell(value: Summary | Published | None) -> str:
    if value is None:
        return "--"
    return rf"${value.mean:.0f} \pm {value.std:.0f}$"


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    sign: f"\\{sign}" for sign in "&%$#_{}"
}


def latex(text: str) -> str:
    r"""Text in which LaTeX sees no commands.

    >>> latex("a_b & 5%")
    'a\\_b \\& 5\\%'
    """
    return "".join(_SPECIAL.get(sign, sign) for sign in text)
