"""From folders back to configs, for `klip resume`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from klip.errors import KlipError
from klip.ppo.advance import Keeping
from klip.ppo.config import Config, check
from klip.runs import read_run, run_paths


def read_configs(folder: Path, run_code: bool = False) -> tuple[Path, list[Config]]:
    """The runs in or below a folder that have not ended, and the folder they all lie in.

    Reading a run executes nothing. Going on with one whose shape or task is Python code of
    somebody's does, so that takes `run_code`.
    """
    configs, roots = [], set()
    paths = run_paths(folder)
    if not paths:
        raise KlipError(f"there are no runs in {folder}; `klip train` makes some")
    for path in paths:
        record = read_run(path)
        above = path.resolve().parents
        if len(above) < 3:
            raise KlipError(
                f"{path} is not below <out>/<task>/<shape>, where runs lie: move it there"
            )
        root = above[2]
        roots.add(root)
        if record.status in ("done", "diverged") and not record.notes:
            continue
        if not run_code and (code := code_in(record.config)):
            raise KlipError(
                f"{path} takes its {code}, which going on would execute: give the command that "
                "began it again, or --run-code if you trust that code"
            )
        c = config_of(record.config)
        check(c)
        home = Keeping(root).path(c)
        if home != path.resolve():
            raise KlipError(f"{path} is not where a run of its config lies: move it to {home}")
        configs.append(c)
    if len(roots) > 1:
        places = ", ".join(os.path.relpath(root) for root in sorted(roots))
        raise KlipError(f"the runs in {folder} belong to several folders ({places}): give one")
    return roots.pop(), configs


def code_in(config: Mapping[str, Any]) -> str:
    """Which of a run's names stand for Python code to be executed, in words; or nothing.

    >>> code_in({"shape": "my.py:Mine(a=1)", "task": "Hopper-v4"})
    "shape from code: 'my.py:Mine(a=1)'"
    """
    for name in ("shape", "task"):
        if ":" in str(config[name]):
            return f"{name} from code: {str(config[name])!r}"
    return ""


def config_of(fields: Mapping[str, Any]) -> Config:
    """A run's config from its record, in which anything may stand."""
    kinds = get_type_hints(Config)
    if set(fields) != set(kinds):
        odd = ", ".join(sorted(set(fields) ^ set(kinds)))
        raise KlipError(f"the run's config is of another version of Klip: it differs in {odd}")
    for name, kind in kinds.items():
        if not _is(fields[name], kind):
            raise KlipError(f"the run's config says {name}={fields[name]!r}, which is no {name}")
    return Config(**{**fields, "hidden": tuple(fields["hidden"])})


def _is(value: Any, kind: Any) -> bool:
    """Whether a value from JSON is of a field's type."""
    if get_origin(kind) is tuple:
        return isinstance(value, (list, tuple)) and all(_is(item, int) for item in value)
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is float:
        return _is(value, int) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
