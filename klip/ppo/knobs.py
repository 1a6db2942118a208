"""A knob is a field of the config or a number of the shape; both are set by their name alone.

lr, epochs, gamma, ...     fields of the config
eps, target, b, ...        numbers of the shape, in its parts too; `shape.eps` where a field of
the config has the same name
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from klip.engine.fields import check_runs, types_of
from klip.errors import KlipError
from klip.ppo.config import OWN, Config
from klip.shapes import Region, numbers, parse
from klip.shapes.value import with_numbers


class Setting(NamedTuple):
    """A shape and fields of the config."""

    shape: str
    fields: dict[str, Any]


def path_in(shape: str, knob: str) -> str | None:
    """Where a knob lies in a shape; None where it is a field of the config.

    >>> path_in("target-kl(clip(eps=0.2), target=0.01)", "eps"), path_in("clip", "lr")
    ('shape.eps', None)
    """
    if knob in types_of(Config) and knob not in OWN:
        return None
    region = parse(shape)
    found = paths_to(region, knob)
    if len(found) == 1:
        return found[0]
    if found:
        raise KlipError(f"{knob!r} is in {shape} several times: give one of {', '.join(found)}")
    paths = list(numbers(region))
    has = f"it has {', '.join(paths)}" if paths else "it has no number"
    raise KlipError(f"{knob!r} is no config field, and {shape} has no such number: {has}")


def paths_to(region: Region, name: str) -> list[str]:
    """Where a number of a shape may lie: at this path, or else everywhere in it under this name.

    >>> paths_to(parse("clip + kl-k3"), "eps"), paths_to(parse("kl-k2 + kl-k3"), "b")
    (['shape.eps'], ['shape.b', 'penalty.b'])
    """
    paths = list(numbers(region))
    exact = [path for path in paths if name in (path, f"shape.{path}")]
    return exact or [path for path in paths if path.split(".")[-1] == name]


def turned(shape: str, fields: Mapping[str, Any], knobs: Mapping[str, Any]) -> Setting:
    """A shape and fields with knobs set.

    Args:
        shape: its spelling
        fields: of the config
        knobs: value by name; a field's is checked when the config is made

    >>> turned("clip", {"steps": 2048}, {"lr": 0.001, "eps": 0.1})
    Setting(shape='clip(eps=0.1)', fields={'steps': 2048, 'lr': 0.001})

    """
    paths = {name: path_in(shape, name) for name in knobs}
    numbers_set = {path: knobs[name] for name, path in paths.items() if path is not None}
    for name, path in paths.items():
        if path is not None and not isinstance(knobs[name], (int, float)):
            raise KlipError(f"{name}={knobs[name]!r} must be a number, as it is one of {shape}")
    own = {name: knobs[name] for name, path in paths.items() if path is None}
    spelled = str(parse(shape))
    if numbers_set:
        floats = {path: float(value) for path, value in numbers_set.items()}
        spelled = str(parse(str(with_numbers(parse(shape), floats))))
    return Setting(spelled, {**fields, **own})


def combinations(grid: Any) -> list[dict[str, Any]]:
    """Every combination of the values of knobs, the last varying fastest.

    >>> combinations({"lr": [1e-3, 1e-4], "eps": [0.1]})
    [{'lr': 0.001, 'eps': 0.1}, {'lr': 0.0001, 'eps': 0.1}]
    """
    if not isinstance(grid, Mapping):
        raise KlipError(f"grid={grid!r} must be a table of lists, such as {{ lr = [1e-4, 1e-3] }}")
    for name, values in grid.items():
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise KlipError(f"grid has {name}={values!r}: give a list of one value or more")
    check_runs(math.prod(len(values) for values in grid.values()))
    return [dict(zip(grid, each, strict=True)) for each in itertools.product(*grid.values())]
