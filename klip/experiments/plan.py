"""A plan is a small TOML file: shapes x tasks x seeds, with what differs from the defaults.

    about = "What this is for, in a sentence."
    seeds = 5                                    # 0 to 4; or a list

    [[runs]]
    tasks = ["CartPole-v1", "Hopper-v4"]
    shapes = ["clip", "clip(eps=0.1)", "my_shapes.py:Mine"]
    config = { steps = 200_000 }                 # any field of klip.ppo.Config
    seeds = [0, 1]                               # for these runs alone

Every shape meets every task with every seed. A run that is named twice is one run.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from klip.errors import KlipError
from klip.ppo.config import Config, config


@dataclass(frozen=True)
class Plan:
    """The runs of a plan, each once, in the order of the file."""

    name: str
    about: str
    configs: tuple[Config, ...]

    def only(
        self,
        tasks: Sequence[str] = (),
        shapes: Sequence[str] = (),
        seeds: int | None = None,
        steps: int | None = None,
    ) -> Plan:
        """A part of it: some tasks, some shapes, the first so many seeds, fewer steps.

        >>> len(read_plan("paper").only(["CartPole-v1"], ["clip"], seeds=2).configs)
        2
        """
        chosen = list(self.configs)
        if tasks:
            _known("task", tasks, {c.task for c in chosen}, self.name)
            chosen = [c for c in chosen if c.task in tasks]
        if shapes:
            spelled = [config(chosen[0].task, shape=shape).shape for shape in shapes]
            _known("shape", spelled, {c.shape for c in chosen}, self.name)
            chosen = [c for c in chosen if c.shape in spelled]
        if seeds is not None:
            if seeds < 1:
                raise KlipError(f"--seeds {seeds} leaves nothing to train: give at least 1")
            groups = {dataclasses.replace(c, seed=0) for c in chosen}
            enough = {
                g: sorted(c.seed for c in chosen if dataclasses.replace(c, seed=0) == g)[:seeds]
                for g in groups
            }
            chosen = [c for c in chosen if c.seed in enough[dataclasses.replace(c, seed=0)]]
        if steps is not None:
            given = [{f.name: getattr(c, f.name) for f in dataclasses.fields(c)} for c in chosen]
            chosen = [config(**{**fields, "steps": steps}) for fields in given]
        return dataclasses.replace(self, configs=_once(chosen))


def shipped_plans() -> dict[str, Path]:
    """The plans that come with Klip, by name."""
    folder = Path(str(files("klip.experiments") / "plans"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"), key=lambda p: p.stem)}


def read_plan(name: str | Path) -> Plan:
    """A shipped plan by its name, or a TOML file by its path.

    >>> read_plan("paper").configs[0].shape
    'clip(eps=0.2)'
    """
    return _plan(*read_file(name, shipped_plans()))


def read_file(name: str | Path, known: Mapping[str, Path]) -> tuple[Path, dict[str, Any]]:
    """The file of a plan that is `known` by its name, or given by its path; and what it says."""
    path = known.get(str(name), Path(name))
    if not path.is_file():
        raise KlipError(
            f"there is no plan {str(name)!r}: give one of {', '.join(known)}, or the path of a "
            "TOML file"
        )
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KlipError(f"{path} is not TOML: {error}") from None


def _plan(path: Path, data: Mapping[str, Any]) -> Plan:
    _keys(path, "at the top", data, {"about", "seeds", "runs"})
    entries = data.get("runs")
    if not isinstance(entries, list) or not entries:
        raise KlipError(f"{path} has no [[runs]]: give at least one, with tasks and shapes")
    made = []
    for number, entry in enumerate(entries, 1):
        where = f"in [[runs]] number {number}"
        _keys(path, where, entry, {"tasks", "shapes", "seeds", "config"})
        tasks, shapes = (_names(path, where, entry, key) for key in ("tasks", "shapes"))
        fields = entry.get("config", {})
        if not isinstance(fields, dict) or {"task", "shape", "seed", "code"} & set(fields):
            raise KlipError(f"{path}, {where}: config must be a table of config fields")
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        for seed in _seeds(path, where, entry.get("seeds", data.get("seeds", 5))):
            for task in tasks:
                for shape in shapes:
                    try:
                        made.append(config(task, shape=shape, seed=seed, **fields))
                    except KlipError as error:
                        raise KlipError(f"{path}, {where}: {error}") from None
                    except TypeError as error:
                        raise KlipError(f"{path}, {where}: a value of config: {error}") from None
    return Plan(path.stem, str(data.get("about", "")), _once(made))


def _once(configs: Sequence[Config]) -> tuple[Config, ...]:
    return tuple({c.id: c for c in configs}.values())


def _keys(path: Path, where: str, entry: Any, known: set[str]) -> None:
    if not isinstance(entry, dict):
        raise KlipError(f"{path}, {where}: there must be a table with {', '.join(sorted(known))}")
    for key in entry:
        if key not in known:
            raise KlipError(
                f"{path} says {key!r} {where}; known there are {', '.join(sorted(known))}"
            )


def _names(path: Path, where: str, entry: Mapping[str, Any], key: str) -> list[str]:
    value = entry.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise KlipError(f"{path}, {where}: {key} must be a list of names, and is {value!r}")
    return value


def _seeds(path: Path, where: str, value: Any) -> list[int]:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return list(range(value))
    if isinstance(value, list) and value and all(type(v) is int and v >= 0 for v in value):
        return value
    raise KlipError(f"{path}, {where}: seeds must be a count or a list of seeds, and is {value!r}")


def _known(kind: str, asked: Sequence[str], there: set[str], plan: str) -> None:
    for name in asked:
        if name not in there:
            raise KlipError(
                f"the plan {plan} has no {kind} {name!r}; it has {', '.join(sorted(there))}"
            )
