"""What a run may say before it is believed: settings and columns of the kind a report reckons with.

A folder or a pack may come from anybody, and a report of it is made of what is sound. The rest is
named and left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from klip.engine.job import Fields, kind_in
from klip.errors import KlipError
from klip.studies.study import Column

WIDE: Final = ("beta", "age", "epoch.")
"""How the names of metrics begin that have several numbers an iteration."""
_WORDS: Final = ("code", "task_code", "group", "arm", "against")
_COUNTS: Final = ("place", "seed")


def odd_setting(config: Fields) -> str:
    """The first field of a config on disk that is not what its kind has there, in words; or "".

    >>> odd_setting({"task": "Hopper-v4", "seed": 0, "lr": [1]})
    'its config has lr=[1]'
    """
    try:
        kind = kind_in(config)
        usual, settings = kind.usual(str(config.get("task"))), kind.settings(config)
    except KlipError as error:
        return str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"its config is incomplete ({type(error).__name__}: {error})"
    if config.get("kind") == "tokens" and not {"group", "arm"} <= config.keys():
        return "its config names no arm and group"
    expected = {**usual, **dict.fromkeys(_WORDS, ""), **dict.fromkeys(_COUNTS, 0)}
    given = {**settings, **{k: config[k] for k in (*_WORDS, *_COUNTS) if k in config}}
    for name, value in given.items():
        if name in expected and not _alike(value, expected[name]):
            return f"its config has {name}={str(value)[:80]}"
    return ""


def _alike(value: Any, usual: Any) -> bool:
    """Whether a value is of the kind of the usual one: a number, yes or no, text, a list."""
    if isinstance(usual, (bool, str)):
        return type(value) is type(usual)
    if isinstance(usual, (int, float)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and abs(value) < 2**63 and math.isfinite(value)
    if isinstance(usual, (list, tuple)):
        least = 1 if usual else 0  # the widths of a critic may be none: the actor's
        whole = isinstance(value, (list, tuple)) and least <= len(value) < 100
        return whole and all(type(part) is int and 0 < part < 2**31 for part in value)
    return True


def sound_columns(metrics: Mapping[str, Column]) -> tuple[dict[str, Column], list[str]]:
    """The columns that have one number an iteration, or several where that is usual; and notes.

    >>> import numpy as np
    >>> kept, notes = sound_columns({"kl": np.zeros((2, 3)), "beta": np.zeros((2, 9))})
    >>> list(kept), notes
    (['beta'], ['its metric kl is not one number an iteration, and was left out'])
    """
    kept: dict[str, Column] = {}
    notes: list[str] = []
    for name, column in metrics.items():
        wide = name.startswith(WIDE)
        if (column.ndim == 2) == wide or (wide and bool(_empty(column))):
            kept[name] = column
        else:
            said = "a list of numbers" if wide else "one number an iteration"
            notes.append(f"its metric {name[:80]} is not {said}, and was left out")
    return kept, notes


def _empty(column: Column) -> bool:
    """Whether there is no number in a column: one of lists that are all empty looks like that."""
    return all(math.isnan(value) for value in column.ravel().tolist())
