"""Where every shape of a league stands: from its runs to a small file, and from that to tables.

    runs ── write_standings ──> standings.json ── read_standings ──> Standings ── table ──> page
         (klip.studies.tallying)

`standings.json` has one line for each run of the league: what the tables need, and a checksum. The
tables are a function of it alone, and of no order in it. A newcomer is put on the scale of those
who were there before, and changes none of their scores.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from klip.errors import KlipError
from klip.runs.files import LARGEST_TEXT, of_json, read_file
from klip.runs.portraits import Portrait, of_fields, to_fields
from klip.shapes.names import brief
from klip.studies.bootstrap import Floats, draws, interquartile_mean, replicate
from klip.studies.comparing import corrected
from klip.studies.freezing import Choice, Frozen, Scales, choice_of, normalised, scale
from klip.studies.league import Rules, StageName, rules_from
from klip.studies.packing import is_packed
from klip.studies.scores import Estimate, Scores, stack
from klip.studies.sealed import is_reckonable
from klip.studies.statistics import iqm, probability_of_improvement

FILE: Final = "standings.json"
FORMAT: Final = "klip league standings 1"
RESAMPLES: Final = 2000
"""Of the scores, for intervals of ranks."""
Which = Literal["published", "tuned"]
WHICH: Final[tuple[Which, ...]] = ("published", "tuned")


class Game(NamedTuple):
    """One run of the league."""

    entrant: str
    factor: float
    task: str
    stress: str
    stage: StageName
    seed: int
    final: float | None
    """None where it diverged."""
    area: float | None
    first: float | None
    kill: float | None
    """Mean share of killed samples over training, of a shape that has a band."""
    kl: float | None
    """Mean KL(old || new) after a rollout's epochs."""
    curve: str
    """The beginning of a digest of its learning curve."""

    @property
    def cell(self) -> str:
        """The task under its stress."""
        return f"{self.task}, {self.stress}"


@dataclass(frozen=True, eq=False)
class Standings:
    """All runs of a league, and of newcomers."""

    rules: Rules
    frozen: Frozen
    entries: tuple[Game, ...]
    newcomers: tuple[str, ...] = ()
    portraits: Mapping[str, Portrait] = field(default_factory=dict)
    """How somebody's own shapes looked when their runs began, by spelling."""

    @property
    def entrants(self) -> tuple[str, ...]:
        """All shapes, newcomers last."""
        return (*self.rules.shapes, *self.newcomers)

    @cached_property
    def scales(self) -> Mapping[StageName, Scales]:
        """Zero and one of each cell, by stage, from the runs of those who are no newcomers."""
        return {"tuning": self._scales("tuning"), "testing": self._scales("testing")}

    def _scales(self, stage: StageName) -> Scales:
        own = [e for e in self.entries if e.stage == stage and e.entrant in self.rules.shapes]
        scales = {}
        for cell in self.rules.cells:
            firsts = sorted(e.first for e in own if e.cell == cell and e.first is not None)
            finals = sorted(
                e.final
                for e in own
                if (e.cell, e.entrant, e.factor) == (cell, self.rules.shapes[0], 1.0)
                and e.final is not None
            )
            scales[cell] = scale(cell, firsts, finals)
        return scales

    @property
    def untested(self) -> tuple[str, ...]:
        """Cells of a league that goes on in which shapes were tuned, and have not been tested."""
        tuned = [cell for c in self.frozen.values() for of in c.cells.values() for cell in of]
        return tuple(sorted({*tuned} - {*self.rules.cells}))

    def factor(self, entrant: str, which: Which) -> float:
        """The factor of a shape's radius in a table."""
        return 1.0 if which == "published" else self.frozen[entrant].factor

    def runs(self, entrant: str, which: Which) -> dict[str, list[Game]]:
        """The tests of a shape by cell, each by seed."""
        by_cell: dict[str, list[Game]] = {cell: [] for cell in self.rules.cells}
        factor = self.factor(entrant, which)
        for e in self.entries:
            if (e.entrant, e.factor, e.stage) == (entrant, factor, "testing"):
                by_cell[e.cell].append(e)
        return {cell: sorted(own, key=lambda e: e.seed) for cell, own in by_cell.items()}

    def joined(self, other: Standings) -> Standings:
        """These standings with a newcomer's runs among them."""
        return replace(
            self,
            frozen={**self.frozen, **other.frozen},
            entries=(*self.entries, *other.entries),
            newcomers=(*self.newcomers, *other.rules.shapes),
            portraits={**self.portraits, **other.portraits},
        )


class Pushed(NamedTuple):
    """A shape under one stress alone."""

    iqm: Estimate
    better: Estimate | None
    """Probability of improvement over PPO-Clip, corrected for all shapes under this stress."""


@dataclass(frozen=True, eq=False)
class Standing:
    """A shape's line in a table."""

    entrant: str
    label: str
    which: Which
    spelling: str
    factor: float
    scores: Scores
    iqm: Estimate
    better: Estimate | None
    """Probability of improvement over PPO-Clip of the same table, corrected for all shapes."""
    same: bool
    """Whether every run has PPO-Clip's learning curve."""
    ranks: tuple[int, int]
    """Between which its rank lies, in 95 of 100 resamples."""
    stress: Mapping[str, Pushed]
    """Under each stress alone."""
    cells: Mapping[str, float]
    """Mean score in each cell."""
    diverged: int
    kill: float | None
    kl: float | None
    newcomer: bool


def table(standings: Standings, which: Which) -> list[Standing]:
    """All shapes, the highest IQM of normalised scores first."""
    clip = standings.rules.shapes[0]
    scores = {name: _scores(standings, name, which) for name in standings.entrants}
    curves = {name: _curves(standings, name, which) for name in standings.entrants}
    same = {name for name, curve in curves.items() if curve == curves[clip]}
    ranks, better = _ranks(scores), _better(scores, clip, same)
    under: dict[str, dict[str, Pushed]] = {name: {} for name in scores}
    for stress in standings.rules.stress:
        pushed = {name: _under(of, stress.name) for name, of in scores.items()}
        gains = _better(pushed, clip, same)
        for name, own in pushed.items():
            under[name][stress.name] = Pushed(iqm(own), gains.get(name))
    rows = []
    for name, own in scores.items():
        choice = standings.frozen[name]
        runs = [e for cell in standings.runs(name, which).values() for e in cell]
        rows.append(
            Standing(
                name, brief(name), which, choice.spelling if which == "tuned" else name,
                standings.factor(name, which), own, iqm(own), better.get(name), name in same,
                ranks[name], under[name],
                {cell: float(row.mean()) for cell, row in zip(own.tasks, own.grid, strict=True)},
                sum(e.final is None for e in runs), _mean(e.kill for e in runs),
                _mean(e.kl for e in runs), name in standings.newcomers,
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: (-row.iqm.estimate, row.label))


def sensitivity(choice: Choice) -> float:
    """mean over cells of max over settings, less max over settings of the mean over cells.

    Adkins et al. 2024: what a shape loses if it must have one radius everywhere.

    >>> sensitivity(Choice(1.0, "", {"1": 0.5, "2": 0.5}, {"1": {"a": 1, "b": 0},
    ...                                                     "2": {"a": 0, "b": 1}}))
    0.5
    """
    grid = np.array([list(of.values()) for of in choice.cells.values()])
    return float(grid.max(axis=0).mean() - grid.mean(axis=1).max())


def as_text(standings: Standings) -> str:
    """The standings as their file has them, a line for each run, whatever order they came in."""
    rules = json.dumps(standings.rules.fields, sort_keys=True)
    chosen = {shape: asdict(choice) for shape, choice in standings.frozen.items()}
    frozen = json.dumps(chosen, sort_keys=True)
    lines = [json.dumps(list(entry)) for entry in sorted(standings.entries, key=_key)]
    body = f'"rules": {rules},\n"frozen": {frozen},\n"runs": [\n' + ",\n".join(lines) + "\n]"
    if standings.portraits:
        drawn = {shape: to_fields(each) for shape, each in standings.portraits.items()}
        body += f',\n"shapes": {json.dumps(drawn, sort_keys=True)}'
    seal = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"format": "{FORMAT}", "sha256": "{seal}",\n{body}}}\n'


def _game(line: Any) -> Game:
    """A run of the league from its line in the file."""
    game = Game(*line)
    words = (game.entrant, game.task, game.stress, game.stage, game.curve)
    numbers = [game.factor, game.seed, *(number for number in game[6:11] if number is not None)]
    if not all(isinstance(word, str) for word in words) or not all(map(is_reckonable, numbers)):
        raise ValueError(f"{str(line)[:80]} is no run of a league")
    return game


def read_standings(path: Path) -> Standings:
    """The standings in a file, or in the folder of a league's runs."""
    file = path / FILE if path.is_dir() else path
    try:
        text = read_file(file, LARGEST_TEXT).decode()
        data = of_json(text.encode())
        body = text.partition(",\n")[2].rpartition("}")[0]
        if data["format"] != FORMAT or hashlib.sha256(body.encode()).hexdigest() != data["sha256"]:
            raise ValueError("it is not what its checksum says")
        frozen = {shape: choice_of(choice) for shape, choice in data["frozen"].items()}
        entries = tuple(map(_game, data["runs"]))
        drawn = {shape: of_fields(each) for shape, each in data.get("shapes", {}).items()}
        if any(shape != each.spelling for shape, each in drawn.items()):
            raise ValueError("it has a picture of another shape")
        return Standings(rules_from(data["rules"]), frozen, entries, portraits=drawn)
    except FileNotFoundError:
        how = f" --have {path}" if is_packed(path) else ""
        raise KlipError(
            f"there are no standings in {path}: `klip run league{how}` writes them into --out when "
            "all has been tested"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise KlipError(f"{file} is damaged or no file of standings: {error}") from None


def shipped_standings() -> Path:
    """The standings that come with Klip."""
    return Path(str(files("klip.studies") / "data" / FILE))


def name_of(rules: Rules) -> str:
    """The name of the file: a newcomer's own, or the league's."""
    if len(rules.shapes) > 1:
        return FILE
    digest = hashlib.sha256(json.dumps(rules.fields, sort_keys=True).encode()).hexdigest()
    return f"standings-{digest[:8]}.json"


def _key(entry: Game) -> tuple[Any, ...]:
    return entry.entrant, entry.stage, entry.factor, entry.stress, entry.task, entry.seed


def _scores(standings: Standings, entrant: str, which: Which) -> Scores:
    scales = standings.scales["testing"]
    by_cell = {}
    for cell, runs in standings.runs(entrant, which).items():
        if len(runs) != len(standings.rules.testing.seeds):
            raise KlipError(
                f"{brief(entrant)} has {len(runs)} tests in {cell}, not "
                f"{len(standings.rules.testing.seeds)}: `klip run league` finishes what is missing"
            )
        diverged = sum(e.final is None for e in runs)
        values = np.array(normalised([e.final for e in runs], scales[cell]))
        by_cell[cell] = Scores(values, diverged=diverged, counted=diverged)
    if len(by_cell) == 1:
        cell, only = next(iter(by_cell.items()))
        return replace(only, values=only.values[None], tasks=(cell,))
    return stack(by_cell)


def _under(scores: Scores, stress: str) -> Scores:
    """The scores in the cells of one stress."""
    chosen = [i for i, cell in enumerate(scores.tasks) if cell.endswith(f", {stress}")]
    return Scores(scores.grid[chosen], tasks=tuple(scores.tasks[i] for i in chosen))


def _better(scores: Mapping[str, Scores], clip: str, same: Collection[str]) -> dict[str, Estimate]:
    """Each other shape's probability of improvement over PPO-Clip, corrected for all of them.

    Who has PPO-Clip's own runs is not tested.
    """
    gains = {
        name: probability_of_improvement(own, scores[clip])
        for name, own in scores.items()
        if name != clip
    }
    tests = [replace(e, p=None) if name in same else e for name, e in gains.items()]
    return dict(zip(gains, corrected(tests), strict=True))


def _ranks(scores: Mapping[str, Scores]) -> dict[str, tuple[int, int]]:
    """Between which ranks each shape lies, if seeds are drawn anew within cells."""
    samples = np.stack([_resampled(of.grid) for of in scores.values()])
    ranks = 1 + (samples[None, :, :] > samples[:, None, :]).sum(axis=1)
    low, high = np.quantile(ranks, [0.025, 0.975], axis=1, method="nearest")
    return {name: (int(a), int(b)) for name, a, b in zip(scores, low, high, strict=True)}


def _resampled(grid: Floats) -> Floats:
    """IQMs of resamples; equal scores are drawn alike, and no order matters."""
    stream = int.from_bytes(hashlib.sha256(grid.tobytes()).digest()[:8], "little")
    return replicate(grid, interquartile_mean, draws(grid.shape, RESAMPLES, 0, stream))


def _curves(standings: Standings, entrant: str, which: Which) -> Sequence[str]:
    runs = standings.runs(entrant, which)
    return [e.curve for cell in standings.rules.cells for e in runs[cell]]


def _mean(values: Iterable[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return float(np.mean(known)) if known else None


def places(rows: Sequence[Standing]) -> dict[str, int]:
    """1 + how many score higher, by entrant: equal scores share their place."""
    scores = {row.entrant: row.iqm.estimate for row in rows}
    return {name: 1 + sum(x > own for x in scores.values()) for name, own in scores.items()}


def records(rows: Sequence[Standing]) -> list[dict[str, Any]]:
    """One flat record for each shape, for CSV and JSON."""
    made: dict[str, list[dict[str, Any]]] = defaultdict(list)
    place = places(rows)
    for row in rows:
        better = row.better
        made[row.which].append({
            "table": row.which, "place": place[row.entrant], "shape": row.entrant,
            "label": row.label, "played": row.spelling, "factor": row.factor,
            "newcomer": row.newcomer,
            "iqm": row.iqm.estimate, "low": row.iqm.low, "high": row.iqm.high,
            "rank_low": row.ranks[0], "rank_high": row.ranks[1],
            "improvement": better.estimate if better else None,
            "p": better.p if better else None, "p_holm": better.p_holm if better else None,
            "same_as_clip": row.same, "diverged": row.diverged, "kill": row.kill, "kl": row.kl,
            **{f"iqm {name}": of.iqm.estimate for name, of in row.stress.items()},
            **{f"improvement {name}": of.better.estimate if of.better else None
               for name, of in row.stress.items()},
            **{f"p_holm {name}": of.better.p_holm if of.better else None
               for name, of in row.stress.items()},
            **{f"mean {cell}": value for cell, value in row.cells.items()},
        })  # fmt: skip
    return [line for lines in made.values() for line in lines]
