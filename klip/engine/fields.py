"""Config fields from a plan or a disk, where anything may stand, checked against their types."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import is_dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from klip.errors import KlipError

T = TypeVar("T")


def types_of(cls: type) -> dict[str, Any]:
    """The type of each field of a dataclass, by name."""
    return {k: v for k, v in get_type_hints(cls).items() if get_origin(v) is not ClassVar}


def typed(cls: type, given: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields in `given`, checked: each is the dataclass's, of its type, and not in `without`.

    Lists become tuples.

    >>> from klip.ppo.config import Config
    >>> typed(Config, {"steps": 2048, "hidden": [8, 8]})
    {'steps': 2048, 'hidden': (8, 8)}
    """
    types = {name: kind for name, kind in types_of(cls).items() if name not in without}
    if not isinstance(given, Mapping):
        raise KlipError(f"give a table of fields of {cls.__name__}, not {given!r}")
    for name in given:
        if name not in types:
            raise KlipError(f"no config field is called {name!r}; there are {', '.join(types)}")
    return {name: _value(types[name], name, value) for name, value in given.items()}


def whole(cls: type[T], given: Mapping[str, Any]) -> T:
    """A dataclass from all its fields, as they lie on disk."""
    types = types_of(cls)
    if set(given) != set(types):
        odd = ", ".join(sorted(set(given) ^ set(types)))
        raise KlipError(f"the run's config is of another version of Klip: it differs in {odd}")
    return cls(**{name: _value(kind, name, given[name]) for name, kind in types.items()})


def _value(kind: Any, name: str, value: Any) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        return whole(kind, value if isinstance(value, Mapping) else {})
    if not _fits(kind, value):
        raise KlipError(f"{name}={value!r} must be of type {getattr(kind, '__name__', kind)}")
    return tuple(value) if get_origin(kind) is tuple else value


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value from JSON or TOML is of a field's type."""
    if get_origin(kind) is tuple:
        return isinstance(value, (list, tuple)) and all(_fits(int, item) for item in value)
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is float:
        return _fits(int, value) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
