"""What the report says of step sizes: where each shape breaks, and whether theory foretold it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from klip.draw.properties import PROVEN, promised
from klip.draw.step_sizes import Foretold, foretold, line_looks
from klip.pages import words
from klip.studies.findings import Findings
from klip.studies.step_sizes import StepSizes

READING: Final = {
    "higher": "those that keep it survive longer",
    "lower": "those that keep it break earlier",
    "open": "open: these seeds do not tell",
}


def context(findings: Findings) -> dict[str, Any] | None:
    """What the template needs; None where the study has no ladder of step sizes."""
    found = findings.step_sizes
    if found is None:
        return None
    told = foretold(found)
    return {
        "cells": found.cells,
        "looks": line_looks(findings, found),
        "rows": _rows(found),
        "told": [{"claim": t.claim, "e": t.difference, "says": _reading(t)} for t in told],
        "answer": answer(told),
        "left": found.left,
    }


def answer(told: list[Foretold]) -> str:
    """Whether shapes that reverse break earlier, in a sentence; nothing where none can be asked."""
    of_t2 = next((each for each in told if each.claim.name == PROVEN["T2"]), None)
    if of_t2 is None:
        return ""
    e = of_t2.difference
    low, high = (None if end is None else 0.0 - end for end in (e.high, e.low))
    other = replace(e, estimate=0.0 - e.estimate, low=low, high=high)
    who = (
        f"Step sizes survived by shapes that reverse (T2 does not hold: "
        f"{', '.join(of_t2.claim.lack)}), less those of shapes that do not "
        f"({', '.join(of_t2.claim.have)}): {words.difference(other)}"
    )
    shown = {
        "higher": "those that reverse are shown to break earlier, as T2 and T4 say",
        "lower": "those that reverse are shown to survive longer, against what T2 and T4 say",
        "open": "those that reverse are shown to break neither earlier nor later",
    }
    return f"{who}; {shown[words.verdict(e)]}."


def _reading(told: Foretold) -> str:
    if told.difference.p is None:
        return "one seed: nothing can be said about the next"
    return READING[words.verdict(told.difference)]


def _rows(found: StepSizes) -> list[dict[str, Any]]:
    """A line for each shape: first those that have every step size, then the others."""
    whole = {each.label: each for each in found.shapes}
    rows = []
    for label in (*whole, *found.left):
        ladders = found.of(label)
        one = next(ladder for ladder in ladders if ladder is not None)
        variant = next(iter(one.variants.values()))
        rows.append({
            "label": label,
            "verdicts": promised(one.shape, variant.portrait) or "unknown",
            "breaks": ["not run" if ladder is None else ladder.says for ladder in ladders],
            "survived": whole[label].survived if label in whole else None,
        })  # fmt: skip
    return rows
