"""Pictures of step sizes: returns against them, how many a shape survives, and whether theory knew.

Theory says that a shape which reverses (T2 does not hold) may fall where one that does not, holds.
So the shapes are divided by what `klip guarantee` says of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klip.draw.lines import beside, estimates, of_seeds
from klip.draw.palette import Look, looks_of
from klip.draw.panel import Axis, Mark, Panel, Picture, Whisker
from klip.draw.properties import PROVEN, divided, promised, proven
from klip.studies.comparing import corrected
from klip.studies.findings import Findings
from klip.studies.predicting import Prediction, predictions
from klip.studies.scores import Estimate
from klip.studies.step_sizes import Cell, Endurance, StepSizes, apart

SURVIVED: Final = "step sizes survived"


@dataclass(frozen=True)
class Foretold:
    """A claim of theory, and how many step sizes more those survive that keep it."""

    claim: Prediction
    difference: Estimate
    """With its interval and p-value over seeds, corrected for all claims."""


def returns(findings: Findings) -> Picture | None:
    """Final return against the step size with 95 % intervals: a panel a cell, a line a shape."""
    found = findings.step_sizes
    if found is None:
        return None
    look = line_looks(findings, found)
    panels = tuple(_cell(cell, look) for cell in found.cells)
    return Picture("step-sizes", panels, 2, (4.6, 3.2))


def endurance(findings: Findings) -> Picture | None:
    """How many step sizes each shape survives, with what theory says of it beside its name."""
    found = findings.step_sizes
    if found is None or len(found.shapes) < 2:
        return None
    look, marks, names = line_looks(findings, found), list[Mark](), []
    for place, each in enumerate(found.shapes):
        e, says = each.survived, verdicts(each)
        names.append(f"{each.label}: {says}" if says else each.label)
        about = f"{len(found.cells)} × {of_seeds(e.n)}"
        marks.append(Whisker(each.label, place, e.estimate, e.low, e.high, look[each.label], about))
    y = Axis(ticks=tuple((float(i), name) for i, name in enumerate(names)), down=True)
    x = Axis(f"{SURVIVED}, mean over {_cells(found)}", from_zero=True)
    title = "The longest to survive first"
    size = (6.4, 1.0 + 0.24 * len(names))
    return Picture("endurance", (Panel(title, x, y, tuple(marks)),), 1, size)


def promises(findings: Findings) -> Picture | None:
    """Step sizes survived by the shapes that keep a claim of theory, and by those that do not."""
    found = findings.step_sizes
    told = [] if found is None else foretold(found)
    if found is None or not told:
        return None
    look = line_looks(findings, found)
    points = {e.label: (e.label, e.survived.estimate, look[e.label]) for e in found.shapes}
    return divided("promises", [each.claim for each in told], points, SURVIVED)


def verdicts(each: Endurance) -> str:
    """What theory says of a shape, in brief; somebody's own as its runs kept it."""
    return promised(each.shape, each.variant.portrait)


def foretold(found: StepSizes) -> list[Foretold]:
    """Each claim of theory that some of the shapes keep and some do not."""
    has = {each.label: proven(verdicts(each)) for each in found.shapes}
    told = predictions(
        {each.label: each.survived.estimate for each in found.shapes},
        {claim: {label: of[claim] for label, of in has.items() if claim in of}
         for claim in PROVEN.values()},
    )  # fmt: skip
    told = [each for each in told if each.difference is not None]
    sure = corrected([apart(found.shapes, each.have, each.lack) for each in told])
    return [Foretold(*pair) for pair in zip(told, sure, strict=True)]


def line_looks(findings: Findings, found: StepSizes) -> Mapping[str, Look]:
    """A look for each shape, of the hue that it has in the other pictures."""
    names = dict.fromkeys(ladder.label for cell in found.cells for ladder in cell.ladders)
    return looks_of([*names], findings.study.labels)


def _cell(cell: Cell, look: Mapping[str, Look]) -> Panel:
    marks: list[Mark] = []
    for place, ladder in enumerate(cell.ladders):
        shift = beside(place, len(cell.ladders))
        known = [(cell.rates.index(rate) + shift, e) for rate, e in ladder.returns.items()]
        marks += estimates(ladder.label, look[ladder.label], known)
    ticks = tuple((float(i), f"{rate:g}") for i, rate in enumerate(cell.rates))
    lost = [
        f"{ladder.label} at {rate:g}: {e.diverged} of {e.n}"
        for ladder in cell.ladders
        for rate, e in ladder.returns.items()
        if e.diverged
    ]
    note = f"Diverged, and counted at the lowest return: {'; '.join(lost)}." if lost else ""
    y = Axis("final return")
    return Panel(cell.task, Axis("step size", ticks), y, tuple(marks), cell.about, note)


def _cells(found: StepSizes) -> str:
    return "1 cell" if len(found.cells) == 1 else f"{len(found.cells)} cells"
