"""All that a report says of a study, computed once: page, tables and figures read it.

Study ── find ──> Findings ──> page, tables, figures
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klip.studies.across import Across, across
from klip.studies.identities import Comparison, also_identical, comparisons
from klip.studies.step_sizes import StepSizes, step_sizes
from klip.studies.study import Study
from klip.studies.tables import (
    Difference,
    FinalReturns,
    Sweep,
    differences,
    finals,
    sweeps,
    table_1,
)
from klip.studies.tested import Tested, fresh_answers


@dataclass(frozen=True, eq=False)
class Findings:
    """What the runs of a study show, with all its intervals."""

    study: Study
    finals: tuple[FinalReturns, ...]
    """Every variant's final returns, and its mean returns over training."""
    table_1: Mapping[str, Mapping[str, FinalReturns]]
    """The paper's table: by task and algorithm."""
    differences: tuple[Difference, ...]
    """Against PPO-Clip where it is there; p-values are corrected for all of them."""
    sweeps: tuple[Sweep, ...]
    step_sizes: StepSizes | None
    """Returns against the step size; None where no shape has two, all else being equal."""
    across: Across | None
    """Scores pooled over tasks; None where they cannot be pooled."""
    comparisons: tuple[Comparison, ...]
    """The forms of PPO-Clip, seed by seed."""
    also_identical: tuple[tuple[str, str, int], ...]
    """Other shapes that trained to the same bytes: task, labels, and at how many seeds."""
    tested: tuple[Tested, ...]
    """Settings that were chosen on some seeds and tested on others."""

    def of(self, task: str) -> list[FinalReturns]:
        """The final returns of one task's variants."""
        return [row for row in self.finals if row.variant.task == task]


def find(study: Study) -> Findings:
    """Everything that a report says of a study; the bootstraps take most of the time."""
    rows = finals(study)
    return Findings(
        study,
        tuple(rows),
        table_1(rows),
        tuple(differences(study)),
        tuple(sweeps(rows)),
        step_sizes(study),
        across(study),
        tuple(comparisons(study)),
        tuple(also_identical(study)),
        tuple(fresh_answers(study)),
    )
