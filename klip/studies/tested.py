"""What the tests of a tuned plan say: the chosen settings, on seeds that no choice has seen.

Their runs may lie among others of the same shapes, such as those that they were tuned on; here
nothing but the tests counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from klip.errors import KlipError
from klip.runs.files import of_json
from klip.shapes.names import brief
from klip.studies.comparing import corrected
from klip.studies.scores import Estimate, Scores
from klip.studies.statistics import difference, mean
from klip.studies.study import Run, Study
from klip.studies.tuned import FORMAT, Selection, best, read_scores, selection_of


@dataclass(frozen=True)
class Tested:
    """The best setting of a family on a task, beside what it is held to."""

    task: str
    family: str
    chosen: str
    """In brief."""
    scores: Mapping[str, float]
    """Mean final return of every setting on the seeds of tuning, by its spelling in brief."""
    mean: Estimate
    """Of its final returns on fresh seeds."""
    beside: Mapping[str, Estimate]
    """Means of what it is held to, on the same seeds."""
    against: Mapping[str, Estimate]
    """It minus those; p-values are corrected for all of them, tasks and families."""


def fresh_answers(study: Study) -> list[Tested]:
    """The answers of all tuned plans in a study whose choices and tests are there."""
    rows = [row for data in study.choices.values() for row in _of(study, data)]
    flat = iter(corrected([e for row in rows for e in row.against.values()]))
    return [replace(row, against={name: next(flat) for name in row.against}) for row in rows]


def _of(study: Study, data: bytes) -> list[Tested]:
    """The answers of one plan; none where the file is another's, or tests are missing."""
    try:
        whole = of_json(data)
        if whole["format"] != FORMAT:
            return []
        rules = selection_of(whole["frozen"]["rules"])
        scores = read_scores(rules, whole["frozen"])
    except (KeyError, TypeError, ValueError, KlipError):
        return []  # a report shows what it can read; a plan that goes on refuses the file
    runs = {run.id: run for run in study.runs}
    rows = []
    for task in rules.tasks:
        beside = {shape: _ends(rules, runs, task, shape) for shape in rules.beside}
        for family, shape in zip(rules.families, best(rules, scores)[task], strict=True):
            own = _ends(rules, runs, task, shape)
            if own is None:
                continue
            known = {brief(name): ends for name, ends in beside.items() if ends is not None}
            rows.append(
                Tested(
                    task, family, brief(shape),
                    {brief(name): score for name, score in scores[task][family].items()},
                    mean(own), {name: mean(ends) for name, ends in known.items()},
                    {name: difference(own, ends) for name, ends in known.items()},
                )
            )  # fmt: skip
    return rows


def _ends(rules: Selection, runs: Mapping[str, Run], task: str, shape: str) -> Scores | None:
    """Final returns of a setting on all seeds of testing; None unless all have ended."""
    found = [runs.get(job.id) for job in rules.jobs({task: [shape]}, rules.testing)]
    ended = [run for run in found if run is not None and run.status in ("done", "diverged")]
    if len(ended) < len(found) or all(run.final is None for run in ended):
        return None
    return Scores.of(run.final for run in ended)
