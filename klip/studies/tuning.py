"""`klip.tune`: search the knobs of a shape and of the trainer, whole batches of trials at once.

    ask a batch ── train what is missing of it, in lockstep ── tell its scores ──┐
         └──────────────────────── until there are enough trials ───────────────┘

Optuna's sampler has a seed and hears scores in the order of trials, so trials are a function of the
question and of the runs that have ended: a search that was killed asks the same again, and finds
the runs that are there. Trials are trained on seeds from `FIRST_SEED` on, and a plan of what was
found has seeds from 0 on: no seed that was tuned on is tested on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np

from klip.disk import operations
from klip.engine.advance import CHECKPOINT_EVERY, Keeping
from klip.engine.fields import check_runs, whole_number
from klip.engine.finish import (
    ENDED,
    Listener,
    Result,
    Runner,
    Survey,
    Unfinished,
    check_missing,
    finish,
    survey,
)
from klip.engine.run import Site, site
from klip.errors import KlipError
from klip.ppo.config import Config, config
from klip.ppo.knobs import Setting, turned
from klip.ppo.presets import shape_of
from klip.runs.files import disk, read_json, write_whole
from klip.shapes import Region
from klip.shapes.names import spelled
from klip.studies.answering import Ending, Metric, outcome
from klip.studies.asking import Sampler, library
from klip.studies.ranges import Range, Spec, ranges_in
from klip.studies.reading import read_one

Train = Callable[[Survey, Runner], list[Result]]
"""Trains what is missing of a batch."""

FIRST_SEED: Final = 1000
"""The first seed that trials are trained on."""
TEST_SEEDS: Final = 10
"""How many seeds, from 0 on, the plan of what was found has."""


@dataclass(frozen=True)
class TuningQuestion:
    """What is searched, where, and how."""

    task: str
    shape: str
    """as it is where no knob is turned"""
    over: tuple[Range, ...]
    trials: int
    batch: int
    """trials that are asked for, and trained, together"""
    seeds: int
    """that each trial is trained on"""
    metric: Metric
    seed: int
    """of the search"""
    preset: str
    fields: Mapping[str, Any]
    """of the config"""

    def setting(self, knobs: Mapping[str, Any]) -> Setting:
        """Shape and fields of a trial."""
        return turned(self.shape, self.fields, knobs)

    def jobs(self, knobs: Mapping[str, Any]) -> list[Config]:
        """The runs of a trial."""
        shape, fields = self.setting(knobs)
        return [
            config(self.task, preset=self.preset, shape=shape, seed=FIRST_SEED + i, **fields)
            for i in range(self.seeds)
        ]

    @property
    def id(self) -> str:
        """A digest of all that trials depend on; more trials begin with the same ones."""
        own = {**asdict(self), "trials": 0, "over": [str(each) for each in self.over]}
        return hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode()).hexdigest()[
            :10
        ]


@dataclass(frozen=True)
class Tried:
    """A trial: where the knobs stood, and what came of it."""

    knobs: Mapping[str, Any]
    score: float
    """mean over seeds; a run that diverged counts at the lowest score, or where runs begin"""
    scores: tuple[float | None, ...]
    """of each seed; None where the run diverged"""


@dataclass(frozen=True)
class Tuned:
    """What a search has found."""

    question: TuningQuestion
    trials: tuple[Tried, ...]
    """in the order in which they were asked for"""
    importance: Mapping[str, float]
    """of each knob for being among the better trials, by PED-ANOVA, 1 in all; {} if none differ"""

    @property
    def best(self) -> Tried:
        """The trial of the highest score, the first of several."""
        return max(self.trials, key=lambda trial: trial.score)

    @property
    def plan(self) -> str:
        """The found setting as a plan that `klip run` takes, on seeds that tuning has not seen."""
        q, best = self.question, self.best
        shape, fields = q.setting(best.knobs)
        fields = {**({} if q.preset == "paper" else {"preset": q.preset}), **fields}
        tuned = ", ".join(str(each) for each in q.over)
        about = (
            f"Found by klip tune: the best of {len(self.trials)} trials over {tuned}, on {q.seeds} "
            f"seed{'s' if q.seeds > 1 else ''} from {FIRST_SEED} on; tested on others."
        )
        inside = ", ".join(f"{name} = {_toml(value)}" for name, value in fields.items())
        return (
            f"about = {_toml(about)}\nseeds = {TEST_SEEDS}\n\n[[runs]]\n"
            f"tasks = [{_toml(q.task)}]\nshapes = [{_toml(shape)}]\n"
            + (f"config = {{ {inside} }}\n" if fields else "")
        )

    @property
    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        q = self.question
        return {
            "task": q.task,
            "shape": q.shape,
            "preset": q.preset,
            "over": [str(each) for each in q.over],
            "metric": q.metric,
            "seeds": [FIRST_SEED + i for i in range(q.seeds)],
            "best": asdict(self.best),
            "importance": dict(self.importance),
            "trials": [asdict(trial) for trial in self.trials],
        }


def tune(
    task: str,
    shape: str | Region | None = None,
    over: Sequence[str] | Mapping[str, Spec] = ("lr",),
    trials: int = 64,
    batch: int = 16,
    seeds: int = 1,
    metric: Metric = "final",
    seed: int = 0,
    *,
    preset: str = "paper",
    out: str | Path = "tuning",
    workers: int | None = None,
    ray: str | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    progress: Listener = lambda news: None,
    **fields: Any,
) -> Tuned:
    """Search knobs for the highest return; the same call again goes on where it was stopped.

    Raises `Unfinished` where a run failed.

    >>> tuned = tune("Hopper-v4", "clip", ["lr", "eps=0.1..0.4"], steps=3e5)  # doctest: +SKIP
    >>> tuned.best.knobs, tuned.importance  # doctest: +SKIP

    Args:
        task: Gymnasium id; one of your own is `module:Id-v0` or `file.py:Id-v0`
        shape: a trust region or controller, or its spelling; the preset's unless given
        over: knobs, each a config field or a number of the shape: `lr`, `lr=1e-5..1e-2`,
            `epochs=3,10`; or a mapping from names to lists, ranges as text, or None
        trials: how many settings are tried
        batch: how many are asked for, and trained, together
        seeds: how many seeds each is trained on, from 1000 on
        metric: "final" return, or "area" under the learning curve
        seed: of the search
        preset: whose conventions hold where no field says otherwise
        out: folder for the runs and the study; those that are there are used
        workers: number of processes here; one per core unless given
        ray: address of a Ray cluster to train on; "auto" is the one this machine belongs to
        checkpoint_every: seconds between checkpoints
        accept_changes: go on with runs begun under other versions or on another processor
        start_over: begin again the runs whose checkpoints are all damaged
        progress: called with the news of every iteration of every run
        fields: those of `Config` that are not searched, `steps` among them

    Returns:
        all trials, the best of them as a plan, and how much each knob matters

    """
    question = ask(task, shape, over, trials, batch, seeds, metric, seed, preset, **fields)
    keeping = Keeping(Path(out), checkpoint_every, accept_changes, start_over)

    def train(surveyed: Survey, runner: Runner) -> list[Result]:
        return finish(surveyed, runner, progress)

    return search(question, keeping, site(workers, ray), train)


def ask(
    task: str,
    shape: str | Region | None,
    over: Sequence[str] | Mapping[str, Spec],
    trials: int = 64,
    batch: int = 16,
    seeds: int = 1,
    metric: Metric = "final",
    seed: int = 0,
    preset: str = "paper",
    **fields: Any,
) -> TuningQuestion:
    """A question that means something, at the ends of every range; else an error in a line."""
    text = (
        shape_of(preset) if shape is None else shape if isinstance(shape, str) else spelled(shape)
    )
    counts = {"trials": trials, "batch": batch, "seeds": seeds}
    counts = {name: whole_number(name, value) for name, value in counts.items()}
    for name, value in counts.items():
        if value < 1:
            raise KlipError(f"{name}={value} must be at least 1")
    check_runs(counts["trials"] * counts["seeds"])
    if whole_number("seed", seed) < 0:
        raise KlipError(f"seed={seed} must be at least 0")
    if metric not in get_args(Metric):
        raise KlipError(f"metric={metric!r} must be one of {', '.join(get_args(Metric))}")
    ranges = ranges_in(text, over)
    for each in ranges:
        if each.name in fields:
            raise KlipError(f"{each.name} is given and searched over: leave out one of them")
    if "seed" in fields:
        raise KlipError("the seeds of runs are from 1000 on: give how many, as seeds")
    question = TuningQuestion(
        task, text, ranges, **counts, metric=metric, seed=seed, preset=preset, fields=fields
    )
    for each in ranges:
        for end in each.ends:
            question.jobs({each.name: end})
    return question


def search(
    question: TuningQuestion,
    keeping: Keeping,
    where: Site,
    train: Train,
    seen: Callable[[Sequence[Tried]], None] = lambda trials: None,
) -> Tuned:
    """Ask, train and tell, batch by batch.

    Args:
        question: what is searched
        keeping: where and how runs are kept
        where: who trains
        train: trains the missing runs of a batch
        seen: hears of all trials so far after every batch

    """

    def endings(asked: Sequence[Mapping[str, Any]]) -> list[list[Ending]]:
        jobs = [question.jobs(knobs) for knobs in asked]
        every = {job.id: job for each in jobs for job in each}
        surveyed = survey(list(every.values()), keeping)
        if surveyed.missing:
            check_missing(surveyed)
            results = train(surveyed, where.runner)
            if any(result.status not in ENDED for result in results):
                raise Unfinished(results)
        known = {job.id: outcome(read_one(keeping.path(job))) for job in every.values()}
        return [[known[job.id] for job in each] for each in jobs]

    with library() as optuna:
        record = StudyFile(keeping.out / f"study-{question.id}.json", question, optuna.__version__)
        sampler = Sampler(optuna, question.over, question.seed, question.batch)
        trials: list[Tried] = []
        while len(trials) < question.trials:
            count = min(question.batch, question.trials - len(trials))
            asked = sampler.ask(count)
            record.check(len(trials), asked)
            made = scored(question.metric, endings(asked), [t.score for t in trials])
            sampler.tell([score for score, _ in made])
            trials += [Tried(own, *each) for own, each in zip(asked, made, strict=True)]
            record.write(trials)
            seen(trials)
        return Tuned(question, tuple(trials), sampler.importance())


def scored(
    metric: Metric, batch: Sequence[Sequence[Ending]], before: Sequence[float]
) -> list[tuple[float, tuple[float | None, ...]]]:
    """The score of each trial of a batch, and the scores of its seeds.

    A run that diverged counts at the lowest score so far, and no higher than runs begin.

    >>> from klip.studies.answering import Ending
    >>> good, bad = Ending(30.0, 20.0, 12.0, ""), Ending(None, None, 10.0, "")
    >>> scored("final", [[good, good], [good, bad]], [])
    [(30.0, (30.0, 30.0)), (20.0, (30.0, None))]

    """
    own = [tuple(getattr(ending, metric) for ending in trial) for trial in batch]
    known = [score for trial in own for score in trial if score is not None]
    starts = [e.first for trial in batch for e in trial if np.isfinite(e.first)]
    lowest = min([*known, *before, *starts], default=0.0)
    means = [float(np.mean([lowest if s is None else s for s in trial])) for trial in own]
    return list(zip(means, own, strict=True))


class StudyFile:
    """The study on disk: its question and trials, against which a search that goes on is held."""

    def __init__(self, path: Path, question: TuningQuestion, version: str) -> None:
        self.path, self.version = path, version
        self.about = {"task": question.task, "shape": question.shape, "seed": question.seed,
                      "over": [str(each) for each in question.over]}  # fmt: skip
        self.kept: list[dict[str, Any]] = []
        if path.exists():
            try:
                found = read_json(path)
                self.kept, self.before = list(found["trials"]), str(found["optuna"])
                if not all(isinstance(trial, dict) for trial in self.kept):
                    raise ValueError("a trial is none")
            except (OSError, ValueError, KeyError, TypeError):
                raise KlipError(
                    f"{path} is damaged: delete it, the runs have all it says"
                ) from None

    def check(self, first: int, knobs: Sequence[Mapping[str, Any]]) -> None:
        """Raise unless trials from `first` on are those that are kept, as far as some are."""
        for place, own in enumerate(knobs, first):
            if place < len(self.kept) and self.kept[place].get("knobs") != dict(own):
                raise KlipError(
                    f"trial {place} of {self.path} was another one, asked for by optuna "
                    f"{self.before}, and this is {self.version}: go on with that version, or "
                    "search in another folder"
                )

    def write(self, trials: Sequence[Tried]) -> None:
        """Keep the trials, unless more are kept."""
        if len(trials) <= len(self.kept):
            return
        self.kept = [asdict(trial) for trial in trials]
        whole = {**self.about, "optuna": self.version, "trials": self.kept}
        with disk(self.path):
            operations.make_folders(self.path.parent)
            write_whole(self.path, (json.dumps(whole, indent=1) + "\n").encode())


def _toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
