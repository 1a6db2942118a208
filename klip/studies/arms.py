"""What the runs of a token experiment say: arms, their scores, and differences over seeds.

    Study ── find_arms ──> TokenFindings ──> page, table, figures

A token run is known by its config, which names the arm it belongs to and that arm's group. The
other arms of a group are compared with its first arm. All arms of a seed share its warm-up, which
makes their accuracies alike over training and not at the end: the first are compared seed by seed,
the last by Welch's interval (`benchmarks/comparisons.py`). Claims rest on p-values that Holm
corrects for all comparisons of the experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from klip.errors import KlipError
from klip.studies.comparing import corrected
from klip.studies.scores import Estimate, Scores
from klip.studies.statistics import difference, mean, paired_difference
from klip.studies.study import Column, Run, Study
from klip.studies.tables import against, ends

COLLAPSED: Final = 0.5
"""A run has collapsed if its final accuracy is below this share of its warm-up's."""
PARTS: Final = ("zeroed", "weakened", "reversed", "zeroed_mass", "answer_zeroed",
                "reasoning_zeroed", "answer_weakened", "reasoning_weakened", "kill",
                "pass")  # fmt: skip
"""Shares of tokens that are averaged over training."""

SCORED: Final = frozenset({"held_out", "greedy", "start_held_out"})
"""The columns that a run has which is done."""

Score = Callable[[Run], float]


def is_tokens(study: Study) -> bool:
    """Whether a study is a token experiment; an error if it is one only in part."""
    of_tokens = [run.config.get("kind") == "tokens" for run in study.runs]
    if any(of_tokens) and not all(of_tokens):
        first, other = study.runs[of_tokens.index(True)], study.runs[of_tokens.index(False)]
        raise KlipError(
            f"{first.path} is a run of a token experiment and {other.path} is not: "
            "give a folder with runs of one kind"
        )
    return any(of_tokens)


def final(run: Run) -> float:
    """Held-out accuracy at the end of training; completions are sampled."""
    return float(run.metrics["held_out"][-1])


def greedy(run: Run) -> float:
    """Held-out accuracy at the end of training; the likeliest token is taken."""
    return float(run.metrics["greedy"][-1])


def start(run: Run) -> float:
    """Held-out accuracy of the warm-up."""
    return float(run.metrics["start_held_out"][0])


def over_training(run: Run) -> float:
    """Held-out accuracy averaged over all looks: high for arms that learn early."""
    return float(np.nanmean(run.metrics["held_out"]))


def average(metric: str) -> Score:
    """A metric averaged over all iterations; NaN if it never had a value."""

    def score(run: Run) -> float:
        values = run.metrics.get(metric, np.array([np.nan]))
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

    return score


@dataclass(frozen=True, eq=False)
class Arm:
    """The runs of one shape, by seed."""

    name: str
    group: str
    shape: str
    place: int
    against: str
    """Another arm of the group that it is compared with, too; or nothing."""
    runs: tuple[Run, ...]

    @property
    def ended(self) -> tuple[Run, ...]:
        """The runs that are done, and have the scores of one."""
        return tuple(r for r in self.runs if r.status == "done" and r.metrics.keys() >= SCORED)

    def scores(self, score: Score) -> dict[int, float | None]:
        """From seed to score; None for a run that diverged."""
        known: dict[int, float | None] = {run.seed: score(run) for run in self.ended}
        return known | {run.seed: None for run in self.runs if run.status == "diverged"}

    def estimate(self, score: Score) -> Estimate | None:
        """Its mean over seeds; None where no run has a value."""
        known = [x for x in self.scores(score).values() if x is not None and not np.isnan(x)]
        return mean(Scores.of(known)) if known else None

    @property
    def collapsed(self) -> int:
        """Runs that diverged, or ended below half of their warm-up."""
        low = sum(final(run) < COLLAPSED * start(run) for run in self.ended)
        return low + sum(run.status == "diverged" for run in self.runs)


def arms_of(study: Study) -> tuple[Arm, ...]:
    """The arms of a token experiment, in the order of its plan."""
    runs: dict[tuple[int, str, str], list[Run]] = {}
    for run in study.runs:
        about = run.config
        key = int(about.get("place", 0)), str(about["group"]), str(about["arm"])
        runs.setdefault(key, []).append(run)
    return tuple(
        Arm(
            name, group, members[0].shape, place, str(members[0].config.get("against", "")),
            tuple(sorted(members, key=lambda run: run.seed)),
        )
        for (place, group, name), members in sorted(runs.items())
    )  # fmt: skip


def shown_runs(study: Study) -> list[Run]:
    """The run of each arm whose samples are shown: that of the lowest seed which has ended."""
    return [arm.ended[0] for arm in arms_of(study) if arm.ended]


def apart(first: Arm, second: Arm, score: Score = final) -> Estimate | None:
    """The first minus the second, each over its own seeds, with Welch's 95 % interval."""
    if not first.ended or not second.ended:
        return None
    x, y = (Scores.of(arm.scores(score).values()) for arm in (first, second))
    return difference(x, y)


def paired(first: Arm, second: Arm, score: Score) -> Estimate | None:
    """The first minus the second over the seeds of both, with a 95 % Student interval."""
    x, y = first.scores(score), second.scores(score)
    both = [s for s in x.keys() & y.keys() if x[s] is not None and y[s] is not None]
    if not both or any(np.isnan([x[s] or 0.0, y[s] or 0.0]).any() for s in both):
        return None
    return paired_difference(x, y).difference


@dataclass(frozen=True, eq=False)
class ArmFindings:
    """What the runs of one arm show; None where no run has a value."""

    arm: Arm
    start: Estimate | None
    final: Estimate | None
    over_training: Estimate | None
    greedy: Estimate | None
    parts: Mapping[str, Estimate | None]
    """By the names of `PARTS`."""
    difference: Estimate | None
    """Final accuracy minus that of the group's first arm."""
    early: Estimate | None
    """The same for the accuracy over training, seed by seed."""

    def share(self, part: str) -> float | None:
        """The estimate of one of the parts alone."""
        estimate = self.parts[part]
        return None if estimate is None else estimate.estimate


@dataclass(frozen=True, eq=False)
class MatchedPair:
    """Two arms that the plan compares, besides comparing each with the first."""

    arm: Arm
    other: Arm
    final: Estimate | None
    early: Estimate | None
    zeroed: Estimate | None


@dataclass(frozen=True, eq=False)
class GroupFindings:
    """Arms that are compared with each other."""

    name: str
    rows: tuple[ArmFindings, ...]
    matched: tuple[MatchedPair, ...]
    age_shares: tuple[float, ...]
    """The share of tokens of each age, over all updates; empty where ages were not counted."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Its arms; the others are compared with the first."""
        return tuple(row.arm for row in self.rows)


@dataclass(frozen=True, eq=False)
class TokenFindings:
    """What the runs of a token experiment show."""

    study: Study
    groups: tuple[GroupFindings, ...]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms of all groups."""
        return tuple(arm for group in self.groups for arm in group.arms)

    @property
    def comparisons(self) -> int:
        """How many differences of final accuracy claims are corrected for."""
        rows = [row.difference for group in self.groups for row in group.rows]
        pairs = [pair.final for group in self.groups for pair in group.matched]
        return sum(e is not None and e.p is not None for e in rows + pairs)


def find_arms(study: Study) -> TokenFindings:
    """Everything that a report says of a token experiment."""
    groups: dict[str, list[Arm]] = {}
    for arm in arms_of(study):
        groups.setdefault(arm.group, []).append(arm)
    return TokenFindings(study, _corrected([_group(name, arms) for name, arms in groups.items()]))


def _corrected(groups: Sequence[GroupFindings]) -> tuple[GroupFindings, ...]:
    """Groups whose final differences are one family of hypotheses, and those over training one."""
    rows = [row for group in groups for row in group.rows]
    pairs = [pair for group in groups for pair in group.matched]
    finals = iter(_family([*(row.difference for row in rows), *(pair.final for pair in pairs)]))
    early = iter(_family([*(row.early for row in rows), *(pair.early for pair in pairs)]))
    new_rows = iter([replace(row, difference=next(finals), early=next(early)) for row in rows])
    new_pairs = iter([replace(pair, final=next(finals), early=next(early)) for pair in pairs])
    return tuple(
        replace(
            group,
            rows=tuple(next(new_rows) for _ in group.rows),
            matched=tuple(next(new_pairs) for _ in group.matched),
        )
        for group in groups
    )


def _family(estimates: Sequence[Estimate | None]) -> list[Estimate | None]:
    tested = iter(corrected([e for e in estimates if e is not None]))
    return [None if e is None else next(tested) for e in estimates]


def _group(name: str, arms: list[Arm]) -> GroupFindings:
    named = {arm.name: arm for arm in arms}
    matched = (
        MatchedPair(
            arm, other, apart(arm, other), paired(arm, other, over_training),
            paired(arm, other, average("zeroed")),
        )
        for arm in arms
        if (other := named.get(arm.against)) is not None
    )  # fmt: skip
    return GroupFindings(
        name, tuple(_row(arm, arms[0]) for arm in arms), tuple(matched), _age_shares(arms)
    )


def _row(arm: Arm, first: Arm) -> ArmFindings:
    return ArmFindings(
        arm,
        arm.estimate(start),
        arm.estimate(final),
        arm.estimate(over_training),
        arm.estimate(greedy),
        {part: arm.estimate(average(part)) for part in PARTS},
        None if arm is first else apart(arm, first),
        None if arm is first else paired(arm, first, over_training),
    )


def _age_shares(arms: list[Arm]) -> tuple[float, ...]:
    runs = [run for arm in arms for run in arm.ended if "age_share" in run.metrics]
    rows = [run.metrics["age_share"].mean(axis=0) for run in runs]
    return tuple(float(x) for x in np.mean(rows, axis=0)) if rows else ()


def mean_over_rows(values: Column) -> Column:
    """The mean of each column, over the rows that have a value; NaN where none has.

    >>> mean_over_rows(np.array([[1.0, np.nan], [3.0, np.nan]]))
    array([ 2., nan])
    """
    there = ~np.isnan(values)
    count = there.sum(axis=0)
    total = np.where(there, values, 0.0).sum(axis=0)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def records(findings: TokenFindings) -> list[dict[str, Any]]:
    """One flat record per arm, for CSV."""
    rows = []
    for row in (row for group in findings.groups for row in group.rows):
        arm = row.arm
        estimates = {"start": row.start, "final": row.final, "over_training": row.over_training}
        estimates |= {part: row.parts[part] for part in PARTS[:6]}
        about: dict[str, Any] = {
            "group": arm.group, "arm": arm.name, "shape": arm.shape, "seeds": len(arm.ended),
            "collapsed": arm.collapsed,
        }  # fmt: skip
        for name, e in estimates.items():
            about |= {name: e.estimate if e else None, **ends(name, e)}
        about |= {**against("difference", row.difference), **against("early", row.early)}
        rows.append(about)
    return rows
