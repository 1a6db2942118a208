"""The page of a token experiment: one HTML file that needs nothing else.

It looks like the report and is drawn by its style and script; what it says in words follows from
the numbers, and from how sure they are.
"""

from __future__ import annotations

import functools
from collections import Counter
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from klip.draw.charts import on_scale
from klip.draw.palette import DARK, LIGHT
from klip.lab import charts
from klip.lab.results import Arm, Results, average, difference, final, greedy, over_training, start
from klip.lab.samples import PARTS, Sample
from klip.pages.report import embed, templates
from klip.studies.scores import Estimate
from klip.studies.study import plain

KILL = average("kill")


def render(results: Results) -> str:
    """The page."""
    from plotly.offline import get_plotlyjs

    drawn: dict[str, charts.Chart] = {}
    slots = {arm.name: k for arms in results.groups.values() for k, arm in enumerate(arms)}
    groups = [_group(arms, slots, drawn, k) for k, arms in enumerate(results.groups.values())]
    report, own = files("klip.pages") / "templates", files("klip.lab") / "templates"
    runs = results.study.runs
    done = [run for run in runs if run.status == "done"]
    starts = [start(run) for run in done]
    context = {
        "version": version("klip"),
        "groups": groups,
        "slots": slots,
        "counts": Counter(run.status for run in runs),
        "runs": runs,
        "starts": (min(starts), max(starts)) if starts else None,
        "seeds": sorted({run.seed for run in done}),
        "collapsed": sum(arm.collapsed for arm in results.arms),
        "settings": _settings(results),
        "machines": sorted({_machine(machine) for run in runs for machine in run.machines}),
        "samples": [
            {"arm": arm, "seed": arm.ended[0].seed, "shown": arm.ended[0].config["shown"],
             "rows": [_sample(sample) for sample in results.samples.get(arm.ended[0].id, ())]}
            for arm in results.arms if arm.ended
        ],
        "troubled": [run for run in runs if run.status != "done"],
        "noted": [run for run in runs if run.notes],
        "trouble": results.study.trouble,
        "css": Markup((report / "report.css").read_text(encoding="utf-8")),
        "own_css": Markup((own / "tokens.css").read_text(encoding="utf-8")),
        "js": Markup((report / "report.js").read_text(encoding="utf-8")),
        "own_js": Markup((own / "tokens.js").read_text(encoding="utf-8")),
        "plotly": Markup(get_plotlyjs()),
        "data": embed({"light": LIGHT, "dark": DARK, "charts": drawn, "refresh": None}),
    }  # fmt: skip
    return _templates().get_template("tokens.html").render(context)


def percent(value: float | None) -> str:
    """A share.

    >>> percent(0.7314), percent(None)
    ('73.1 %', '–')
    """
    return "–" if value is None else f"{100 * value:.1f} %"


def points(value: float | None) -> str:
    """A difference of shares, in percentage points, with its sign.

    >>> points(0.0123), points(-0.5), points(-0.0001)
    ('+1.2', '−50.0', '0.0')
    """
    if value is None:
        return "–"
    told = f"{100 * value:.1f}"
    return "0.0" if told in ("0.0", "-0.0") else told.replace("-", "−") if value < 0 else f"+{told}"


def span(e: Estimate | None) -> str:
    """The interval of a share."""
    if e is None or e.low is None or e.high is None:
        return ""
    return f"[{100 * e.low:.1f}, {100 * e.high:.1f}]".replace("-", "−")


def ends(e: Estimate | None) -> str:
    """The interval of a difference, in points."""
    return f"[{points(e.low)}, {points(e.high)}]" if _bounded(e) and e is not None else ""


def reach(e: Estimate | None) -> str:
    """A difference and its interval, in points."""
    if e is None:
        return "–"
    return f"{points(e.estimate)} {ends(e) or '(no interval can be known)'}"


def says(e: Estimate | None) -> str:
    """What a difference shows, and no more."""
    if e is None or not _bounded(e):
        return "open"
    assert e.low is not None
    assert e.high is not None
    return "higher" if e.low > 0 else "lower" if e.high < 0 else "open"


def _bounded(e: Estimate | None) -> bool:
    """Whether there is an interval: neither one pair has one, nor pairs that do not differ."""
    return e is not None and e.low is not None and e.low != e.high


def conclusion(arms: list[Arm]) -> list[str]:
    """What the intervals of a group allow one to say, in sentences."""
    first, *others = arms
    compared = {arm.name: difference(arm, first) for arm in others}
    found = {name: e for name, e in compared.items() if e is not None}

    def told(verdict: str) -> str:
        return "; ".join(f"“{n}” ({reach(e)})" for n, e in found.items() if says(e) == verdict)

    base = first.estimate(final)
    lines = [
        f"“{first.name}” ends at {percent(base.estimate if base else None)} {span(base)} held-out "
        f"accuracy, from {percent(_mean_start(first))} after the warm-up."
    ]
    for verdict in ("higher", "lower"):
        if named := told(verdict):
            lines.append(f"Shown to end {verdict} than it, in points: {named}.")
    if left := told("open"):
        lines.append(f"Not told apart from it by these seeds: {left}.")
    if missing := "; ".join(f"“{name}”" for name in compared if name not in found):
        lines.append(f"Without a seed that is done in both: {missing}.")
    for arm in others:
        other = next((o for o in arms if o.name == arm.against), None)
        if other is not None:
            e, kill = difference(arm, other), difference(arm, other, KILL)
            verdict = {"open": "not told apart from"}.get(says(e), f"{says(e)} than")
            lines.append(
                f"“{arm.name}” is {verdict} “{other.name}”: {reach(e)} points of accuracy, with a "
                f"kill fraction that differs by {reach(kill)} points."
            )
    return lines


def _mean_start(arm: Arm) -> float | None:
    found = arm.estimate(start)
    return found.estimate if found else None


@functools.cache
def _templates() -> Environment:
    return templates("klip.lab", percent, points, span, ends, reach, says, plain)


def _group(
    arms: list[Arm], slots: dict[str, int], drawn: dict[str, charts.Chart], number: int
) -> dict[str, Any]:
    """All that is shown of arms that are compared with each other."""
    name, first = arms[0].group, arms[0]

    def keep(kind: str, chart: charts.Chart) -> str:
        drawn[f"{kind}-{number}"] = chart
        return f"{kind}-{number}"

    def line(kind: str, metric: str, y: str) -> str:
        return keep(kind, charts.over_training(arms, slots, metric, y, f"{kind}-{name}"))

    aged = any("age_share" in run.metrics for arm in arms for run in arm.ended)
    ages = None
    if aged:
        shares = charts.age_shares(arms)
        ages = {
            "bars": [{"age": k, "share": x, "width": 100 * x / max(shares)}
                     for k, x in enumerate(shares)],
            "kill": keep("age-kill", charts.by_age(arms, slots, "age_kill", "killed",
                                                   f"age-kill-{name}")),
            "pass": keep("age-pass", charts.by_age(arms, slots, "age_pass", "passed",
                                                   f"age-pass-{name}")),
        }  # fmt: skip
    return {
        "name": name,
        "first": first,
        "says": conclusion(arms) if first.ended else [],
        "rows": _rows(arms),
        "extra": _against(arms),
        "accuracy": line("accuracy", "held_out", "held-out accuracy"),
        "entropy": line("entropy", "entropy", "entropy per token, nats"),
        "kill": line("kill", "kill", "killed, share of tokens"),
        "answer": line("answer", "answer_kill", "killed in the answer"),
        "reasoning": line("reasoning", "reasoning_kill", "killed in the reasoning"),
        "ages": ages,
    }


def _rows(arms: list[Arm]) -> list[dict[str, Any]]:
    finals = {arm.name: arm.estimate(final) for arm in arms}
    apart = {arm.name: difference(arm, arms[0]) if arm is not arms[0] else None for arm in arms}
    ends = [x for e in apart.values() if e for x in (e.low, e.high, e.estimate) if x is not None]
    most = max((abs(x) for x in ends), default=1.0) or 1.0
    made = []
    for arm in arms:
        e, d, kill = finals[arm.name], apart[arm.name], arm.estimate(KILL)
        early = difference(arm, arms[0], over_training) if arm is not arms[0] else None
        made.append({
            "arm": arm, "final": e, "kill": kill, "early": early,
            "greedy": arm.estimate(greedy),
            "mark": None if e is None else on_scale(e.low, e.estimate, e.high, 0.0, 1.0),
            "difference": d,
            "apart": None if d is None else on_scale(d.low, d.estimate, d.high, -most, most),
            "mass": arm.estimate(average("killed_mass")),
            "pass": arm.estimate(average("pass")),
            "spans": charts.span_shares(arm),
            "seeds": len(arm.ended),
        })  # fmt: skip
    return made


def _against(arms: list[Arm]) -> list[dict[str, Any]]:
    """Comparisons that the plan asks for besides those with the first arm."""
    named = {arm.name: arm for arm in arms}
    return [
        {"arm": arm, "other": named[arm.against], "final": difference(arm, named[arm.against]),
         "early": difference(arm, named[arm.against], over_training),
         "kill": difference(arm, named[arm.against], KILL)}
        for arm in arms if arm.against in named
    ]  # fmt: skip


def _sample(sample: Sample) -> dict[str, Any]:
    tokens = zip(sample.text, sample.part, sample.ratio, sample.pull, strict=True)
    return {
        "about": sample,
        "tokens": [
            {"text": text, "part": PARTS[part],
             "told": f"{text}  {PARTS[part]}: w {w:.3g}, A {sample.advantage:+.3g}, m {m:+.3g}"
                     .replace("-", "−")}
            for text, part, w, m in tokens
        ],
    }  # fmt: skip


def _settings(results: Results) -> list[tuple[str, str]]:
    """What all runs share."""
    own = {
        "group",
        "arm",
        "shape",
        "code",
        "seed",
        "place",
        "against",
        "task",
        "envs",
        "rollout",
        "steps",
    }
    configs = [run.config for run in results.study.runs]
    shared = {
        name: value
        for name, value in configs[0].items()
        if name not in own and all(c.get(name) == value for c in configs)
    }
    warmup = {f"warm-up {k}": v for k, v in configs[0]["warmup"].items() if k != "seed"}
    shared.pop("warmup", None)
    return [(name.replace("_", " "), plain(v)) for name, v in sorted({**shared, **warmup}.items())]


def _machine(machine: Any) -> str:
    told = {k: v for k, v in sorted(machine.items()) if k not in ("since", "cpu")}
    names = ", ".join(f"{name} {value}" for name, value in told.items())
    return f"{names}; on {machine.get('cpu', 'an unknown processor')}"
