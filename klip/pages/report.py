"""The report as one HTML page that needs nothing else: no network, no folder beside it.

    Findings and pictures ──> context ── templates ──> report.html

Pictures come before tables: the first screen shows who won, and how sure that is.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from klip.draw.lines import main_labels, shown_at_first
from klip.draw.palette import looks
from klip.draw.panel import Picture
from klip.pages import step_sizes, words
from klip.pages.cards import cards
from klip.pages.template import page
from klip.studies.across import Across, PooledShape
from klip.studies.ages import how_old
from klip.studies.comparing import CLAIM
from klip.studies.findings import Findings
from klip.studies.identities import FORMS
from klip.studies.learning import SMOOTHING
from klip.studies.published import PAPER, TITLES, published_return, settings_differ
from klip.studies.scores import Estimate
from klip.studies.study import Study
from klip.studies.tables import Difference
from klip.studies.tested import Tested

NAMED = 8
"""The most comparisons that the first sentences name one by one."""


def render(
    findings: Findings, pictures: Mapping[str, Picture], refresh: float | None = None
) -> str:
    """The page's HTML; with `refresh`, it loads itself again after that many seconds."""
    study, table = findings.study, findings.table_1
    context: dict[str, Any] = {
        "study": study,
        "counts": Counter(run.status for run in study.runs),
        "looks": looks(study.labels),
        "picture": pictures.get,
        "smoothing": SMOOTHING,
        "tasks": [_task(findings, task) for task in study.tasks],
        "answer": answer(findings),
        "glance": _glance(findings),
        "machines": _machines(study),
        "paper": dict(keys=PAPER, titles=TITLES, table=table, published=published_return),
        "finals": findings.finals,
        "differences": _differences(findings.differences),
        "family": max((d.final.family for d in findings.differences), default=0),
        "tested": _tested(findings.tested),
        "across": None if findings.across is None else _across(findings.across),
        "ladders": step_sizes.context(findings),
        "seeds": sorted({row.summary.n for row in findings.finals if row.summary}),
        "same": findings.comparisons,
        "forms": FORMS,
        "also": findings.also_identical,
        "old": _old(study),
        "cards": cards(study),
        "choice": _choice(study),
        "troubled": [run for run in study.runs if run.status not in ("done", "running")],
        "noted": [run for run in study.runs if run.notes or run.history],
        "explorer": _explorer(),
    }
    return page("report.html", list(pictures.values()), context, refresh)


def answer(findings: Findings) -> list[str]:
    """Who won, and how sure that is: what the differences to PPO-Clip show, in sentences."""
    main = main_labels(findings.study)
    to_clip = [d for d in findings.differences if d.second.shape == PAPER["ppo_clip"]]
    compared = [d for d in to_clip if d.first.label in main]
    if not compared:
        return []
    same = [d for d in compared if d.identical]
    others = [d for d in compared if not d.identical]
    sentences = []
    for shown in ("higher", "lower"):
        sure = [d for d in others if words.verdict(d.final) == shown]
        if sure:
            which = _counted(sure, others) if len(sure) > NAMED else _named(sure)
            sentences.append(f"Shown to end {shown} than PPO-Clip: {'; '.join(which)}.")
    unsure = [d for d in others if words.verdict(d.final) == "open"]
    if others and len(unsure) == len(others):
        sentences.append("No shape is shown to end higher or lower than PPO-Clip.")
    if unsure:
        alone = sum(_leaves_zero(d.final) for d in unsure)
        tempting = f"; the intervals of {alone} leave 0, as some of so many do by chance"
        sentences.append(
            f"In {len(unsure)} of {len(others)} comparisons on a task these seeds do not tell a "
            f"shape apart from PPO-Clip{tempting if alone else ''}."
        )
    swept = [words.verdict(d.final) for d in to_clip if d.first.label not in main]
    if swept:
        higher, lower = swept.count("higher"), swept.count("lower")
        sentences.append(
            f"Of {len(swept)} comparisons of settings that not all tasks have, {higher} are shown "
            f"to end higher than PPO-Clip and {lower} lower."
        )
    if same:
        names = [*dict.fromkeys(d.first.label for d in same)]
        tasks = len({d.first.task for d in same})
        where = f"on {tasks} task{'' if tasks == 1 else 's'}"
        sentences.append(f"The same final return at every seed: {', '.join(names)}, {where}.")
    family = max(d.final.family for d in compared)
    if family > 1:
        sentences.append(
            f"Claims are corrected for {family} comparisons (Holm), intervals are not."
        )
    return sentences


def _named(sure: Sequence[Difference]) -> list[str]:
    """Each comparison, with its difference."""
    return [f"{d.first.label} on {d.first.task} ({words.difference(d.final)})" for d in sure]


def _counted(sure: Sequence[Difference], others: Sequence[Difference]) -> list[str]:
    """How many of the comparisons on each task are sure, and between which sizes they lie."""
    parts = []
    for task in dict.fromkeys(d.first.task for d in sure):
        sizes = [abs(d.final.estimate) for d in sure if d.first.task == task]
        of = sum(d.first.task == task for d in others)
        least, most = words.number(min(sizes), max(sizes)), words.number(max(sizes))
        parts.append(f"{len(sizes)} of {of} on {task}, by {least} to {most}")
    return parts


@functools.cache
def _explorer() -> Mapping[str, Markup]:
    """The explorer's parts, compiled once per process: a page kept fresh need not wait again."""
    from klip.pages.explorer.explorer import explorer_parts

    parts = explorer_parts()
    return {name: Markup(getattr(parts, name)) for name in ("html", "css", "js")}


def _task(findings: Findings, task: str) -> dict[str, Any]:
    """All that tables show of one task."""
    members, rows = findings.study.of(task), findings.of(task)
    shared = settings_differ(task, members[0].settings)
    for variant in members[1:]:
        other = settings_differ(task, variant.settings)
        shared = {name: pair for name, pair in shared.items() if other.get(name) == pair}
    marks = words.marks([row.mean for row in rows])
    return {
        "name": task,
        "rows": [{"final": row, "mark": mark} for row, mark in zip(rows, marks, strict=True)],
        "shared": shared,
        "config": members[0].settings,
    }


def _old(study: Study) -> list[tuple[str, str]]:
    """The labels of variants that learned from old samples, and how they did."""
    told = ((v.label, how_old(v.settings)) for v in study.variants)
    return list(dict.fromkeys((label, how) for label, how in told if how))


def _choice(study: Study) -> dict[str, Any]:
    """The labels of all lines, of those shown at first, and of PPO-Clip and one's own."""
    own = dict.fromkeys(v.label for v in study.variants if v.own)
    kept = dict.fromkeys(v.label for v in study.variants if v.shape == PAPER["ppo_clip"])
    return {
        "all": study.labels,
        "first": [label for label in study.labels if label in shown_at_first(study)],
        "own": [*kept, *own] if own else [],
    }


def _glance(findings: Findings) -> dict[str, Any]:
    """The study in a few numbers."""
    study = findings.study
    compared = [row.difference for row in findings.finals if row.difference is not None]
    bounded = [(d.low, d.high) for d in compared if d.low is not None and d.high is not None]
    counts = [row.summary.n for row in findings.finals if row.summary]
    return {
        "shapes": len({v.shape for v in study.variants}),
        "verdicts": Counter(c.verdict for c in findings.comparisons),
        "compared": len(bounded),
        "holds": sum(low <= 0 <= high for low, high in bounded),
        "seeds": (min(counts), max(counts)) if counts else None,
        "steps": sum(float(run.metrics["step"][-1]) for run in study.runs if run.rows),
    }


def _machines(study: Study) -> list[dict[str, Any]]:
    """Each set of versions and processor, and how many runs it trained a part of."""
    counts: Counter[str] = Counter()
    for run in study.runs:
        own = [{k: v for k, v in machine.items() if k != "since"} for machine in run.machines]
        counts.update({json.dumps(machine, sort_keys=True) for machine in own})
    return [{"about": json.loads(text), "runs": count} for text, count in sorted(counts.items())]


def _differences(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    """Differences by task and reference, each on a scale around zero."""
    groups: dict[tuple[str, str], list[Difference]] = {}
    for d in differences:
        groups.setdefault((d.first.task, d.second.label), []).append(d)
    tables = []
    for (task, reference), members in groups.items():
        marks = words.around_zero([d.final for d in members])
        lines = [
            {"d": d, "e": d.final, "over": d.over_training, "mark": mark, "says": _says(d)}
            for d, mark in zip(members, marks, strict=True)
        ]
        tables.append({"task": task, "reference": reference, "lines": lines})
    return tables


def _tested(rows: Sequence[Tested]) -> list[dict[str, Any]]:
    """Settings that were tuned and tested, each difference on a scale around zero."""
    told = []
    for row in rows:
        marks = words.around_zero(list(row.against.values()))
        lines = [
            {"name": name, "e": e, "mean": row.beside[name], "mark": mark, "says": words.verdict(e)}
            for (name, e), mark in zip(row.against.items(), marks, strict=True)
        ]
        tried = sorted(row.scores.items(), key=lambda pair: -pair[1])
        told.append({"row": row, "lines": lines, "tried": tried})
    return told


def _across(pool: Across) -> dict[str, Any]:
    marks = words.marks([row.iqm for row in pool.shapes])
    rows = zip(pool.shapes, marks, strict=True)
    return {
        "pool": pool,
        "rows": [{"row": row, "mark": mark, "says": _compared(row)} for row, mark in rows],
    }


def _compared(row: PooledShape) -> str:
    """What the probability of improvement shows."""
    e = row.better
    if e is None:
        return "the reference"
    if row.same:
        return "same scores"
    if e.p_holm is None:
        return "one seed: nothing can be said about the next"
    return "open" if e.p_holm > CLAIM else "better" if e.estimate > 0.5 else "worse"


def _says(d: Difference) -> str:
    """What a difference shows, and what it does not."""
    e = d.final
    if d.identical:
        return "the same final return at every seed"
    if e.low is None or e.high is None:
        return "one seed: nothing can be said about the next"
    if (shown := words.verdict(e)) != "open":
        return shown
    if e.p is None:
        return f"open: {e.remark}"
    if _leaves_zero(e):
        return f"open: by itself it would be shown, among {e.family} comparisons it is not"
    return f"open: these seeds show only what is beyond ±{words.number((e.high - e.low) / 2)}"


def _leaves_zero(e: Estimate) -> bool:
    return e.low is not None and e.high is not None and not e.low <= 0 <= e.high
