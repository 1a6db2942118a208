"""Shapes by name: the catalogue, and the spelling that every command takes.

    clip                                     a name
    clip(eps=0.3)                            with parameters
    clip(eps=by-age(fresh=0.2))              a parameter that depends on the context
    truncate(cap=2) * clip + kl-k3(b=0.1)    composed
    my_shapes.py:MyShape(scale=0.3)          a user's class, in a file or a module
    clip(eps=my_shapes.py:Cosine) + kl-k3    also as a part of another value

`str` of a value is its full spelling, and `parse` reads it back. `spelled` does so for values whose
class somebody imported; `klip.shapes.code` imports what a spelling names.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import keyword
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, overload

from klip.errors import KlipError
from klip.shapes.algebra import BySign
from klip.shapes.code import OWN, load_module
from klip.shapes.region import Region
from klip.shapes.shape import Shape
from klip.shapes.value import V, Value


class NameUnknown(KlipError):
    """No shape has this name."""


SHAPES = ("klip.shapes",)
"""The packages whose values `parse` knows by name alone."""

OF_TOKENS = ("cppo", "opsm", "reference-kl", "sequence-mis", "sequence-tis", "sequence-trust")
"""Names that `klip.tokens` adds, so that a reader without it can say where they belong."""


@overload
def catalogue() -> dict[str, type[Shape]]: ...
@overload
def catalogue(kind: type[V], rooms: tuple[str, ...] = SHAPES) -> dict[str, type[V]]: ...
def catalogue(kind: type[Any] = Shape, rooms: tuple[str, ...] = SHAPES) -> dict[str, type[Any]]:
    """Every shipped class of a kind (Shape, Controller, Gate, ...), by name, in catalogue order.

    `rooms` are the packages that are searched.

    >>> [*catalogue()][:3]
    ['is', 'reinforce', 'clip']

    Args:
        kind: Shape, Controller, Gate, Threshold, or a class of yours above some of them
        rooms: the packages that are searched

    Returns:
        classes by the names that spellings have

    """
    prefixes = tuple(f"{room}." for room in rooms)
    concrete = [cls for cls in _descendants(kind) if not cls.abstract]
    shipped = [cls for cls in concrete if cls.__module__.startswith(prefixes)]
    return {cls.name: cls for cls in sorted(shipped, key=_order)}


def listed(kind: type[Value], rooms: tuple[str, ...] = SHAPES) -> str:
    """A hint that says which names a kind has, for error messages."""
    if kind is Shape:
        return "`klip shapes` lists them all"
    return f"there are {', '.join(catalogue(kind, rooms))}"


def _descendants(kind: type[V]) -> Iterator[type[V]]:
    for cls in kind.__subclasses__():
        yield cls
        yield from _descendants(cls)


def _order(cls: type[Value]) -> tuple[int, str]:
    digits = re.match(r"\d+", cls.number)
    return (int(digits[0]) if digits else 1000, cls.number)


def parse(text: str, rooms: tuple[str, ...] = SHAPES) -> Region:
    """The shape or controller that `text` spells; `.initial` is a shape in either case.

    Values in the packages `rooms` need no file or module before their names.

    >>> parse("clip(low=0.2, high=0.28)")
    Clip(eps=None, low=0.2, high=0.28)
    >>> parse("clap")
    Traceback (most recent call last):
    klip.shapes.names.NameUnknown: no shape is called 'clap'; did you mean clip?

    Args:
        text: such as "clip(eps=0.3)", "truncate * clip + kl-k3(b=0.1)", "my.py:Mine(scale=2)"
        rooms: packages whose values need no file or module before their names

    Returns:
        the value, which `str` spells again

    """
    value = _evaluate(text, Shape, rooms) if ":" in text else _known(text, rooms)
    if not isinstance(value, Region):
        what = type(value).__mro__[1].__name__.lower()
        raise KlipError(f"'{text}' is a {what}, not a shape: write it as part of one")
    return value


@functools.lru_cache(maxsize=4096)
def _known(text: str, rooms: tuple[str, ...]) -> Any:
    """What a spelling without anybody's code stands for, which never changes."""
    return _evaluate(text, Shape, rooms)


def shape_of(spelling: str) -> Region | None:
    """The shape that a record names; None for somebody's code, which is not executed."""
    if ":" in spelling:
        return None
    try:
        return parse(spelling)
    except KlipError:  # of another version of Klip
        return None


def brief(spelling: str) -> str:
    """The shape that a record names, in brief; one that `shape_of` does not give, as spelled.

    >>> brief("clip(eps=0.2)"), brief("my.py:Mine(a=1)")
    ('clip', 'my.py:Mine(a=1)')
    """
    shape = shape_of(spelling)
    return spelling if shape is None else shape.brief


def family(spelling: str) -> str:
    """The spelling without any numbers: what all settings of one shape share.

    >>> family("clip(eps=by-age(fresh=0.2))"), family("truncate(cap=2) * clip + kl-k3(b=0.1)")
    ('clip', 'truncate * clip + kl-k3')
    """
    while (shorter := re.sub(r"\([^()]*\)", "", spelling)) != spelling:
        spelling = shorter
    return spelling


def parse_value(kind: type[V], text: str, rooms: tuple[str, ...] = SHAPES) -> V:
    """The value of a kind that `text` spells; `rooms` are as for `parse`.

    >>> from klip.shapes import Gate
    >>> parse_value(Gate, "truncate(cap=2)")
    Truncate(cap=2.0)
    """
    value = _evaluate(text, kind, rooms)
    if not isinstance(value, kind):
        raise KlipError(f"'{text}' is not a {kind.__name__.lower()}; {listed(kind, rooms)}")
    return value


def _evaluate(text: str, kind: type[Value], rooms: tuple[str, ...]) -> Any:
    names: dict[str, type[Value]] = {**catalogue(Value, rooms), BySign.name: BySign}
    places = list(dict.fromkeys(match["place"] for match in OWN.finditer(text)))
    own = {place: _user_values(place) for place in places}
    for i, place in enumerate(places):  # a class of the same name may be in several
        names |= own[place] | {f"{name}_in_{i}": cls for name, cls in own[place].items()}

    def alias(match: re.Match[str]) -> str:
        place, name = match["place"], match["name"]
        return f"{name}_in_{places.index(place)}" if name in own[place] else name

    expression = OWN.sub(alias, text.strip())
    try:
        tree = ast.parse(_identifiers(expression), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise KlipError(
            f"cannot read the {kind.__name__.lower()} {text!r}; write name(parameter=number, ...), "
            + ('such as "clip(eps=0.2)"' if kind is Shape else listed(kind, rooms))
        ) from None
    return _Reader(text, " and ".join(places), names, kind, rooms).read(tree)


def _identifiers(text: str) -> str:
    """The text with names that Python's parser takes: without hyphens, and not keywords."""
    text = re.sub(r"(?<=[A-Za-z0-9])-(?=[A-Za-z])", "_", text)
    words = r"\b(" + "|".join(k for k in keyword.kwlist if k.islower()) + r")\b"
    return re.sub(words, r"\1_", text)


class _Reader:
    """Turns a syntax tree of names, numbers, calls, * and + into a value; nothing is executed."""

    def __init__(
        self,
        text: str,
        place: str,
        names: dict[str, type[Value]],
        kind: type[Value],
        rooms: tuple[str, ...],
    ) -> None:
        self.text, self.place = text, place
        self.kind, self.word, self.hint = kind, kind.__name__.lower(), listed(kind, rooms)
        self.names = {_identifiers(name): cls for name, cls in names.items()}

    def read(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool()) | ast.Constant(value=None):
                pass
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Constant(value=str() as word):
                return word.replace("_", "-")
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Name(id=name):
                return self.build(name, [], {})
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                options = {k.arg: self.argument(k.value) for k in keywords if k.arg}
                return self.build(name, [self.argument(a) for a in args], options)
            case ast.BinOp(left=left, op=ast.Mult() | ast.Add() as op, right=right):
                return self.combine(self.read(left), op, self.read(right))
        raise KlipError(
            f"cannot read '{ast.unparse(node)}' in the {self.word} {self.text!r}; it is made of "
            "names, numbers, name(parameter=number), gate * shape and shape + penalty"
        )

    def argument(self, node: ast.expr) -> Any:
        """The value of an argument: a bare word is a part (`shape=kl`) or a choice (`estimator=k3`)."""
        if isinstance(node, ast.Name) and node.id not in self.names:
            return node.id.replace("_", "-")
        return self.read(node)

    def combine(self, left: Any, op: ast.operator, right: Any) -> Any:
        try:
            return left * right if isinstance(op, ast.Mult) else left + right
        except TypeError:
            sign = "*" if isinstance(op, ast.Mult) else "+"
            raise KlipError(
                f"cannot combine '{left}' {sign} '{right}': it is gate * shape, shape + penalty"
            ) from None

    def build(self, name: str, args: list[Any], options: dict[str, Any]) -> Value:
        cls = self.names.get(name)
        if cls is None:
            raise NameUnknown(self.unknown(name))
        known = [f.name for f in fields(cls)]
        positional = dict(zip(known, args, strict=False))
        for key in [*options, *(str(a) for a in args[len(known) :])]:
            if key not in known or key in positional:
                raise KlipError(
                    f"{cls.name} has no parameter '{key}' to set here; it has "
                    f"{', '.join(known) or 'none'}"
                )
        try:
            return cls(**positional, **options)
        except KlipError:
            raise
        except Exception as error:  # a shape is anybody's code
            kind = "" if isinstance(error, TypeError) else f"{type(error).__name__}: "
            what = " ".join(f"{kind}{error}".split())
            raise KlipError(f"cannot build {cls.name}: {what}") from None

    def unknown(self, name: str) -> str:
        asked = name.rstrip("_").replace("_", "-")
        if asked in OF_TOKENS:
            return (
                f"'{asked}' is for tokens in sequences: klip.token_loss and the adapters of language "
                "models take it; there are none here"
            )
        names = {key.rstrip("_").replace("_", "-").lower(): cls for key, cls in self.names.items()}
        near = [
            names[key].__name__ if names[key].source else key
            for key in difflib.get_close_matches(asked.lower(), names, 3, 0.6)
        ]
        few = self.kind is not Shape  # few enough to list
        hint = self.hint if few or not near else f"did you mean {', '.join(near)}?"
        where = f" in {self.place}" if self.place else ""
        return f"no {self.word} is called '{asked}'{where}; {hint}"


def _user_values(place: str) -> dict[str, type[Value]]:
    """The values that a file or module defines, by class name."""
    module = load_module(place)
    classes = {
        name: cls
        for name, cls in vars(module).items()
        if inspect.isclass(cls) and issubclass(cls, Value) and cls.__module__ == module.__name__
    }
    for cls in classes.values():
        cls.source = place
    return classes


def spelled(value: Value) -> str:
    """The spelling by which any process finds a value's classes, those of users in their files.

    It is `str(value)`, in which a class that was imported from a module has that module's place.

    >>> from klip.shapes import Clip
    >>> spelled(Clip())
    'clip(eps=0.2)'
    """
    for part in value.parts():
        cls = type(part)
        if not cls.source and cls.__module__.split(".")[0] != "klip":
            cls.source = _place_of(cls)
    return str(value)


def _place_of(cls: type[Value]) -> str:
    """The file of a class if it is a module on its own, else the module's dotted name."""
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    inner = "<locals>" in cls.__qualname__
    if cls.__module__ == "__main__" or file is None or inner:
        where = "a function" if inner else "the main script" if file else "a notebook or session"
        raise KlipError(
            f"{cls.__name__} is defined in {where}, where other processes cannot import it: put "
            "the class into a file of its own, such as shapes.py, and import it from there, or "
            f"give 'shapes.py:{cls.__name__}'"
        )
    if "." in cls.__module__:
        return cls.__module__
    path = Path(file).resolve()
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
