"""What a notebook shows: a region's picture, the table of a study, of a probe, of a guarantee."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from klip.draw import style
from klip.draw.sketch import sketch
from klip.errors import KlipError
from klip.shapes import Region
from klip.studies.arms import Arm, arms_of, final, is_tokens
from klip.studies.scores import Estimate
from klip.studies.study import Study
from klip.studies.tables import FinalReturns, finals
from klip.theory.guarantee.verdict import Guarantee
from klip.theory.probe import Probe

_CSS = f"""
.klip-shape {{ max-width: 32em; }}
.klip-shape .sketch {{ width: 100%; height: auto; display: block; }}
.klip-shape .sketch path, .klip-shape .sketch polyline {{ fill: none; stroke-width: 2; }}
.klip-shape .sketch .up {{ stroke: {style.POSITIVE}; }}
.klip-shape .sketch .down {{ stroke: {style.NEGATIVE}; }}
.klip-shape .sketch .axis {{ stroke: {style.NEUTRAL}; stroke-width: 0.5; }}
.klip-shape .sketch .free {{ stroke-width: 0.8; stroke-dasharray: 3 3; opacity: 0.7; }}
.klip-shape .sketch .both {{ stroke-dasharray: 6 6; }}
.klip-shape .sketch .jump {{ stroke-width: 1.1; stroke-dasharray: 1.5 2.5; }}
.klip-shape .sketch text {{ font-size: 10px; fill: currentColor; }}
"""


_KEY = (
    f'<div><span style="color: {style.POSITIVE}">A = 1</span>, '
    f'<span style="color: {style.NEGATIVE}">A = -1</span>; dashed: wA</div>'
)


def notebook(region: Region) -> str:
    """HTML that needs nothing else: what a region is called, what it computes, how it looks.

    A controller is drawn as the shape that it starts with.

    >>> from klip.shapes import Clip
    >>> text = notebook(Clip())
    >>> "clip(eps=0.2)" in text, "J = min(wA" in text, "<svg" in text
    (True, True, True)
    """
    named = [(part.name, part.formula) for part in region.parts() if part.formula]
    formulas = [text if len(named) == 1 else f"{name}: {text}" for name, text in named]
    lines = "".join(f"<div>{html.escape(line)}</div>" for line in formulas)
    title = f"<div><code>{html.escape(str(region))}</code></div>"
    return f'<div class="klip-shape"><style>{_CSS}</style>{title}{lines}{_picture(region)}</div>'


def _picture(region: Region) -> str:
    try:
        return sketch(region.initial) + _KEY
    except (KlipError, ArithmeticError, ValueError) as error:  # a shape is anybody's code
        return f"<div>It has no picture: {html.escape(str(error))}</div>"


def study_table(study: Study) -> str:
    """HTML of a study: a row per task and shape, or per arm of a token experiment.

    >>> study_table(Study(()))
    '<p>a study without runs</p>'
    """
    if not study.runs:
        return "<p>a study without runs</p>"
    if is_tokens(study):
        header: tuple[str, ...] = ("group", "arm", "runs", "held-out accuracy", "95 % interval")
        rows = [_arm(arm) for arm in arms_of(study)]
    else:
        header = ("task", "shape", "runs", "final return", "95 % interval", "over training")
        rows = [_variant(row) for row in finals(study)]
    trouble = "".join(f"<li>{html.escape(line)}</li>" for line in study.trouble)
    return table(header, rows) + (f"<ul>{trouble}</ul>" if trouble else "")


def guarantee_table(found: Guarantee) -> str:
    """HTML of what is known of a shape's promises: a row per claim."""
    rows = [(verdict.claim, verdict.headline) for verdict in found.verdicts]
    remarks = "".join(f"<div>{html.escape(line)}</div>" for line in found.remarks)
    return (
        f"<div><code>{html.escape(found.shape)}</code></div>{table(('claim', ''), rows)}{remarks}"
    )


def probe_table(probed: Probe) -> str:
    """HTML of what a loss turned out to be, and of what looks wrong about it."""
    wrong = [(each.code, each.message) for each in probed.findings if not each.by_design]
    rows = wrong or [("", "nothing looks wrong")]
    rows += [("caveat", line) for line in probed.caveats]
    return f"<div>{html.escape(probed.headline)}</div>{table(('finding', ''), rows)}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table of texts, which are shown as they are.

    >>> table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(header, 'th')}</thead><tbody>{body}</tbody></table>"


def _variant(row: FinalReturns) -> tuple[str, ...]:
    variant, summary = row.variant, row.summary
    ended = variant.count("done")
    runs = str(ended) if ended == len(variant.runs) else f"{ended} of {len(variant.runs)} done"
    if diverged := variant.count("diverged"):
        runs += f", {diverged} diverged"
    score = f"{summary.mean:.4g} ± {summary.std:.2g}" if summary else "–"
    over = f"{row.over_training.estimate:.4g}" if row.over_training else "–"
    return variant.task, variant.label, runs, score, _ends(row.mean), over


def _arm(arm: Arm) -> tuple[str, ...]:
    score = arm.estimate(final)
    shown = f"{score.estimate:.3f}" if score else "–"
    return arm.group, arm.name, f"{len(arm.ended)} of {len(arm.runs)} done", shown, _ends(score)


def _ends(score: Estimate | None) -> str:
    if score is None or score.low is None or score.high is None:
        return "–"
    return f"[{score.low:.4g}, {score.high:.4g}]"
