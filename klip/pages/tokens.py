"""The page of a token experiment: one HTML file that needs nothing else.

It is made of the report's parts; what it says in words follows from the numbers, and from how sure
they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from klip.draw.arms import arm_looks
from klip.draw.panel import Picture
from klip.pages.reading import Shown, of_frame
from klip.pages.template import page
from klip.pages.words import around_zero, marks, percent, reach, span, verdict
from klip.runs.kept import kept_frame
from klip.studies.arms import ArmFindings, GroupFindings, TokenFindings, shown_runs, start
from klip.studies.study import Run, plain

_OWN: Final = frozenset({
    "group", "arm", "shape", "code", "seed", "place", "against", "task", "envs", "rollout", "steps",
    "warmup", "kind",
})  # fmt: skip
"""Config fields that the page shows elsewhere."""

VERDICTS: Final = {1.0: "right", 0.0: "wrong"}
"""What the lab's rewards mean."""


def render(
    findings: TokenFindings,
    pictures: Mapping[str, Mapping[str, Picture]],
    refresh: float | None = None,
) -> str:
    """The page's HTML; with `refresh`, it loads itself again after that many seconds."""
    runs = findings.study.runs
    done = [run for arm in findings.arms for run in arm.ended]
    starts = [start(run) for run in done]
    names = {run.id: arm.name for arm in findings.arms for run in arm.runs}
    context = {
        "groups": [_group(group, pictures[group.name]) for group in findings.groups],
        "counts": Counter(run.status for run in runs),
        "runs": runs,
        "starts": (min(starts), max(starts)) if starts else None,
        "seeds": sorted({run.seed for run in done}),
        "family": findings.comparisons,
        "collapsed": sum(arm.collapsed for arm in findings.arms),
        "settings": settings(runs),
        "machines": sorted({_machine(machine) for run in runs for machine in run.machines}),
        "kept": [_samples(names[run.id], run).data for run in shown_runs(findings.study)],
        "troubled": [run for run in runs if run.status != "done"],
        "noted": [run for run in runs if run.notes],
        "trouble": findings.study.trouble,
    }
    every = [picture for kinds in pictures.values() for picture in kinds.values()]
    return page("tokens.html", every, context, refresh, ("tokens.css", "tokens.js"))


def conclusion(group: GroupFindings) -> list[str]:
    """What the intervals of a group allow one to say, in sentences."""
    first, *others = group.rows
    if not first.arm.ended:
        return []
    compared = [(row.arm.name, row.difference) for row in others]

    def those(wanted: str) -> str:
        known = [(name, e) for name, e in compared if e is not None and verdict(e) == wanted]
        return "; ".join(f"“{name}” ({reach(e)})" for name, e in known)

    end, begin = first.final, first.start
    lines = [
        f"“{first.arm.name}” ends at {percent(end.estimate if end else None)} {span(end)} held-out "
        f"accuracy, from {percent(begin.estimate if begin else None)} after the warm-up."
    ]
    for shown in ("higher", "lower"):
        if named := those(shown):
            lines.append(f"Shown to end {shown} than it, in points: {named}.")
    if left := those("open"):
        lines.append(f"Not told apart from it by these seeds: {left}.")
    if missing := "; ".join(f"“{name}”" for name, e in compared if e is None):
        lines.append(f"Without a seed that is done in both: {missing}.")
    for pair in group.matched:
        shown = verdict(pair.final)
        is_so = "not told apart from" if shown == "open" else f"{shown} than"
        lines.append(
            f"“{pair.arm.name}” is {is_so} “{pair.other.name}”: {reach(pair.final)} points of "
            f"accuracy, with a share of zeroed tokens that differs by {reach(pair.zeroed)} points."
        )
    return lines


def settings(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """What all runs share, by name, as a person writes it."""
    configs = [run.config for run in runs]
    shared = {
        name: value
        for name, value in configs[0].items()
        if name not in _OWN and all(config.get(name) == value for config in configs)
    }
    warmup = configs[0].get("warmup") or {}
    shared |= {f"warm-up {name}": value for name, value in warmup.items() if name != "seed"}
    return [(name.replace("_", " "), plain(value)) for name, value in sorted(shared.items())]


def _group(group: GroupFindings, pictures: Mapping[str, Picture]) -> dict[str, Any]:
    """All that is shown of arms that are compared with each other."""
    largest = max(group.age_shares, default=1.0)
    return {
        "name": group.name,
        "first": group.arms[0],
        "says": conclusion(group),
        "rows": _rows(group.rows),
        "matched": group.matched,
        "looks": arm_looks(group),
        "picture": pictures.get,
        "ages": [
            {"age": age, "share": share, "width": 100 * share / largest}
            for age, share in enumerate(group.age_shares)
        ],
    }


def _rows(rows: Sequence[ArmFindings]) -> list[dict[str, Any]]:
    finals = marks([row.final for row in rows], (0.0, 1.0))
    apart = around_zero([row.difference for row in rows])
    return [
        {"of": row, "arm": row.arm, "final": final, "apart": difference}
        for row, final, difference in zip(rows, finals, apart, strict=True)
    ]


def kept_tokens(findings: TokenFindings) -> pl.DataFrame | None:
    """The tokens that the page shows, with the arm and the seed of each; None if there are none."""
    runs = [run for run in shown_runs(findings.study) if run.samples]
    names = {run.id: arm.name for arm in findings.arms for run in arm.runs}
    frames = [
        _kept(run).select(pl.lit(names[run.id]).alias("arm"), pl.lit(run.seed).alias("seed"), "*")
        for run in runs
    ]
    return pl.concat(frames) if frames else None


def _kept(run: Run) -> pl.DataFrame:
    return kept_frame(run.samples, run.shape, int(run.config.get("shown", 0)))


def _samples(arm: str, run: Run) -> Shown:
    frame = _kept(run)
    steps = frame["step"].unique().to_list()
    when = f", iteration {steps[0]}" if len(steps) == 1 else ""
    return of_frame(frame, arm, f"seed {run.seed}{when}, {run.shape}", VERDICTS)


def _machine(machine: Mapping[str, Any]) -> str:
    about = {k: v for k, v in sorted(machine.items()) if k not in ("since", "cpu")}
    names = ", ".join(f"{name} {value}" for name, value in about.items())
    return f"{names}; on {machine.get('cpu', 'an unknown processor')}"
