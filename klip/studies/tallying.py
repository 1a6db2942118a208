"""From a league's runs to its standings: at its end, or so far.

runs ── tally ──> Standings ── write_standings ──> standings.json
runs of a league that goes on ── so_far ──> Standings of the tasks that have been tested whole
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from klip.engine.advance import Keeping
from klip.engine.finish import survey
from klip.engine.having import having
from klip.errors import KlipError
from klip.runs.files import own_folder, write_whole
from klip.runs.portraits import Portrait
from klip.studies.answering import outcome
from klip.studies.bootstrap import Floats
from klip.studies.freezing import Frozen, factors_to_test, read_frozen, rules_frozen
from klip.studies.gathering import run_of
from klip.studies.league import Rules
from klip.studies.packing import is_packed
from klip.studies.standings import FILE, Game, Standings, as_text, name_of, read_standings


def tally(rules: Rules, frozen: Frozen, keeping: Keeping) -> Standings:
    """What the tables need of all runs of a league, each of which has ended."""
    entries: list[Game] = []
    portraits: dict[str, Portrait] = {}
    factors = factors_to_test(frozen)
    for stage in ("tuning", "testing"):
        chosen = None if stage == "tuning" else factors
        for trial in rules.trials(stage, chosen):
            run = run_of(trial.job, keeping)
            if ":" in trial.job.shape and run.portrait is not None:
                portraits.setdefault(trial.job.shape, run.portrait)
            end = outcome(run)
            first = None if np.isnan(end.first) else end.first
            of = {name: _average(run.metrics.get(name)) for name in ("kill", "kl")}
            entries.append(
                Game(trial.entrant, trial.factor, trial.task, trial.stress, stage, trial.job.seed,
                      end.final, end.area, first, of["kill"], of["kl"], end.curve[:16])
            )  # fmt: skip
    return Standings(rules, frozen, tuple(entries), portraits=portraits)


def write_standings(rules: Rules, frozen: Frozen, keeping: Keeping) -> Path:
    """Write the standings of a league that is over; return the file."""
    path = keeping.out / name_of(rules)
    own_folder(keeping.out)
    write_whole(path, as_text(tally(rules, frozen, keeping)).encode())
    return path


def standings_in(place: Path) -> Standings:
    """The standings in a file, or of the league whose runs or whose pack lies in a folder."""
    if place.is_dir() and not (place / FILE).is_file():
        return so_far(place)
    return read_standings(place)


def so_far(folder: Path) -> Standings:
    """The standings of a league that goes on: of the tasks that have been tested whole.

    Args:
        folder: of its runs, or of a pack of them, where choices have been frozen

    """
    keeping = Keeping(folder, have=having([folder] if is_packed(folder) else []))
    rules = rules_frozen(keeping)
    if rules is None:
        return read_standings(folder)  # says that there are none, and what makes some
    if own := [shape for shape in rules.shapes if ":" in shape]:
        raise KlipError(
            f"{folder} has a league that is not over, with a shape of somebody's own, {own[0]}: "
            "`klip run` with its plan takes it to its end"
        )
    frozen = read_frozen(rules, keeping)
    assert frozen is not None
    trials = rules.trials("testing", factors_to_test(frozen))
    ended = survey([trial.job for trial in trials], keeping).ended
    left = {trial.task for trial in trials if trial.job.id not in ended}
    tested = tuple(task for task in rules.tasks if task not in left)
    if not tested:
        raise KlipError(
            f"no task of the league in {folder} has been tested whole: {len(ended)} of "
            f"{len(trials)} tests have ended; `klip run` with its plan goes on"
        )
    return tally(replace(rules, tasks=tested), frozen, keeping)


def _average(column: Floats | None) -> float | None:
    if column is None or np.isnan(column).all():
        return None
    return float(np.nanmean(column))
