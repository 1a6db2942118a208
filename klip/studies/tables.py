"""The report's tables: returns, the paper's Table 1, differences to a reference, knob sweeps.

In the paper's definitions: the final return is a run's mean over the last tenth of its steps; a
cell is mean and population deviation over seeds. Beside it stands the mean over all of training,
the area under the curve. Intervals are of 95 %: Student's of a mean, Welch's of a difference.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from klip.shapes.names import shape_of
from klip.studies.comparing import corrected
from klip.studies.methods import held_as_usual
from klip.studies.published import (
    PAPER,
    TASKS,
    TITLES,
    Published,
    algorithm,
    published_return,
    why_not_compared,
)
from klip.studies.scores import Estimate, Scores, Summary
from klip.studies.statistics import against_published, difference, mean, summarise
from klip.studies.study import Study, Variant

SAME: Final = "no width: the same at every seed"


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
    over_training: Estimate | None = None
    """The mean return over all of training: the area under the learning curve, per step."""

    @property
    def open(self) -> int:
        """Runs that are not done and not diverged."""
        return len(self.variant.runs) - self.variant.count("done", "diverged")


@dataclass(frozen=True)
class Difference:
    """A variant minus a reference; p-values are corrected for all comparisons of the study."""

    first: Variant
    second: Variant
    """The reference."""
    final: Estimate
    over_training: Estimate
    """Of the mean returns over all of training."""
    identical: bool
    """Whether the final returns are equal at every seed that both have."""


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
    apart_by = None
    if published is not None:
        apart_by = against_published(known, published.mean, published.std, published.n)
    over = mean(Scores.of(variant.over_training.values()))
    return FinalReturns(variant, summarise(known), mean(known), published, apart_by, apart, over)


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
    """Each variant against the reference of the same task and settings.

    How old samples are held is part of a method: where PPO-Clip was trained with samples as old and
    held as usual, it is also the reference of a PPO-Clip that holds them otherwise, and of shapes
    that have none of their own.

    The final returns of all comparisons in the study are one family of hypotheses, their means
    over training another. A shape whose runs are the reference's makes no claim, and none counts.
    """
    groups: dict[tuple[str, str], list[Variant]] = defaultdict(list)
    for variant in study.variants:
        groups[_alike(variant.task, variant.settings)].append(variant)
    best = {key: min(members, key=_fitness) for key, members in groups.items()}
    compared = []
    for key, members in groups.items():
        plain = best.get(_alike(key[0], held_as_usual(members[0].settings)))
        plain = plain if plain is not None and _is_clip(plain) and plain.scored else best[key]
        for v in members:
            reference = plain if v is best[key] or not _is_clip(best[key]) else best[key]
            if v is not reference and v.scored and reference.scored:
                compared.append(_difference(v, reference))
    finals = corrected([d.final for d in compared])
    over = corrected([d.over_training for d in compared])
    return [
        replace(d, final=final, over_training=all_along)
        for d, final, all_along in zip(compared, finals, over, strict=True)
    ]


def _alike(task: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    return task, repr(sorted(settings.items()))


def _fitness(variant: Variant) -> tuple[bool, bool]:
    """What a reference should be: PPO-Clip, else a shape that everybody knows; lowest is best."""
    return not _is_clip(variant), ":" in variant.shape


def _is_clip(variant: Variant) -> bool:
    return variant.shape == PAPER["ppo_clip"]


def _difference(variant: Variant, reference: Variant) -> Difference:
    final = _between(variant.scores, reference.scores)
    over = _between(variant.over_training, reference.over_training)
    return Difference(variant, reference, final, over, final.remark == SAME)


def _between(first: Mapping[int, float | None], second: Mapping[int, float | None]) -> Estimate:
    """The first minus the second; exactly 0 where they are equal at every seed that both have."""
    e = difference(Scores.of(first.values()), Scores.of(second.values()))
    both = first.keys() & second.keys()
    pairs = [s for s in both if first[s] is not None or second[s] is not None]
    if not pairs or any(first[s] != second[s] for s in pairs):
        return e
    n = len(pairs)
    return replace(e, estimate=0.0, low=0.0, high=0.0, n=n, against=n, remark=SAME, p=None)


def sweeps(rows: Sequence[FinalReturns]) -> list[Sweep]:
    """Shapes that were run with at least two values of one parameter, all else being equal."""
    groups: dict[tuple[str, str, str, str], list[tuple[float, FinalReturns]]] = defaultdict(list)
    for row in rows:
        shape = shape_of(row.variant.shape) or row.variant.portrait
        if shape is None or row.mean is None:
            continue
        numbers = {k: v for k, v in shape.parameters.items() if isinstance(v, float)}
        for knob, value in numbers.items():
            rest = {k: str(v) for k, v in shape.parameters.items() if k != knob}
            alike = rest, sorted(row.variant.settings.items()), row.variant.runs[0].code
            groups[row.variant.task, shape.name, knob, repr(alike)].append((value, row))
    swept = []
    for (task, name, knob, _), points in groups.items():
        if len({value for value, _ in points}) > 1:
            ordered = tuple(sorted(points, key=lambda point: point[0]))
            label = ordered[0][1].variant.label
            about = label.partition("), ")[2] if "), " in label else label.partition(", ")[2]
            swept.append(Sweep(task, name, knob, about, ordered))
    return swept


def records(rows: Sequence[FinalReturns], compared: Sequence[Difference]) -> list[dict[str, Any]]:
    """One flat record per variant, with all that the page's tables show: for CSV and JSON."""
    reference = {id(d.first): d for d in compared}
    lines = []
    for row in rows:
        v, s, m, d = row.variant, row.summary, row.mean, reference.get(id(row.variant))
        lines.append({
            "task": v.task, "shape": v.shape, "label": v.label, "runs": len(v.runs),
            "done": v.count("done"), "diverged": v.count("diverged"), "open": row.open,
            "seeds": s.n if s else 0,
            "mean": s.mean if s else None, "std": s.std if s else None,
            "sample_std": s.sample_std if s else None, "iqm": s.iqm if s else None,
            **ends("mean", m),
            "over_training": row.over_training.estimate if row.over_training else None,
            **ends("over_training", row.over_training),
            "published_mean": row.published.mean if row.published else None,
            "published_std": row.published.std if row.published else None,
            "minus_published": row.difference.estimate if row.difference else None,
            **ends("minus_published", row.difference),
            "reference": d.second.label if d else None,
            "identical": d.identical if d else None,
            "reference_seeds": d.final.against if d else None,
            "comparisons": d.final.family if d else None,
            **against("minus_reference", d.final if d else None),
            **against("over_training_minus_reference", d.over_training if d else None),
            "not_compared": row.apart or None,
        })  # fmt: skip
    return lines


def ends(name: str, estimate: Estimate | None) -> Mapping[str, float | None]:
    """The ends of an interval under the names `<name>_low` and `<name>_high`."""
    low, high = (estimate.low, estimate.high) if estimate else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def against(name: str, e: Estimate | None) -> Mapping[str, float | None]:
    """A difference under a name, its ends, and its p-value as it is and corrected."""
    p, p_holm = (e.p, e.p_holm) if e else (None, None)
    estimate = {name: e.estimate if e else None}
    return estimate | dict(ends(name, e)) | {f"{name}_p": p, f"{name}_p_holm": p_holm}


# -- as files -------------------------------------------------------------------------------------


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Comma-separated, numbers in full."""
    file = io.StringIO()
    if records:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    return file.getvalue()


def as_json(records: Sequence[Mapping[str, Any]]) -> str:
    """A list of objects, numbers in full."""
    return json.dumps(list(records), indent=1, allow_nan=False) + "\n"


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
        "% Final return: mean ± population std over seeds, and the 95 % Student t interval;",
        "% the same interval of the mean return over training, the area under the curve.",
        r"\begin{tabular}{llrrrrr}",
        r"\toprule",
        r"Task & Shape & Final return & 95\,\% & Over training & 95\,\% & Seeds \\",
        r"\midrule",
    ]
    for row in rows:
        m, over = row.mean, row.over_training
        names = [latex(row.variant.task), latex(row.variant.label)]
        seeds = str(row.summary.n if row.summary else 0)
        value = f"${m.estimate:.0f} \\pm {row.summary.std:.0f}$" if m and row.summary else "--"
        area = f"${over.estimate:.0f}$" if over else "--"
        cells = [*names, value, _interval(m), area, _interval(over), seeds]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _interval(e: Estimate | None) -> str:
    if e is None or e.low is None or e.high is None:
        return "--"
    return f"$[{e.low:.0f}, {e.high:.0f}]$"


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
