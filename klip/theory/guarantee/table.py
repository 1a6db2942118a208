"""The verdicts of theory on the catalogue, worked out once and kept beside this file.

`klip shapes` and a report list them for every shape, and have no minute to spare. A test works out
every line anew; `python tests/theory/guarantee/test_table.py` writes the file.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from klip.shapes import Shape, parse
from klip.theory.guarantee.examine import examined
from klip.theory.guarantee.verdict import Verdict

FILE: Final = Path(__file__).with_name("table.json")
SAYS: Final = "T1 improvement, T2 any step size, T3 a bound on where the inner loop ends"


@functools.cache
def known() -> Mapping[str, Mapping[str, str]]:
    """The lines of the file by the shape's full spelling; each has `brief` and `end`.

    >>> known()["spo(eps=0.2)"]["brief"]
    'T1 yes, T2 no, T3 yes'
    """
    lines: dict[str, dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return lines


def worked_out(shape: Shape) -> dict[str, str]:
    """A line of the file: what theory says of a shape, in brief."""
    found = examined(shape, measured=False, attacked=False)
    return {"brief": found.brief, "end": end(found["end of the loop"])}


def end(verdict: Verdict) -> str:
    """Where the inner loop ends, in a few words."""
    figures = verdict.figures
    if verdict.outcome == "holds":
        return f"TV <= max({figures['high']:.3g} P+, {figures['low']:.3g} P-)"
    if "high" in figures:
        return f"w = 1 + max({figures['high']:.3g}, {figures['low']:.3g} P-/P+)"
    if "variation" in figures:
        return f"TV {figures['variation']:.2f} at worst, |A| <= 3"
    return f"w = {figures['ratio']:.3g} at P+ = 0.01"


@functools.cache
def line_of(spelling: str) -> Mapping[str, str]:
    """The line of a shape or a controller's first one: from the file, or worked out now."""
    shape = parse(spelling).initial
    return known().get(str(shape)) or worked_out(shape)


def in_brief(spelling: str) -> str:
    """The three claims about a shape or a controller's first one.

    >>> in_brief("spo"), in_brief("spo(eps=0.3)")
    ('T1 yes, T2 no, T3 yes', 'T1 yes, T2 no, T3 yes')
    """
    return line_of(spelling)["brief"]


def decided(brief: str) -> dict[str, bool]:
    """The claims that hold or are refuted; what is open is missing.

    >>> decided("T1 yes, T2 no, T3 open")
    {'T1': True, 'T2': False}
    """
    return {claim: answer == "yes" for claim, answer in re.findall(r"(T[123]) (yes|no)\b", brief)}
