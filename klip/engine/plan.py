"""A plan is a small TOML file: which jobs, with which seeds, and what differs from the defaults.

    about = "What this is for, in a sentence."
    kind = "ppo"                                 # of job; "ppo" if it is not given
    seeds = 5                                    # 0 to 4; or a list
    config = { steps = 200_000 }                 # any field of the kind's config

    [[runs]]
    tasks = ["CartPole-v1", "Hopper-v4"]
    shapes = ["clip", "clip(eps=0.1)", "my_shapes.py:Mine"]
    config = { lr = 1e-3 }                       # for these runs alone
    seeds = [0, 1]                               # likewise
    grid = { epochs = [5, 10], eps = [0.1, 0.2] }  # each combination

Every shape meets every task with every seed. A run that is named twice is one run. Other kinds have
other keys in [[runs]]; plans of `tokens` have a `group` and its `arms` (`klip.lab.job`).

A plan may go in stages, of which one depends on what the one before has found: a `league` does, and
one that is `tuned` (`klip.studies.tuned`).
"""

from __future__ import annotations

import dataclasses
import importlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from klip.engine.advance import Keeping
from klip.engine.fields import check_runs, whole_number
from klip.engine.job import USUAL, Entry, Job, kind_of, unseeded
from klip.errors import KlipError
from klip.runs.files import read_file
from klip.shapes import parse

LARGEST_PLAN = 1_000_000
"""Bytes of a plan; the largest shipped one has 2,000."""
STAGED = {"league": "klip.studies.league:read", "tuned": "klip.studies.tuned:read"}
"""Kinds of plan that go in stages; the function is imported when one is met."""


class Stages(Protocol):
    """How a plan goes on."""

    def next(self, plan: Plan, keeping: Keeping) -> Plan | None:
        """The stage after that of `plan`, whose jobs have all ended; None at the end."""

    def only(self, plan: Plan, tasks: Sequence[str], shapes: Sequence[str]) -> Plan:
        """The same with some tasks and shapes alone, at its first stage."""

    def all_jobs(self, keeping: Keeping) -> Sequence[Job]:
        """The jobs of all stages, as far as one can know them."""


@dataclass(frozen=True)
class Plan:
    """The jobs of a plan, each once, in the order of the plan."""

    name: str
    about: str
    configs: tuple[Job, ...]
    stage: str = ""
    """Its name, where there are several."""
    course: Stages | None = None
    """What comes after this stage, where there are several."""

    def next(self, keeping: Keeping) -> Plan | None:
        """The stage after this one, once all its jobs have ended; None at the end."""
        return self.course.next(self, keeping) if self.course is not None else None

    def only(
        self,
        tasks: Sequence[str] = (),
        shapes: Sequence[str] = (),
        seeds: int | None = None,
        steps: int | None = None,
    ) -> Plan:
        """A part of the plan; what is not given stays as it is.

        Args:
            tasks: only these tasks
            shapes: only these shapes, or these arms of a token plan
            seeds: number of seeds, the first of the plan's
            steps: environment steps, or completions, instead of the plan's

        >>> len(read_plan("paper").only(["CartPole-v1"], ["clip"], seeds=2).configs)
        2

        """
        if self.course is not None:
            if seeds is not None or steps is not None:
                raise KlipError(
                    f"the plan {self.name} goes in stages, each with seeds and steps of its own: "
                    "write a plan with others (docs/league.md)"
                )
            return self.course.only(self, tasks, shapes) if tasks or shapes else self
        chosen = list(self.configs)
        if tasks:
            self._known("task", tasks, [c.task for c in chosen])
            chosen = [c for c in chosen if c.task in tasks]
        if shapes:
            names = [name for c in chosen for name in c.names]
            asked = [shape if shape in names else _spelled(shape) for shape in shapes]
            self._known("shape", asked, names)
            chosen = [c for c in chosen if set(asked) & set(c.names)]
        if seeds is not None:
            seeds = whole_number("seeds", seeds)
            if seeds < 1:
                raise KlipError(f"--seeds {seeds} leaves nothing to train: give at least 1")
            kept: dict[str, list[Job]] = {}
            for c in sorted(chosen, key=lambda c: c.seed):
                kept.setdefault(unseeded(c.stored), []).append(c)
            most = max(map(len, kept.values()))
            if seeds > most:
                raise KlipError(
                    f"the plan {self.name} has {most} seeds, not {seeds}: give --seeds {most} or "
                    "less, or write a plan with more (docs/plans.md)"
                )
            first = {c.id for members in kept.values() for c in members[:seeds]}
            chosen = [c for c in chosen if c.id in first]
        if steps is not None:
            steps = whole_number("steps", steps)
            chosen = [kind_of(c.kind).with_steps(c, steps) for c in chosen]
        return dataclasses.replace(self, configs=_once(chosen))

    def _known(self, what: str, asked: Sequence[str], there: Sequence[str]) -> None:
        for name in asked:
            if name not in there:
                known = ", ".join(sorted(set(there)))
                raise KlipError(f"the plan {self.name} has no {what} {name!r}; it has {known}")


def shipped_plans() -> dict[str, Path]:
    """The plans that come with Klip, by name.

    >>> "paper" in shipped_plans()
    True

    Returns:
        the TOML file of each, by its name

    """
    folder = Path(str(files("klip.engine") / "plans"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"), key=lambda p: p.stem)}


def read_plan(name: str | Path) -> Plan:
    """A shipped plan by its name, or a TOML file by its path.

    >>> read_plan("paper").configs[0].names
    ('clip(eps=0.2)',)

    Args:
        name: a name of `klip.shipped_plans`, or the path of a TOML file

    Returns:
        its jobs, each a config that is checked, in order

    """
    known = shipped_plans()
    path = known.get(str(name), Path(name))
    if not path.is_file():
        raise KlipError(
            f"there is no plan {str(name)!r}: give one of {', '.join(known)}, or the path of a "
            "TOML file"
        )
    try:
        data = tomllib.loads(read_file(path, LARGEST_PLAN).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KlipError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise KlipError(f"{path} is not a plan: its lists are nested too deeply") from None
    except OSError as error:
        raise KlipError(f"{path} cannot be read: {error.strerror}") from None
    try:
        if (staged := STAGED.get(str(data.get("kind")))) is not None:
            module, _, function = staged.partition(":")
            made: Plan = getattr(importlib.import_module(module), function)(path.stem, data)
            return made
        return _plan(path.stem, data)
    except KlipError as error:
        raise KlipError(f"{path}, {error}") from None


def _plan(name: str, data: Mapping[str, Any]) -> Plan:
    check_keys("at the top", data, {"about", "kind", "seeds", "config", "runs"})
    kind = kind_of(data.get("kind", USUAL))
    tables = data.get("runs")
    if kind.plan is None:
        raise KlipError(f"at the top: kind={data['kind']!r} has no plans: plan jobs that need it")
    if not isinstance(tables, list) or not tables:
        keys = ", ".join(sorted(kind.keys))
        raise KlipError(f"at the top: there are no [[runs]]: give at least one, with {keys}")
    shared = _fields("at the top", data)
    entries = []
    for number, table in enumerate(tables, 1):
        where = f"in [[runs]] number {number}"
        check_keys(where, table, {"seeds", "config", *kind.keys})
        own = {key: table[key] for key in kind.keys if key in table}
        seeds = seeds_in(where, table.get("seeds", data.get("seeds", 5)))
        entries.append(Entry(where, own, _merged(shared, _fields(where, table)), seeds))
    return Plan(name, str(data.get("about", "")), _once(kind.plan(entries)))


def check_keys(where: str, table: Any, known: set[str]) -> None:
    """Raise unless `table` is a table with no keys but those known."""
    if not isinstance(table, dict):
        raise KlipError(f"{where}: there must be a table with {', '.join(sorted(known))}")
    for key in table:
        if key not in known:
            raise KlipError(f"{where}: {key!r} is not known; keys: {', '.join(sorted(known))}")


def names_in(where: str, table: Mapping[str, Any], key: str) -> list[str]:
    """The list of names that a table of a plan has under a key."""
    value = table.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise KlipError(f"{where}: {key} must be a list of names, not {value!r}")
    return value


def _fields(where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    fields = table.get("config", {})
    if not isinstance(fields, dict):
        raise KlipError(f"{where}: config must be a table of config fields, not {fields!r}")
    return fields


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables merged, and the tables within them; values of `above` win."""
    both = {
        key: _merged(below[key], value)
        for key, value in above.items()
        if isinstance(value, dict) and isinstance(below.get(key), dict)
    }
    return {**below, **above, **both}


def seeds_in(where: str, value: Any) -> list[int]:
    """The seeds that a plan gives as their count or in a list."""
    seeds: Sequence[int]
    try:
        if isinstance(value, list):
            seeds = [whole_number("seeds", seed) for seed in value]
        else:
            seeds = range(whole_number("seeds", value))
    except KlipError:
        seeds = []
    check_runs(len(seeds), f"{where}: ")
    if not seeds or min(seeds) < 0:
        raise KlipError(
            f"{where}: seeds must be a count or a list of seeds, from 0 to 2^63 - 1, not {value!r}"
        )
    return list(dict.fromkeys(seeds))


def _once(configs: Sequence[Job]) -> tuple[Job, ...]:
    return tuple({c.id: c for c in configs}.values())


def _spelled(shape: str) -> str:
    """A shape as jobs spell it, or the text itself if it is no shape."""
    try:
        return str(parse(shape))
    except KlipError:
        return shape
