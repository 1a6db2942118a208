"""Tasks in a user's own code: `myenvs:Point-v0`, `myenvs.py:Point-v0`, or a class from Python.

The code is that of the current folder, or of wherever Python finds modules. It registers the id
with Gymnasium, or has a class or function of that name that makes the environment.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from klip.errors import KlipError
from klip.shapes.code import importable, load_module
from klip.tasks.lanes import TaskError

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of code that is not of the user's own writing."""

MAIN = ("__main__", "__mp_main__")
"""Names of the script that runs."""


def own_spec(place: str, name: str) -> EnvSpec | None:
    """What `place` calls `name`: an id that it registers, or a maker; None if it has neither.

    Args:
        place: a module, or a path that ends in .py; it is imported
        name: an id, or the name of a class or function

    """
    module, registered = _import(place)
    spec = registered.get(name) or gymnasium.registry.get(name)
    if spec is None:
        maker: Any = module
        for part in name.split("."):
            maker = getattr(maker, part, None)
        if not callable(maker) or isinstance(maker, ModuleType):
            return None
        return EnvSpec(name, entry_point=maker)
    # in a file that no import finds, its own name leads nowhere
    where, _, maker_name = str(spec.entry_point).partition(":")
    if place.endswith(".py") and where == Path(place).stem and hasattr(module, maker_name):
        return replace(spec, entry_point=getattr(module, maker_name))
    return spec


def file_of(place: str) -> Path | None:
    """The file of a place that is a user's own: a path to one, or a module in the current folder.

    None for a module that is elsewhere, such as one that is installed. Nothing is executed but the
    packages that a dotted name goes through.
    """
    if place.endswith(".py"):
        return Path(place)
    importable(Path.cwd())
    try:
        found = find_spec(place)
    except (ImportError, ValueError, AttributeError):
        return None
    path = Path(found.origin) if found is not None and found.origin else None
    if path is None or not path.is_file() or not path.resolve().is_relative_to(Path.cwd()):
        return None
    inside = path.resolve().relative_to(Path.cwd())
    return None if INSTALLED & set(inside.parts) else inside


def task_of(maker: Callable[..., Any]) -> str:
    """The name by which another process finds a class or function that makes environments.

    >>> from gymnasium.envs.classic_control import PendulumEnv
    >>> task_of(PendulumEnv)
    'gymnasium.envs.classic_control.pendulum:PendulumEnv'
    """
    name, module = getattr(maker, "__qualname__", ""), getattr(maker, "__module__", "") or ""
    home = sys.modules.get(module)
    if not name or "<" in name or not isinstance(home, ModuleType):
        raise TaskError(
            f"{maker!r} cannot be found by its name, which other processes must do: give a class "
            "or function that stands in a file of its own, and its arguments as task_args"
        )
    if module in MAIN:
        raise TaskError(
            f"{name} is defined in the script or notebook that trains it, which other processes "
            f"cannot import: put it into a file, such as myenvs.py, and give myenvs.{name}"
        )
    path = Path(inspect.getsourcefile(home) or "").resolve()
    if "." in module or INSTALLED & set(path.parts):
        return f"{module}:{name}"
    inside = path.is_relative_to(Path.cwd())
    return f"{(path.relative_to(Path.cwd()) if inside else path).as_posix()}:{name}"


def _import(place: str) -> tuple[ModuleType, dict[str, EnvSpec]]:
    """The module, and the environments that it registered when it was first imported, by id."""
    before = dict(gymnasium.registry)
    try:
        module = _imported(place) or load_module(place)
    except KlipError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name == place.partition(".")[0]:
            raise TaskError(
                f"the module {place} cannot be imported ({cause}): is it installed, or in the "
                "current folder?"
            ) from error
        raise TaskError(str(error)) from error
    new = {id: spec for id, spec in gymnasium.registry.items() if before.get(id) is not spec}
    # kept with the module: another file may register the same id after it
    return module, vars(module).setdefault("__environments__", new)


def _imported(place: str) -> ModuleType | None:
    """The module of a file that the user has imported by its name: a second copy would differ."""
    path = Path(place).resolve()
    others = (sys.modules[name] for name in list(sys.modules) if name not in MAIN)
    same = (m for m in others if Path(getattr(m, "__file__", None) or "").resolve() == path)
    return next(same, None) if place.endswith(".py") else None
