"""Freezing: the best radius of each shape, written once and never again.

    score of a setting = mean over cells, mean over seeds, of (x - zero) / (one - zero)
    zero: the mean return with which runs begin in the cell; one: PPO-Clip's mean final return there

`frozen.json` holds the choices with all scores that they rest on, and a checksum. Once it is there
the testing stage reads it, and nothing writes it again: who has seen a test may not tune. A pack of
a league's runs has the file, too, and a league that goes on from the pack keeps to its choices.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from klip.engine.advance import Keeping
from klip.errors import KlipError
from klip.runs.files import LARGEST_TEXT, of_json, own_folder, read_file, write_whole
from klip.studies.answering import Ending, outcome
from klip.studies.gathering import run_of
from klip.studies.league import Rules, Trial

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
    out = keeping.out
    found = _found(rules, keeping)
    if found is not None:
        path, data = found
        if path.parent != out:  # from a pack: tests in this folder will rest on it
            own_folder(out)
            write_whole(out / _name(rules), data)
        return _read(path, data, rules)
    _refuse_after_a_test(rules, keeping)
    trials = rules.trials("tuning")
    outcomes = {t.job.id: outcome(run_of(t.job, keeping)) for t in trials}
    scales = scales or scales_of(trials, outcomes, rules.shapes[0])
    chosen = {shape: _choice(rules, shape, trials, outcomes, scales) for shape in rules.shapes}
    text = json.dumps(
        {
            "rules": rules.fields,
            "scales": {cell: list(pair) for cell, pair in scales.items()},
            "runs": {t.job.id: outcomes[t.job.id].final for t in trials},
            "chosen": {shape: asdict(choice) for shape, choice in chosen.items()},
        },
        sort_keys=True,
        indent=1,
    )
    seal = hashlib.sha256(text.encode()).hexdigest()
    whole = {"format": FORMAT, "sha256": seal, "frozen": json.loads(text)}
    data = (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode()
    own_folder(out)
    write_whole(out / _name(rules), data)
    return _read(out / _name(rules), data, rules)


def read_frozen(rules: Rules, keeping: Keeping) -> Frozen | None:
    """What was frozen for a league, in its folder or in a pack that it has; None where nothing was.

    What was frozen in its folder for other rules, or edited since, is an error.
    """
    found = _found(rules, keeping)
    return None if found is None else _read(*found, rules)


def _found(rules: Rules, keeping: Keeping) -> tuple[Path, bytes] | None:
    """The file of the choices, and its content: the folder's, or of a pack, and all agree."""
    files: dict[Path, bytes] = {}
    own = keeping.out / _name(rules)
    if own.is_file():
        files[own] = _bytes(own)
    for pack, choices in keeping.have.choices.items():
        data = choices.get(_name(rules))
        if data is not None and _is_for(rules, data):  # others are of another league
            files[pack / _name(rules)] = data
    if not files:
        return None
    first, *others = files.items()
    for path, data in others:
        if data != first[1]:
            raise KlipError(
                f"{first[0]} and {path} have frozen other choices for one league: its tests rest "
                "on one of them, so leave the other out"
            )
    return first


def _bytes(path: Path) -> bytes:
    try:
        return read_file(path, LARGEST_TEXT)
    except OSError as error:
        raise KlipError(f"{path} cannot be read: {error.strerror}") from None


def _is_for(rules: Rules, data: bytes) -> bool:
    """Whether choices are for these rules; what cannot be read is, and is an error where it is."""
    try:
        return bool(of_json(data)["frozen"]["rules"] == json.loads(json.dumps(rules.fields)))
    except (ValueError, KeyError, TypeError):
        return True


def _read(path: Path, content: bytes, rules: Rules) -> Frozen:
    """The choices in a file."""
    try:
        whole = of_json(content)
        data = whole["frozen"]
        text = json.dumps(data, sort_keys=True, indent=1)
        if (
            whole["format"] != FORMAT
            or hashlib.sha256(text.encode()).hexdigest() != whole["sha256"]
        ):
            raise ValueError("it is not what its checksum says")
        if data["rules"] != json.loads(json.dumps(rules.fields)):
            raise KlipError(
                f"{path} is frozen for other rules (tasks, shapes, seeds or steps): "
                "choose another folder with --out"
            )
        return {shape: choice_of(choice) for shape, choice in data["chosen"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KlipError(
            f"{path} is damaged or was edited ({error}): bring it back as it was frozen, or "
            "begin a league in another folder"
        ) from None


def choice_of(fields: Mapping[str, Any]) -> Choice:
    """A choice from its fields in a file; raises ValueError or TypeError if it is none."""
    choice = Choice(**fields)
    scores = [choice.scores, *choice.cells.values()]
    numbers = [choice.factor, *(number for each in scores for number in each.values())]
    if not isinstance(choice.spelling, str) or not all(map(is_number, numbers)):
        raise ValueError(f"{str(fields)[:80]} is no choice of a radius")
    return choice


def is_number(value: Any) -> bool:
    """Whether a value of a file is a number that can be reckoned with.

    >>> is_number(0.5), is_number(True), is_number("1"), is_number(10**400)
    (True, False, False, False)
    """
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and not abs(value) > 1e300
    )


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


def _refuse_after_a_test(rules: Rules, keeping: Keeping) -> None:
    """Raise where tests have been run and the choices that they rest on are gone."""
    for trial in rules.trials("testing"):
        path, pack = keeping.path(trial.job), keeping.have.places.get(trial.job.id)
        if trial.factor != 1 and (path.is_dir() or pack is not None):
            place = keeping.out if path.is_dir() else pack
            raise KlipError(
                f"{place} has tests of tuned shapes, such as {trial.job.shape} on {trial.job.task} "
                f"seed {trial.job.seed}, and no {_name(rules)} for these rules: bring that back; "
                "nothing is tuned again after a look at tests"
            )


def _name(rules: Rules) -> str:
    """A newcomer's choice has a file of its own."""
    if len(rules.shapes) > 1:
        return FILE
    digest = hashlib.sha256(json.dumps(rules.fields, sort_keys=True).encode()).hexdigest()
    return f"frozen-{digest[:8]}.json"
