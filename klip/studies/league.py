"""The league: every shape under one protocol, in stages that cannot be undone.

    tuning ── every shape x radius x task x stress, on seeds of its own
    freezing ── the best radius of each shape, written once (`klip.studies.freezing`)
    testing ── that radius and the published one, on seeds that no choice has seen

Stress is how hard the inner loop pushes. A cell is a task under a stress. A shape has one radius
for all cells. The rules are a plan (`kind = "league"`), which `klip run league` takes to its end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, Literal, NamedTuple

from klip.engine.advance import Keeping
from klip.engine.fields import typed
from klip.engine.plan import Plan, check_keys, seeds_in
from klip.errors import KlipError
from klip.ppo.config import OWN, Config, config
from klip.ppo.knobs import paths_to
from klip.shapes import Region, numbers, parse
from klip.shapes.names import brief
from klip.shapes.value import is_number, with_numbers

StageName = Literal["tuning", "testing"]
KEYS: Final = {"about", "kind", "tasks", "shapes", "factors", "stress", "tuning", "testing"}
QUICK_SHAPES: Final = ("clip", "per-sample", "is", "spo", "kl")
QUICK_STEPS: Final = 200_000


@dataclass(frozen=True)
class Stress:
    """How hard the inner loop pushes: a name, and fields of the config."""

    name: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """Seeds, and fields of the config."""

    seeds: tuple[int, ...]
    config: Mapping[str, Any]


class Trial(NamedTuple):
    """One run of the league, and what it stands for."""

    entrant: str
    """The shape as published, spelled in full."""
    factor: float
    """Of its radius."""
    task: str
    stress: str
    job: Config

    @property
    def cell(self) -> str:
        """The task under its stress."""
        return f"{self.task}, {self.stress}"


@dataclass(frozen=True)
class Rules:
    """Who plays, where, and how."""

    tasks: tuple[str, ...]
    shapes: tuple[str, ...]
    """As published, spelled in full."""
    factors: tuple[float, ...]
    stress: tuple[Stress, ...]
    tuning: Stage
    testing: Stage
    knobs: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Parameters that set a shape's radius, where they are not the shape's own."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Every task under every stress."""
        return tuple(f"{task}, {s.name}" for s in self.stress for task in self.tasks)

    @property
    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        fields = dataclasses.asdict(self)
        return {**fields, "knobs": {k: list(v) for k, v in self.knobs.items()}}

    def factors_of(self, entrant: str) -> tuple[float, ...]:
        """The factors that a shape is tuned over: 1 alone where it has no radius."""
        return self.factors if self.knob(entrant) else (1.0,)

    def knob(self, entrant: str) -> tuple[str, ...]:
        """The parameters that set a shape's radius."""
        return self.knobs.get(entrant) or knob_of(parse(entrant))

    def scaled(self, entrant: str, factor: float) -> str:
        """The spelling of a shape with its radius multiplied."""
        return scaled(parse(entrant), self.knob(entrant), factor)

    def trials(
        self, stage: StageName, factors: Mapping[str, Sequence[float]] | None = None
    ) -> list[Trial]:
        """The runs of a stage: of each shape with each of its factors, or with those given."""
        at: Stage = getattr(self, stage)
        made = []
        for entrant in self.shapes:
            chosen = self.factors_of(entrant) if factors is None else factors[entrant]
            for factor in dict.fromkeys(chosen):
                shape = self.scaled(entrant, factor)
                for stress in self.stress:
                    fields = {**at.config, **stress.config}
                    first = [config(t, shape=shape, seed=at.seeds[0], **fields) for t in self.tasks]
                    made += [
                        Trial(entrant, factor, c.task, stress.name, dataclasses.replace(c, seed=s))
                        for c in first
                        for s in at.seeds
                    ]
        return made

    def only(self, tasks: Sequence[str] = (), shapes: Sequence[str] = ()) -> Rules:
        """The same rules for some tasks or shapes; PPO-Clip, by which scores are scaled, stays."""
        kept = [str(parse(shape)) for shape in shapes]
        for what, asked, there in (("task", tasks, self.tasks), ("shape", kept, self.shapes)):
            for name in asked:
                if name not in there:
                    raise KlipError(f"the league has no {what} {name!r}; it has {', '.join(there)}")
        clip = self.shapes[0]
        chosen = tuple(s for s in self.shapes if not kept or s in (*kept, clip))
        return dataclasses.replace(
            self, tasks=tuple(t for t in self.tasks if not tasks or t in tasks), shapes=chosen
        )

    def with_newcomer(self, shape: str | Region, knob: Sequence[str] = ()) -> Rules:
        """The same rules for a newcomer alone.

        Args:
            shape: the newcomer, or its spelling, as it should be published
            knob: parameters that set its radius, if it does not say so itself

        """
        from klip.shapes.names import spelled

        region = parse(shape) if isinstance(shape, str) else shape
        entrant = str(region) if isinstance(shape, str) else spelled(region)
        names = tuple(knob) or knob_of(region)
        check_knob(region, names)
        if entrant in self.shapes:
            raise KlipError(f"{entrant} plays in the league already: give a shape of your own")
        return dataclasses.replace(self, shapes=(entrant,), knobs={entrant: names} if knob else {})

    def quick(self) -> Rules:
        """A smoke test of the same protocol: one cell, few shapes, few seeds."""
        few = tuple(str(parse(name)) for name in QUICK_SHAPES)
        return dataclasses.replace(
            self, tasks=self.tasks[:1], stress=self.stress[:1],
            shapes=tuple(shape for shape in self.shapes if shape in few) or self.shapes,
            tuning=Stage(self.tuning.seeds[:1], {**self.tuning.config, "steps": QUICK_STEPS}),
            testing=Stage(self.testing.seeds[:3], {**self.testing.config, "steps": QUICK_STEPS}),
        )  # fmt: skip


def knob_of(region: Region) -> tuple[str, ...]:
    """The parameters that set a shape's radius, as the shape says; an error where it does not.

    A shape without a number has no radius.

    >>> knob_of(parse("sapo"))
    ('tau_positive', 'tau_negative')
    """
    knob = (region.knob,) if isinstance(region.knob, str) else region.knob
    there = numbers(region)
    if knob is None and there:
        raise KlipError(
            f"{brief(str(region))} does not say which parameter sets its radius: give --knob with "
            f'one or more of {", ".join(there)}; a class says it by knob = ("{next(iter(there))}",)'
        )
    check_knob(region, knob or ())
    return tuple(knob or ())


def check_knob(region: Region, knob: Sequence[str]) -> None:
    """Raise where a knob is no number of the shape's."""
    if knob and not _radius(region, knob):
        raise KlipError(f"{region.name}: {', '.join(knob)} is no number that can be tuned")


def scaled(region: Region, knob: Sequence[str], factor: float) -> str:
    """The spelling of a shape whose radius is multiplied; parameters that are not set stay so.

    >>> scaled(parse("clip-higher"), ("eps", "low", "high"), 2), scaled(parse("is"), (), 1)
    ('clip-higher(low=0.4, high=0.56)', 'is')
    >>> scaled(parse("clip + kl-k3"), ("eps",), 2)
    'clip(eps=0.4) + kl-k3(b=1.0)'
    """
    if factor == 1:
        return str(region)
    radius = _radius(region, knob)
    new = {path: float(f"{value * factor:.12g}") for path, value in radius.items()}
    return str(parse(str(with_numbers(region, new))))


def _radius(region: Region, knob: Sequence[str]) -> dict[str, float]:
    """The numbers that a knob names, in the parts of a shape too, by path: those that are set."""
    own, there = {f.name for f in dataclasses.fields(region)}, numbers(region)
    found: dict[str, float] = {}
    for name in knob:
        paths = [name] if name in own else paths_to(region, name)
        if not paths:
            has = ", ".join(there) or "none"
            raise KlipError(f"{region.name} has no parameter {name!r} to tune; it has {has}")
        if len(paths) > 1:
            raise KlipError(f"{region.name} has {name!r} several times: give {', '.join(paths)}")
        (path,) = paths
        if is_number(there.get(path)):
            found[path] = there[path]
    return found


def read_rules(data: Mapping[str, Any]) -> Rules:
    """The rules that a plan spells."""
    check_keys("at the top", data, KEYS)
    for key in KEYS - {"about", "kind", "factors"}:
        if key not in data:
            raise KlipError(f"at the top: a league needs {key}")
    shapes = tuple(str(parse(shape)) for shape in _list(data, "shapes", str, "names"))
    if not shapes or shapes[0] != str(parse("clip")):
        raise KlipError("at the top: the first of the shapes must be clip, the scale of all scores")
    given = {"factors": [0.5, 1, 2, 4], **data}
    factors = tuple(float(factor) for factor in _list(given, "factors", Real, "numbers"))
    if 1 not in factors or not all(0 < factor < 1e300 for factor in factors):
        raise KlipError(f"at the top: factors={list(factors)} must be above 0, with 1 among them")
    stress = []
    for number, table in enumerate(_list(data, "stress", dict, "tables"), 1):
        where = f"in [[stress]] number {number}"
        check_keys(where, table, {"name", "config"})
        if not isinstance(table.get("name"), str):
            raise KlipError(f"{where}: there must be a name")
        stress.append(Stress(table["name"], typed(Config, table.get("config", {}), OWN)))
    stages = {}
    for name in ("tuning", "testing"):
        check_keys(f"in [{name}]", data[name], {"seeds", "config"})
        seeds = seeds_in(f"in [{name}]", data[name].get("seeds", 2))
        stages[name] = Stage(tuple(seeds), typed(Config, data[name].get("config", {}), OWN))
    if both := {*stages["tuning"].seeds} & {*stages["testing"].seeds}:
        raise KlipError(f"in [tuning]: seed {min(both)} is also one of [testing]: give others")
    tuning, testing = stages["tuning"], stages["testing"]
    tasks = tuple(_list(data, "tasks", str, "names"))
    rules = Rules(tasks, shapes, factors, tuple(stress), tuning, testing)
    for shape in shapes:
        rules.knob(shape)
    return rules


def _list(data: Mapping[str, Any], key: str, kind: type, words: str) -> list[Any]:
    """What a plan has under a key, which must be a list of some kind and not empty."""
    value = data[key]
    fits = isinstance(value, list) and value
    if not fits or not all(isinstance(v, kind) and not isinstance(v, bool) for v in value):
        raise KlipError(f"at the top: {key} must be a list of {words}, not {value!r}")
    return list(value)


def rules_from(fields: Mapping[str, Any]) -> Rules:
    """The rules of a standings file."""
    tuning, testing = (
        Stage(tuple(fields[name]["seeds"]), typed(Config, fields[name]["config"], OWN))
        for name in ("tuning", "testing")
    )
    stress = [Stress(s["name"], typed(Config, s["config"], OWN)) for s in fields["stress"]]
    knobs = {shape: tuple(knob) for shape, knob in fields["knobs"].items()}
    tasks, shapes = tuple(fields["tasks"]), tuple(fields["shapes"])
    factors = tuple(map(float, fields["factors"]))
    return Rules(tasks, shapes, factors, tuple(stress), tuning, testing, knobs)


@dataclass(frozen=True)
class Course:
    """A league as a plan in stages: what comes after its tuning, and after its testing."""

    rules: Rules
    scales: Mapping[str, tuple[float, float]] | None = None
    """Zero and one of each cell in tuning, where a league before has set them."""

    def all_jobs(self, keeping: Keeping) -> list[Config]:
        """The runs of all stages; a radius that is not frozen yet is taken to be twice as large."""
        from klip.studies.freezing import read_frozen

        frozen = read_frozen(self.rules, keeping)
        factors = {
            entrant: (1.0, frozen[entrant].factor if frozen else self.rules.factors_of(entrant)[-1])
            for entrant in self.rules.shapes
        }
        trials = [*self.rules.trials("tuning"), *self.rules.trials("testing", factors)]
        return list({trial.job.id: trial.job for trial in trials}.values())

    def next(self, plan: Plan, keeping: Keeping) -> Plan | None:
        """The stage after this one, once all its runs have ended."""
        from klip.studies.freezing import factors_to_test, freeze
        from klip.studies.tallying import write_standings

        frozen = freeze(self.rules, keeping, self.scales)
        if plan.stage == "testing":
            write_standings(self.rules, frozen, keeping)
            return None
        trials = self.rules.trials("testing", factors_to_test(frozen))
        return dataclasses.replace(plan, configs=_jobs(trials), stage="testing")

    def only(self, plan: Plan, tasks: Sequence[str], shapes: Sequence[str]) -> Plan:
        """A part of the league, from its tuning on."""
        return course(plan.name, plan.about, self.rules.only(tasks, shapes))


def course(
    name: str,
    about: str,
    rules: Rules,
    scales: Mapping[str, tuple[float, float]] | None = None,
) -> Plan:
    """The plan of a league, at its first stage."""
    return Plan(name, about, _jobs(rules.trials("tuning")), "tuning", Course(rules, scales))


def read(name: str, data: Mapping[str, Any]) -> Plan:
    """The plan of a league from its file."""
    return course(name, str(data.get("about", "")), read_rules(data))


def _jobs(trials: Sequence[Trial]) -> tuple[Config, ...]:
    return tuple({trial.job.id: trial.job for trial in trials}.values())
