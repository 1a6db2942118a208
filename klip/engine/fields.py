"""Config fields, wherever they come from, checked against their types before anything starts."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import Field, asdict, fields, is_dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from klip.errors import KlipError

T = TypeVar("T")

LATE = {"late": True}
"""The metadata of a field that configs on disk may lack: they are from before it was there."""
LARGEST = 2**63 - 1
"""The largest whole number that a run's files can hold."""
MOST_RUNS = 100_000
"""As many runs as are planned at once; more would fill the memory before they are counted."""


def types_of(cls: type) -> dict[str, Any]:
    """The type of each field of a dataclass, by name."""
    return _types(cls)


@functools.cache
def _types(cls: Hashable) -> dict[str, Any]:
    return {k: v for k, v in get_type_hints(cls).items() if get_origin(v) is not ClassVar}


def conform(config: Any) -> None:
    """Check every field of a new dataclass against its type, for its `__post_init__`.

    A whole number that is written as a float becomes an int, a list a tuple, and a number of
    NumPy's one of Python's.
    """
    for name, kind in types_of(type(config)).items():
        object.__setattr__(config, name, _value(kind, name, getattr(config, name)))


def whole_number(name: str, value: Any) -> int:
    """The value as an int, if it is a whole number however it is written; else a `KlipError`.

    >>> whole_number("steps", 1e6)
    1000000
    """
    number: int = _value(int, name, value)
    return number


def check_runs(count: int, where: str = "") -> None:
    """Raise if so many runs cannot be planned at once, with the place of their number before it.

    >>> check_runs(5)
    """
    if count > MOST_RUNS:
        raise KlipError(
            f"{where}{count:,} runs at once are more than {MOST_RUNS:,}: give fewer seeds or "
            "settings, and the others after them"
        )


def typed(cls: type, given: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields in `given`, checked: each is the dataclass's, of its type, and not in `without`.

    >>> from klip.ppo.config import Config
    >>> typed(Config, {"steps": 2.048e3, "hidden": [8, 8]})
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
    """A dataclass from its fields as they lie on disk; a late field may be missing.

    Nothing is converted: another value would be another run.
    """
    known = _fields(cls)
    late = {name for name, field in known.items() if _is_late(field)}
    if odd := (set(given) ^ set(known)) - (late - set(given)):
        raise KlipError(
            "the run's config is of another version of Klip: it differs in "
            + ", ".join(sorted(odd))
        )
    types = types_of(cls)
    return cls(**{name: _value(types[name], name, value, True) for name, value in given.items()})


def stored(config: Any) -> dict[str, Any]:
    """The fields of a config as they lie on disk: a late field at its default is left out.

    So a run from before the field was there is still the same run.
    """
    cls: Any = type(config)
    usual = _usual_late(cls)
    every = {name: _plainly(getattr(config, name)) for name in _fields(cls)}
    return {k: v for k, v in every.items() if k not in usual or v != usual[k]}


def _plainly(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def with_seed(config: T, seed: int) -> T:
    """The same config with another seed, which was checked before: nothing else is checked again.

    >>> from klip.ppo.config import Config
    >>> with_seed(Config("CartPole-v1"), 7).seed
    7
    """
    made = object.__new__(type(config))
    for name in _fields(type(config)):
        object.__setattr__(made, name, seed if name == "seed" else getattr(config, name))
    return made


@functools.cache
def _usual_late(cls: Hashable) -> dict[str, Any]:
    return {name: f.default for name, f in _fields(cls).items() if _is_late(f)}


def _fields(cls: Any) -> dict[str, Field[Any]]:
    return _fields_by_name(cls)


@functools.cache
def _fields_by_name(cls: Hashable) -> dict[str, Field[Any]]:
    return {field.name: field for field in fields(cast(Any, cls))}


def _is_late(field: Field[Any]) -> bool:
    return bool(field.metadata.get("late"))


def _value(kind: Any, name: str, value: Any, exact: bool = False) -> Any:
    """The value as its field keeps it, or a `KlipError` that names both."""
    if isinstance(kind, type) and is_dataclass(kind):
        if isinstance(value, kind):
            return value
        return whole(kind, value if isinstance(value, Mapping) else {})
    if get_origin(kind) is tuple:
        if isinstance(value, (list, tuple)) and all(_fits(int, v, exact) for v in value):
            return tuple(int(v) for v in value)
    elif _fits(kind, value, exact):
        return _plain(kind, value)
    raise KlipError(f"{name}={value!r} must be {_words(kind)}")


def _fits(kind: Any, value: Any, exact: bool) -> bool:
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if kind is bool:
        return isinstance(value, (bool, np.bool_))
    if isinstance(value, (bool, np.bool_)):
        return False
    if kind in (int, float):
        if isinstance(value, Integral) or (kind is int and not exact and _is_whole(value)):
            return abs(int(value)) <= LARGEST
        return kind is float and isinstance(value, Real) and math.isfinite(value)
    return bool(isinstance(value, kind))


def _is_whole(value: Any) -> bool:
    return isinstance(value, Real) and float(value).is_integer()


def _plain(kind: Any, value: Any) -> Any:
    """A value that fits, in Python's own type; an int in a float's place stays one."""
    if kind is float:
        return int(value) if isinstance(value, Integral) else float(value)
    return kind(value) if kind in (int, bool) else value


def _words(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "a list of whole numbers"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    words = {
        int: "a whole number below 2^63",
        float: "a finite number",
        bool: "true or false",
        str: "text",
    }
    return words.get(kind, f"of type {getattr(kind, '__name__', kind)}")
