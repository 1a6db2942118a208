"""A plan is a small TOML file: groups of arms, each arm a shape, with what they share.

    about = "What this is for, in a sentence."
    seeds = 5                                    # 0 to 4; or a list

    [config]                                     # any field of klip.lab.config.Config
    iterations = 60

    [warmup]                                     # any field of klip.lab.config.Warmup
    steps = 1000

    [[groups]]
    name = "position"
    config = { replay = 0 }                      # for this group alone
    arms = [
        { name = "plain clip", shape = "clip(eps=0.2)" },  # the others are compared with it
        { name = "soft clip", shape = "ramp(eps=0.2)" },
    ]

Every arm meets every seed. All arms of a seed share its warm-up, its prompts and its dice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

from klip.errors import KlipError
from klip.experiments.plan import read_file
from klip.lab.config import Config, Warmup, check
from klip.ppo.config import digest_of_code


@dataclass(frozen=True)
class Plan:
    """The runs of a plan, seed by seed, so that whole comparisons are done first."""

    name: str
    about: str
    configs: tuple[Config, ...]

    @property
    def warmups(self) -> tuple[Warmup, ...]:
        """Each once."""
        return tuple(dict.fromkeys(c.warmup for c in self.configs))

    def only(self, arms: Sequence[str] = (), seeds: int | None = None) -> Plan:
        """A part of it: some arms, the first so many seeds."""
        chosen = list(self.configs)
        there = list(dict.fromkeys(c.arm for c in chosen))
        for name in arms:
            if name not in there:
                raise KlipError(
                    f"the plan {self.name} has no arm {name!r}; it has {', '.join(there)}"
                )
        if arms:
            chosen = [c for c in chosen if c.arm in arms]
        if seeds is not None:
            if seeds < 1:
                raise KlipError(f"--seeds {seeds} leaves nothing to train: give at least 1")
            first = list(dict.fromkeys(c.seed for c in chosen))[:seeds]
            chosen = [c for c in chosen if c.seed in first]
        return dataclasses.replace(self, configs=tuple(chosen))


def shipped_plans() -> dict[str, Path]:
    """The plans that come with the lab, by name."""
    folder = Path(str(files("klip.lab") / "plans"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_plan(name: str | Path) -> Plan:
    """A shipped plan by its name, or a TOML file by its path.

    >>> len(read_plan("scratchpad").configs)
    50
    """
    path, data = read_file(name, shipped_plans())
    try:
        return _plan(path.stem, data)
    except KlipError as error:
        raise KlipError(f"{path}: {error}") from None


def _plan(name: str, data: Mapping[str, Any]) -> Plan:
    _keys("at the top", data, {"about", "seeds", "config", "warmup", "groups"})
    groups = data.get("groups")
    if not isinstance(groups, list) or not groups:
        raise KlipError("there are no [[groups]]: give at least one, with a name and arms")
    warmup = _fields(Warmup, "warmup", data.get("warmup", {}), {"seed", "torch"})
    own = {"group", "arm", "shape", "code", "seed", "place", "against", "warmup"}
    shared = _fields(Config, "config", data.get("config", {}), own)
    seeds = _seeds(data.get("seeds", 5))
    arms: list[dict[str, Any]] = []
    for number, group in enumerate(groups, 1):
        where = f"in [[groups]] number {number}"
        _keys(where, group, {"name", "config", "arms"})
        fields = shared | _fields(Config, "config", group.get("config", {}), own)
        if not isinstance(group.get("arms"), list) or not group["arms"]:
            raise KlipError(f"{where}: arms must be a list of tables with name and shape")
        for arm in group["arms"]:
            _keys(where, arm, {"name", "shape", "against"})
            others = [str(other.get("name")) for other in group["arms"] if isinstance(other, dict)]
            if arm.get("against", others[0]) not in others:
                raise KlipError(f"{where}: against={arm['against']!r} is not an arm of the group")
            arms.append({
                **fields, "group": str(group.get("name", "")), "arm": str(arm.get("name", "")),
                "shape": str(arm.get("shape", "")), "place": len(arms),
                "against": str(arm.get("against", "")),
            })  # fmt: skip
    names = [arm["arm"] for arm in arms]
    if twice := {n for n in names if names.count(n) > 1}:
        raise KlipError(
            f"two arms are called {', '.join(sorted(twice))}: give each a name of its own"
        )
    for arm in arms:
        arm["code"] = digest_of_code(arm["shape"])
    made = [
        Config(**arm, seed=seed, warmup=Warmup(**warmup, seed=seed))
        for seed in seeds
        for arm in arms
    ]
    for c in made[: len(arms)]:
        try:
            check(c)
        except KlipError as error:
            raise KlipError(f"arm {c.arm!r}: {error}") from None
    return Plan(name, str(data.get("about", "")), tuple(made))


def _fields(kind: type, where: str, given: Any, own: set[str]) -> dict[str, Any]:
    """Fields of a dataclass from a table, each of its type."""
    types = {k: v for k, v in get_type_hints(kind).items() if k not in own}
    _keys(f"in {where}", given, set(types))
    for name, value in given.items():
        fits = isinstance(value, (int, float) if types[name] is float else types[name])
        if not fits or isinstance(value, bool):
            raise KlipError(f"{where}: {name}={value!r} must be of type {types[name].__name__}")
    return dict(given)


def _keys(where: str, table: Any, known: set[str]) -> None:
    if not isinstance(table, dict):
        raise KlipError(f"{where} there must be a table with {', '.join(sorted(known))}")
    for key in table:
        if key not in known:
            raise KlipError(f"{key!r} {where}; known there are {', '.join(sorted(known))}")


def _seeds(value: Any) -> list[int]:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return list(range(value))
    if isinstance(value, list) and value and all(type(v) is int and v >= 0 for v in value):
        return list(dict.fromkeys(value))
    raise KlipError(f"seeds must be a count or a list of seeds, and is {value!r}")
