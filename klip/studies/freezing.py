"""Freezing: the best radius of each shape, written once and never again.

    score of a setting = mean over cells, mean over seeds, of (x - zero) / (one - zero)
    zero: the mean return with which runs begin in the cell; one: PPO-Clip's mean final return there

`frozen.json` holds the choices with all scores that they rest on (`klip.studies.sealed`). Once it
is there the testing stage reads it, and nothing writes it again: who has seen a test may not tune.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from klip.engine.advance import Keeping
from klip.errors import KlipError
from klip.runs.files import of_json
from klip.studies.answering import Ending, outcome
from klip.studies.gathering import run_of
from klip.studies.league import Rules, Trial, rules_from
from klip.studies.sealed import Sealed, content, damaged, is_reckonable, name_for

FILE: Final = "frozen.json"
FORMAT: Final = "klip league frozen 1"
Scales = Mapping[str, tuple[float, float]]
"""Zero and one of each cell."""


@dataclass(frozen=True)
class Choice:
    """The frozen radius of a shape, and the scores of all that were tried."""

    factor: float
    spelling: str
    scores: Mapping[str, float]
    """By factor, over all cells."""
    cells: Mapping[str, Mapping[str, float]]
    """By factor and cell."""


Frozen = Mapping[str, Choice]
"""By entrant."""


def freeze(rules: Rules, keeping: Keeping, scales: Scales | None = None) -> Frozen:
    """The frozen choices: read if they are there, else made from the tuning runs and written.

    Args:
        rules: of the league
        keeping: where its runs are
        scales: zero and one of each cell, if others have set them; else those of these runs

    """
    file = _file(rules)
    found = file.adopt(keeping)
    if found is not None:
        return _frozen(file, keeping, found)
    file.refuse_after([t.job for t in rules.trials("testing") if t.factor != 1], keeping)
    trials = rules.trials("tuning")
    outcomes = {t.job.id: outcome(run_of(t.job, keeping)) for t in trials}
    scales = scales or scales_of(trials, outcomes, rules.shapes[0])
    chosen = {shape: _choice(rules, shape, trials, outcomes, scales) for shape in rules.shapes}
    made = file.write(
        keeping,
        {
            "scales": {cell: list(pair) for cell, pair in scales.items()},
            "runs": {t.job.id: outcomes[t.job.id].final for t in trials},
            "chosen": {shape: asdict(choice) for shape, choice in chosen.items()},
        },
    )
    return _frozen(file, keeping, made)


def read_frozen(rules: Rules, keeping: Keeping) -> Frozen | None:
    """What was frozen for a league, in its folder or in a pack that it has; None where nothing was.

    What was frozen in its folder for other rules, or edited since, is an error.
    """
    file = _file(rules)
    found = file.read(keeping)
    return None if found is None else _frozen(file, keeping, found)


def rules_frozen(keeping: Keeping) -> Rules | None:
    """The rules of the league that has frozen its choices in a folder, or in a pack that it has."""
    packed = (choices.get(FILE) for choices in keeping.have.choices.values())
    path = keeping.out / FILE
    data = content(path) if path.is_file() else next(filter(None, packed), None)
    if data is None:
        return None
    try:
        return rules_from(of_json(data)["frozen"]["rules"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise damaged(path, "league", error) from None


def _frozen(file: Sealed, keeping: Keeping, data: Mapping[str, Any]) -> Frozen:
    try:
        return {shape: choice_of(choice) for shape, choice in data["chosen"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise file.damaged(keeping, error) from None


def choice_of(fields: Mapping[str, Any]) -> Choice:
    """A choice from its fields in a file; raises ValueError or TypeError if it is none."""
    choice = Choice(**fields)
    scores = [choice.scores, *choice.cells.values()]
    numbers = [choice.factor, *(number for each in scores for number in each.values())]
    if not isinstance(choice.spelling, str) or not all(map(is_reckonable, numbers)):
        raise ValueError(f"{str(fields)[:80]} is no choice of a radius")
    return choice


def factors_to_test(frozen: Frozen) -> dict[str, tuple[float, ...]]:
    """The factors with which each shape is tested: as published, and tuned."""
    return {shape: tuple(dict.fromkeys((1.0, c.factor))) for shape, c in frozen.items()}


def scales_of(trials: Sequence[Trial], outcomes: Mapping[str, Ending], clip: str) -> Scales:
    """Zero and one of each cell, from these runs."""
    firsts, finals = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for trial in trials:
        run = outcomes[trial.job.id]
        if not np.isnan(run.first):
            firsts[trial.cell].append(run.first)
        if trial.entrant == clip and trial.factor == 1 and run.final is not None:
            finals[trial.cell].append(run.final)
    cells = dict.fromkeys(trial.cell for trial in trials)
    return {cell: scale(cell, firsts[cell], finals[cell]) for cell in cells}


def scale(cell: str, firsts: Sequence[float], finals: Sequence[float]) -> tuple[float, float]:
    """Zero and one of a cell: means of first returns, and of PPO-Clip's final returns."""
    if not finals or not firsts or not np.mean(finals) > np.mean(firsts):
        raise KlipError(
            f"PPO-Clip has learned nothing in {cell}, so scores there have no scale: give more "
            "steps, or leave the cell out"
        )
    return float(np.mean(firsts)), float(np.mean(finals))


def normalised(finals: Sequence[float | None], scale: tuple[float, float]) -> list[float]:
    """Scores on the scale of their cell; a run that diverged has 0, or the lowest if that is less.

    >>> normalised([10.0, None, 20.0], (10.0, 30.0))
    [0.0, 0.0, 0.5]
    """
    zero, one = scale
    known = [(x - zero) / (one - zero) for x in finals if x is not None]
    lowest = min([0.0, *known])
    return [lowest if x is None else (x - zero) / (one - zero) for x in finals]


def _choice(
    rules: Rules,
    entrant: str,
    trials: Sequence[Trial],
    outcomes: Mapping[str, Ending],
    scales: Scales,
) -> Choice:
    cells: dict[str, dict[str, float]] = {}
    for factor in rules.factors_of(entrant):
        own: dict[str, list[float | None]] = defaultdict(list)
        for trial in trials:
            if (trial.entrant, trial.factor) == (entrant, factor):
                own[trial.cell].append(outcomes[trial.job.id].final)
        cells[f"{factor:g}"] = {
            cell: float(np.mean(normalised(finals, scales[cell]))) for cell, finals in own.items()
        }
    scores = {factor: float(np.mean(list(of.values()))) for factor, of in cells.items()}
    # of equal scores, the one nearest to what was published
    best = max(scores, key=lambda factor: (scores[factor], -abs(np.log(float(factor)))))
    return Choice(float(best), rules.scaled(entrant, float(best)), scores, cells)


def _file(rules: Rules) -> Sealed:
    """Where the choices are; a newcomer's have a file of their own."""
    name = FILE if len(rules.shapes) > 1 else name_for(rules.fields)
    return Sealed("league", name, FORMAT, rules.fields)
