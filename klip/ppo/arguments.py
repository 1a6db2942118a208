"""Keyword arguments of a task as one line of text, such as `goal='left', size=3`.

A config keeps them so, since it is compared and hashed. Their order does not matter, and a value is
whatever Python writes as a literal: numbers, text, True, None, and lists, tuples and dicts of them.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from klip.errors import KlipError

Arguments = Mapping[str, Any]

LONGEST = 1000


def spelled(given: Arguments | Sequence[str] | str) -> str:
    """The line of some keyword arguments: a mapping, words like `size=3`, or such a line itself.

    >>> spelled({"size": 3, "goal": "left"})
    "goal='left', size=3"
    >>> spelled(["size=3", "goal=left", "slippery=false"])
    "goal='left', size=3, slippery=False"
    """
    if isinstance(given, str):
        arguments: Arguments = arguments_in(given)
    elif isinstance(given, Mapping):
        arguments = given
    elif isinstance(given, (list, tuple)) and all(isinstance(word, str) for word in given):
        arguments = dict(map(_word, given))
    else:
        raise KlipError(f"task_args={given!r} must be a table of keyword arguments")
    for name, value in arguments.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise KlipError(f"task_args has {name!r}, which is no name of a keyword argument")
        if not _is_literal(value):
            raise KlipError(
                f"task_args has {name}={value!r}: give numbers, text, true or false, or lists and "
                "tables of them; what else a task needs, let a function of yours make"
            )
    text = ", ".join(f"{name}={arguments[name]!r}" for name in sorted(arguments))
    if len(text) > LONGEST:
        raise KlipError(f"task_args takes {len(text)} characters: {LONGEST} are the most")
    return text


def arguments_in(text: str) -> dict[str, Any]:
    """The keyword arguments that a line spells; nothing in it is executed.

    >>> arguments_in("goal='left', size=3")
    {'goal': 'left', 'size': 3}
    """
    try:
        call = ast.parse(f"task({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args or not all(word.arg for word in call.keywords):
            raise ValueError(text)
        return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (AssertionError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise KlipError(
            f"task_args={text[:80]!r} cannot be read: write size=3, goal='left'"
        ) from None


def _word(word: str) -> tuple[str, Any]:
    """A word of the command line: a value as JSON or Python write it, or plain text."""
    name, sign, value = word.partition("=")
    if not sign:
        raise KlipError(f"task_args has {word!r}: write name=value, such as size=3")
    for read in (json.loads, ast.literal_eval):
        try:
            return name, read(value)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return name, value


def _is_literal(value: Any) -> bool:
    """Whether Python reads the value back from what it prints of it."""
    if isinstance(value, (list, tuple)):
        return type(value) in (list, tuple) and all(map(_is_literal, value))
    if isinstance(value, dict):
        return all(map(_is_literal, [*value, *value.values()]))
    if isinstance(value, float):
        return type(value) is float and math.isfinite(value)
    return value is None or type(value) in (bool, int, str)
