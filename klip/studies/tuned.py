"""Tune, then test: the best setting of each family, on seeds that no choice has seen.

    kind = "tuned"
    tasks = ["Ant-v4"]

    [tuning]
    seeds = 3

    [[tuning.families]]
    name = "fixed beta"
    shapes = ["kl(b=0.1)", "kl(b=1.0)"]

    [testing]
    seeds = [10, 11, 12, 13, 14]
    shapes = ["clip"]                            # beside the best of each family

Of each family and on each task the setting with the highest mean final return is chosen; a run that
diverged counts as the lowest return of any on its task. The choice is kept once, with its scores
(`klip.studies.sealed`), and read from then on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from klip.engine.advance import Keeping
from klip.engine.fields import typed
from klip.engine.plan import Plan, check_keys, names_in, seeds_in
from klip.errors import KlipError
from klip.ppo.config import OWN, Config, config
from klip.shapes import parse
from klip.studies.answering import outcome
from klip.studies.gathering import run_of
from klip.studies.sealed import Sealed, is_reckonable, name_for

FORMAT: Final = "klip tuned 1"
Scores = Mapping[str, Mapping[str, Mapping[str, float]]]
"""By task, family and setting."""


@dataclass(frozen=True)
class Selection:
    """What is tuned, on which seeds, and what it is tested beside."""

    tasks: tuple[str, ...]
    families: Mapping[str, tuple[str, ...]]
    """The settings of each, spelled in full."""
    tuning: tuple[int, ...]
    """Seeds."""
    testing: tuple[int, ...]
    beside: tuple[str, ...]
    config: Mapping[str, Any]

    @property
    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)

    def trials(self, seeds: Sequence[int]) -> list[Config]:
        """Runs of all settings; the choice rests on those with the seeds of tuning."""
        shapes = [shape for family in self.families.values() for shape in family]
        return self.jobs(dict.fromkeys(self.tasks, shapes), seeds)

    def tests(self, chosen: Mapping[str, Sequence[str]]) -> list[Config]:
        """The runs that no choice has seen: of the settings chosen on each task, and beside."""
        return self.jobs({t: [*self.beside, *chosen[t]] for t in self.tasks}, self.testing)

    def jobs(self, shapes: Mapping[str, Sequence[str]], seeds: Sequence[int]) -> list[Config]:
        """Each task with its shapes and all seeds."""
        made = []
        for task, own in shapes.items():
            for shape in dict.fromkeys(own):
                first = config(task, shape=shape, seed=seeds[0], **self.config)
                made += [dataclasses.replace(first, seed=seed) for seed in seeds]
        return made

    @property
    def file(self) -> Sealed:
        """Where the choices are."""
        return Sealed("plan", name_for(self.fields), FORMAT, self.fields)


def choose(rules: Selection, keeping: Keeping) -> Scores:
    """The scores of all settings, as they were when the choice was made, or as they are now."""
    found = rules.file.adopt(keeping)
    if found is None:
        rules.file.refuse_after(rules.trials(rules.testing), keeping)
        found = rules.file.write(keeping, {"scores": _scores(rules, keeping)})
    return _read(rules, keeping, found)


def _read(rules: Selection, keeping: Keeping, found: Mapping[str, Any]) -> Scores:
    """The scores in the plan's file; what is none of its own is an error."""
    try:
        return read_scores(rules, found)
    except ValueError as error:
        raise rules.file.damaged(keeping, error) from None


def read_scores(rules: Selection, found: Mapping[str, Any]) -> Scores:
    """The scores in a file; a ValueError unless they are of all tasks, families and settings."""
    scores: Scores = found.get("scores", {})
    try:
        there = {t: {n: set(of) for n, of in rows.items()} for t, rows in scores.items()}
        wanted = {name: set(family) for name, family in rules.families.items()}
        numbers = [x for rows in scores.values() for of in rows.values() for x in of.values()]
    except (TypeError, AttributeError):
        raise ValueError("its scores are no tables of numbers") from None
    if there != dict.fromkeys(rules.tasks, wanted) or not all(map(is_reckonable, numbers)):
        raise ValueError("its scores are not those of the plan's settings")
    return scores


def best(rules: Selection, scores: Scores) -> dict[str, list[str]]:
    """The setting of the highest score, of each family on each task; the first of equal ones."""
    return {
        task: [
            max(family, key=lambda shape: scores[task][name][shape])
            for name, family in rules.families.items()
        ]
        for task in rules.tasks
    }


def _scores(rules: Selection, keeping: Keeping) -> Scores:
    ends: dict[tuple[str, str], list[float | None]] = {}
    for job in rules.trials(rules.tuning):
        end = outcome(run_of(job, keeping)).final
        ends.setdefault((job.task, job.shape), []).append(end)
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for task in rules.tasks:
        known = [x for (t, _), values in ends.items() if t == task for x in values if x is not None]
        if not known:
            raise KlipError(f"every run on {task} diverged: there is nothing to choose from")
        scores[task] = {
            name: {
                shape: float(np.mean([min(known) if x is None else x for x in ends[task, shape]]))
                for shape in family
            }
            for name, family in rules.families.items()
        }
    return scores


@dataclass(frozen=True)
class TwoStages:
    """What comes after the tuning, and after the testing."""

    rules: Selection

    def all_jobs(self, keeping: Keeping) -> list[Config]:
        """The runs of both stages; what is not chosen yet is taken to be each family's first."""
        found = self.rules.file.read(keeping)
        firsts = [family[0] for family in self.rules.families.values()]
        chosen = (
            best(self.rules, _read(self.rules, keeping, found))
            if found
            else dict.fromkeys(self.rules.tasks, firsts)
        )
        return [*self.rules.trials(self.rules.tuning), *self.rules.tests(chosen)]

    def next(self, plan: Plan, keeping: Keeping) -> Plan | None:
        """The stage after this one, once all its runs have ended."""
        if plan.stage == "testing":
            return None
        tests = self.rules.tests(best(self.rules, choose(self.rules, keeping)))
        return dataclasses.replace(plan, configs=tuple(tests), stage="testing")

    def only(self, plan: Plan, tasks: Sequence[str], shapes: Sequence[str]) -> Plan:
        """The same on some tasks, from its tuning on."""
        if shapes:
            raise KlipError(f"the plan {plan.name} chooses among its shapes: it needs all of them")
        for task in tasks:
            if task not in self.rules.tasks:
                known = ", ".join(self.rules.tasks)
                raise KlipError(f"the plan {plan.name} has no task {task!r}; it has {known}")
        return _course(plan.name, plan.about, dataclasses.replace(self.rules, tasks=tuple(tasks)))


def read(name: str, data: Mapping[str, Any]) -> Plan:
    """The plan from its file, at its first stage."""
    return _course(name, str(data.get("about", "")), read_rules(data))


def read_rules(data: Mapping[str, Any]) -> Selection:
    """The rules that a plan spells."""
    check_keys("at the top", data, {"about", "kind", "tasks", "config", "tuning", "testing"})
    tuning, testing = data.get("tuning"), data.get("testing")
    check_keys("in [tuning]", tuning, {"seeds", "families"})
    check_keys("in [testing]", testing, {"seeds", "shapes"})
    assert isinstance(tuning, dict)
    assert isinstance(testing, dict)
    families = {}
    for number, table in enumerate(_tables(tuning.get("families")), 1):
        where = f"in [[tuning.families]] number {number}"
        check_keys(where, table, {"name", "shapes"})
        if not isinstance(table.get("name"), str) or table["name"] in families:
            raise KlipError(f"{where}: there must be a name of its own")
        families[table["name"]] = _shapes(where, table)
    seeds = seeds_in("in [tuning]", tuning.get("seeds", 3))
    fresh = seeds_in("in [testing]", testing.get("seeds", [10, 11, 12, 13, 14]))
    if both := {*seeds} & {*fresh}:
        raise KlipError(f"in [tuning]: seed {min(both)} is also one of [testing]: give others")
    tasks = names_in("at the top", data, "tasks")
    beside = _shapes("in [testing]", testing) if testing.get("shapes") else ()
    fields = typed(Config, data.get("config", {}), OWN)
    return Selection(tuple(tasks), families, tuple(seeds), tuple(fresh), beside, fields)


def selection_of(fields: Mapping[str, Any]) -> Selection:
    """The rules in a file of choices; they are checked as those of a plan."""
    tuning = [{"name": name, "shapes": shapes} for name, shapes in fields["families"].items()]
    return read_rules({
        "tasks": fields["tasks"], "config": fields["config"],
        "tuning": {"seeds": fields["tuning"], "families": tuning},
        "testing": {"seeds": fields["testing"], "shapes": fields["beside"]},
    })  # fmt: skip


def _tables(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise KlipError("in [tuning]: there must be [[tuning.families]], each a name and shapes")
    return value


def _shapes(where: str, table: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(parse(shape)) for shape in names_in(where, table, "shapes")))


def _course(name: str, about: str, rules: Selection) -> Plan:
    return Plan(name, about, tuple(rules.trials(rules.tuning)), "tuning", TwoStages(rules))
