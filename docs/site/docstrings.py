"""Docstrings of this house as MyST: prose, doctests, arguments, what comes back."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any

SECTIONS = {"Args:": "param", "Returns:": "returns", "Raises:": "raises"}


def as_myst(doc: str, names: frozenset[str] = frozenset()) -> str:
    r"""A docstring as MyST; `klip.name` in backticks becomes a link where `names` has it.

    >>> as_myst("m = w*A.\n\nArgs:\n    x: the\n        ratio\n")
    'm = w\\*A.\n\n:param x: the ratio'
    """
    blocks, fields = [], []
    for kind, lines in _blocks(inspect.cleandoc(doc).splitlines()):
        if kind == "code":
            shown = [re.sub(r"\s+# doctest: .*", "", line) for line in lines]
            blocks.append("```pycon\n" + "\n".join(shown) + "\n```")
        elif kind == "param":
            fields += [f":param {name}: {prose(text, names)}" for name, text in _items(lines)]
        elif kind in ("returns", "raises"):
            fields.append(f":{kind}: {prose(' '.join(map(str.strip, lines)), names)}")
        else:
            blocks.append(prose("\n".join(lines), names))
    return "\n\n".join([*blocks, *(["\n".join(fields)] if fields else [])])


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(kind, lines) of each paragraph, doctest and section."""
    kind, held = "prose", list[str]()
    for line in [*lines, ""]:
        inside = kind in SECTIONS.values() and line.startswith("    ")
        if line in SECTIONS or not line.strip() or (line.startswith(">>>") and kind != "code"):
            if kind in SECTIONS.values() and not line.strip():
                continue
            if held:
                yield kind, held
            kind, held = SECTIONS.get(line, "code" if line.startswith(">>>") else "prose"), []
            if line.startswith(">>>"):
                held.append(line)
        elif inside or kind not in SECTIONS.values():
            held.append(line)
        else:
            yield kind, held
            kind, held = "prose", [line]
    if held:
        yield kind, held


def _items(lines: list[str]) -> Iterator[tuple[str, str]]:
    """(name, text) of each argument."""
    body = textwrap.dedent("\n".join(lines)).splitlines()
    for item in re.split(r"\n(?=\S)", "\n".join(body)):
        name, _, text = item.partition(":")
        yield name.strip(), " ".join(text.split())


def prose(text: str, names: frozenset[str] = frozenset()) -> str:
    r"""Text in which formulas mean themselves, and only backticks mark.

    >>> prose("m = w*A_b, see `klip.train`", frozenset({"train"}))
    'm = w\\*A\\_b, see {py:obj}`klip.train`'
    """
    parts = text.split("`")
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = re.sub(r"([\\*_\[\]<>|$])", r"\\\1", part)
        else:
            word = re.fullmatch(r"klip\.(\w+)", part)
            linked = word is not None and word[1] in names
            parts[i] = f"{{py:obj}}`{part}`" if linked else f"`{part}`"
    return "".join(parts)


@cache
def fields_of(cls: type[Any]) -> dict[str, str]:
    """What the strings below the fields of a class, and of those above it, say of each."""
    said: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each.__module__.startswith("klip."):
            said |= _fields(each)
    return said


def _fields(cls: type[Any]) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    said = {}
    for field, below in zip(body, [*body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            said[field.target.id] = " ".join(str(below.value.value).split())
    return said
