"""The report as one HTML page that needs nothing else: no network, no folder beside it.

    Study ── tables, charts, sketches ──> context ── templates ──> report.html

Names come from configs that anybody may have written. They reach the page through autoescaped
templates and through JSON in which no tag can open; a policy in the page's head forbids every
request.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from klip.draw import charts
from klip.draw.palette import DARK, LIGHT, slots
from klip.pages.cards import cards
from klip.studies.across import PooledShape, across
from klip.studies.identities import FORMS, Comparison, also_identical, comparisons
from klip.studies.published import (
    PAPER,
    TITLES,
    published_peak_kill,
    published_return,
    settings_differ,
    why_not_compared,
)
from klip.studies.scores import Estimate
from klip.studies.study import Study, plain
from klip.studies.tables import Difference, Final, differences, finals, sweeps, table_1


def render(study: Study, refresh: float | None = None) -> str:
    """The page; with `refresh`, one that loads itself again after so many seconds."""
    rows = finals(study)
    paired = differences(study)
    same = comparisons(study)
    marks = _whiskers(study, rows)
    drawn: dict[str, charts.Chart] = {}
    context: dict[str, Any] = {
        "version": version("klip"),
        "counts": Counter(run.status for run in study.runs),
        "study": study,
        "slots": slots(study),
        "tasks": [_task(study, task, rows, drawn) for task in study.tasks],
        "glance": _glance(study, rows, same),
        "machines": _machines(study),
        "paper": {"keys": PAPER, "titles": TITLES, "table": table_1(rows),
                  "published": published_return},
        "finals": rows,
        "whiskers_of": lambda row: marks[id(row)],
        "paired": _paired(paired),
        "across": _across(study, drawn),
        "seeds": sorted({row.summary.n for row in rows if row.summary}),
        "same": same,
        "forms": FORMS,
        "also": also_identical(study),
        "sweeps": [_keep(drawn, f"sweep-{i}", charts.sweep_chart(sweep)) | {"sweep": sweep}
                   for i, sweep in enumerate(sweeps(rows))],
        "cards": cards(study),
        "troubled": [run for run in study.runs if run.status not in ("done", "running")],
        "noted": [run for run in study.runs if run.notes or run.history],
        "refresh": refresh,
    }  # fmt: skip
    context |= _assets(drawn, refresh)
    return _templates().get_template("report.html").render(context)


def embed(data: Any) -> Markup:
    r"""JSON that may stand inside a script element, whatever strings are in it.

    >>> embed("</script>")
    Markup('"\\u003c/script\\u003e"')
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII: no U+2028 either
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def number(value: float | None, *beside: float | None) -> str:
    """A return, with as many digits as mean something beside the others of its cell.

    >>> number(2193.4), number(-21.7), number(0.1234), number(None), number(21.7, 500.0)
    ('2193', '−21.7', '0.123', '–', '22')
    """
    if value is None:
        return "–"
    size = max(abs(x) for x in (value, *beside) if x is not None)
    digits = 0 if size >= 100 or size == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def fixed(value: float | None) -> str:
    """A normalised score or a share: two decimals.

    >>> fixed(0.984), fixed(-0.2), fixed(-0.001), fixed(None)
    ('0.98', '−0.20', '0.00', '–')
    """
    return "–" if value is None else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def signed(value: float | None, *beside: float | None) -> str:
    """A difference, with its sign."""
    told = number(value, *beside)
    return told if value is None or value <= 0 else f"+{told}"


def cell(mean: float, std: float) -> str:
    """Mean and deviation.

    >>> cell(475.6, 23.7)
    '476 ± 24'
    """
    return f"{number(mean, std)} ± {number(std, mean)}"


def interval(estimate: Estimate | None, sign: bool = False) -> str:
    """Its ends, or nothing where they cannot be known."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    show = signed if sign else number
    return f"[{show(estimate.low, estimate.high)}, {show(estimate.high, estimate.low)}]"


def difference(estimate: Estimate) -> str:
    """A signed number and its interval."""
    low, high = estimate.low, estimate.high
    return f"{signed(estimate.estimate, low, high)} {interval(estimate, sign=True)}".strip()


def templates(room: str, *filters: Callable[..., Any]) -> Environment:
    """The templates of a room, which know the filters by their names."""
    made = Environment(
        loader=PackageLoader(room, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {f.__name__: f for f in filters}
    return made


@functools.cache
def _templates() -> Environment:
    made = templates("klip.pages", number, fixed, signed, interval, difference, plain)
    made.globals["cell"] = cell
    return made


def _assets(drawn: Mapping[str, charts.Chart], refresh: float | None) -> dict[str, Any]:
    """Style, scripts and data: all that other pages fetch."""
    from plotly.offline import get_plotlyjs

    own = files("klip.pages") / "templates"
    return {
        "css": Markup((own / "report.css").read_text(encoding="utf-8")),
        "js": Markup((own / "report.js").read_text(encoding="utf-8")),
        "plotly": Markup(get_plotlyjs()),
        "explorer": _explorer(),
        "data": embed({"light": LIGHT, "dark": DARK, "charts": drawn, "refresh": refresh}),
    }


@functools.cache
def _explorer() -> Mapping[str, Markup]:
    """Compiled once a process: a page that is kept fresh does not wait for it each time."""
    from klip.pages.explorer.explorer import explorer_parts

    parts = explorer_parts()
    return {name: Markup(getattr(parts, name)) for name in ("html", "css", "js")}


def _keep(drawn: dict[str, charts.Chart], id: str, chart: charts.Chart) -> dict[str, Any]:
    drawn[id] = chart
    return {"id": id}


def _task(
    study: Study, task: str, rows: Sequence[Final], drawn: dict[str, charts.Chart]
) -> dict[str, Any]:
    """All that is shown of one task."""
    place = study.tasks.index(task)
    members = study.of(task)
    about: dict[str, Any] = dict.fromkeys(("learning", "partition", "beta", "peak"))
    about |= {"name": task, "rows": [r for r in rows if r.variant.task == task]}
    shared = settings_differ(task, members[0].settings)
    for variant in members[1:]:
        other = settings_differ(task, variant.settings)
        shared = {name: pair for name, pair in shared.items() if other.get(name) == pair}
    about["shared"] = shared
    about["config"] = members[0].settings
    for kind, made in (
        ("learning", charts.learning_chart(study, task)),
        ("partition", charts.partition_chart(study, task)),
        ("beta", charts.beta_chart(study, task)),
    ):
        if made is not None:
            chart = made[0] if isinstance(made, tuple) else made
            about[kind] = _keep(drawn, f"{kind}-{place}", chart) | {"lines": _legend(chart)}
            if isinstance(made, tuple):
                about[kind]["variant"] = made[1]
    if about["partition"]:
        about["peak"] = _peak(task, drawn[about["partition"]["id"]], about["partition"]["variant"])
    return about


def _legend(chart: charts.Chart) -> list[dict[str, Any]]:
    lines = [line for line in chart.get("series", ()) if not line.get("published")]
    published = {line["label"] for line in chart.get("series", ()) if line.get("published")}
    return [
        {"label": line["label"], "slot": line["slot"], "shown": line["shown"],
         "published": line["label"] in published}
        for line in lines
    ]  # fmt: skip


def _peak(task: str, chart: charts.Chart, variant: Any) -> dict[str, float | None]:
    kill: list[float | None] = next(
        (line["y"] for line in chart["series"] if line["label"] == "kill"), []
    )
    known = [value for value in kill if value is not None]
    compared = not why_not_compared(task, variant.shape, variant.settings)
    published = published_peak_kill(task) if compared else None
    return {"ours": max(known, default=None), "published": published}


def _glance(study: Study, rows: Sequence[Final], same: Sequence[Comparison]) -> dict[str, Any]:
    """What the whole says, in numbers."""
    compared = [row.difference for row in rows if row.difference is not None]
    bounded = [d for d in compared if d.low is not None and d.high is not None]
    holds = [d for d in bounded if d.low is not None and d.low <= 0 <= (d.high or 0.0)]
    verdicts = Counter(c.verdict for c in same)
    return {
        "shapes": len({v.shape for v in study.variants}),
        "verdicts": verdicts,
        "compared": len(bounded),
        "holds": len(holds),
        "steps": sum(float(run.metrics["step"][-1]) for run in study.runs if run.rows),
    }


def _machines(study: Study) -> list[dict[str, Any]]:
    """Each set of versions and processor, and how many runs it trained a part of."""
    found: Counter[str] = Counter()
    for run in study.runs:
        own = [{k: v for k, v in machine.items() if k != "since"} for machine in run.machines]
        found.update({json.dumps(machine, sort_keys=True) for machine in own})
    return [{"about": json.loads(text), "runs": count} for text, count in sorted(found.items())]


def _whiskers(study: Study, rows: Sequence[Final]) -> dict[int, Any]:
    """By row, on a scale of its task."""
    made: dict[int, Any] = {}
    for task in study.tasks:
        members = [row for row in rows if row.variant.task == task]
        made |= {id(row): w for row, w in zip(members, charts.whiskers(members), strict=True)}
    return made


def _paired(found: Sequence[Difference]) -> list[dict[str, Any]]:
    """Differences by task and reference, each on a scale around zero."""
    groups: dict[tuple[str, str], list[Difference]] = {}
    for d in found:
        groups.setdefault((d.first.task, d.second.label), []).append(d)
    made = []
    for (task, reference), members in groups.items():
        ends = [
            abs(end)
            for d in members
            for e in [d.paired.difference]
            for end in (e.low, e.high, e.estimate)
            if end is not None
        ]
        reach = max(ends, default=1.0) or 1.0
        lines = []
        for d in members:
            e = d.paired.difference
            mark = charts.on_scale(e.low, e.estimate, e.high, -reach, reach)
            lines.append({"d": d, "e": e, "mark": mark, "says": _says(d)})
        made.append({"task": task, "reference": reference, "lines": lines})
    return made


def _across(study: Study, drawn: dict[str, charts.Chart]) -> dict[str, Any] | None:
    """What is shown over tasks; nothing where none can be pooled."""
    found = across(study)
    if found is None:
        return None
    chart = charts.profile_chart(found)
    rows = zip(found.shapes, charts.pooled_whiskers(found), strict=True)
    return {
        **_keep(drawn, "across", chart), "lines": _legend(chart), "pool": found,
        "rows": [{"row": row, "mark": mark, "says": _compared(row)} for row, mark in rows],
    }  # fmt: skip


def _compared(row: PooledShape) -> str:
    """What the probability of improvement shows."""
    e = row.better
    if e is None:
        return "the reference"
    if row.same:
        return "same scores"
    if e.low is None or e.high is None:
        return "one seed: nothing can be said about the next"
    return "better" if e.low > 0.5 else "worse" if e.high < 0.5 else "open"


def _says(d: Difference) -> str:
    """What a paired difference shows, and what it does not."""
    e, p = d.paired.difference, d.paired
    if p.identical:
        return "the same final return at every seed"
    if e.low is None or e.high is None:
        return "one pair: nothing can be said about the next seed"
    if e.low > 0:
        return f"higher; {e.n} pairs"
    if e.high < 0:
        return f"lower; {e.n} pairs"
    reach = (e.high - e.low) / 2
    return f"open: {e.n} pairs show only what is beyond ±{number(reach)}"
