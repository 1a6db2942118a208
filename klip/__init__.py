"""Klip: the workbench for trust regions in policy optimisation.

Every trust region is one number per sample, beta, in  E[ w*A + beta * log pi(a|s) ].

>>> import klip
>>> shape = klip.Clip(low=0.2, high=0.28) + klip.KLk3(b=0.1)
>>> str(klip.parse("ramp(eps=0.2)"))
'ramp(eps=0.2, width=0.05)'

Shapes, gates, thresholds and controllers are here by their class names, and each command of the
command line is here as a function with the command's name and options: `klip.show`,
`klip.profile`, `klip.probe`, `klip.verify`, `klip.train`, `klip.evaluate`, ... Two commands bear
the names of rooms: what `klip shapes` lists is `klip.catalogue(klip.Shape)`, and what `klip runs`
lists is `klip.list_runs(folder)`.

A name is imported when it is asked for: `import klip` alone loads neither JAX nor PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

TYPE_CHECKING = False  # typing's own would import typing, from wherever `python -m klip` looks
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "klip.errors": "KlipError",
    "klip.adapters.doctor": "doctor",
    "klip.adapters.stock": "probe",
    "klip.draw.geometry": "figures",
    "klip.draw.guarantee": "guarantee",
    "klip.draw.show": "show",
    "klip.engine": "Plan read_plan shipped_plans",
    "klip.engine.finish": "Unfinished",
    "klip.engine.listing": "list_runs",
    "klip.engine.run": "resume run",
    "klip.pages.making": "pack report",
    "klip.policies": "Policy evaluate export load video",
    "klip.ppo.config": "Config",
    "klip.ppo.train": "train",
    "klip.runs.sinks": "sync",
    "klip.shapes": "Context Feedback by_sign catalogue parameter parse",
    "klip.studies.compare": "compare",
    "klip.studies.frames": "metrics returns",
    "klip.studies.playing": "league",
    "klip.studies.reading": "read_study",
    "klip.studies.tuning": "tune",
    "klip.theory.identity": "verify",
    "klip.theory.profile": "profile",
    "klip.tokens": "token_loss",
}
"""Where functions and a few values live. Shapes, gates, thresholds and controllers are not listed:
every class of a value in `klip.shapes` is here by its name. `__init__.pyi`, which
`python tests/test_front_door.py` writes, says all names to editors and type checkers."""

_ROOMS = {
    *("shapes", "theory", "tasks", "ppo", "tokens", "lab", "disk", "runs", "engine"),
    *("studies", "draw", "pages", "policies", "adapters"),
}
_NEEDS_TORCH = ("klip.tokens",)

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_HOME_OF |= {room: f"klip.{room}" for room in _ROOMS}


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ImportError:
        return False


def _homes() -> dict[str, str]:
    """The module of every name, those of values in `klip.shapes` too."""
    shapes = import_module("klip.shapes")
    values = {cls.__name__ for cls in vars(shapes).values() if _is_value(shapes, cls)}
    return {**dict.fromkeys(values, "klip.shapes"), **_HOME_OF}


def _is_value(shapes: Any, thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, shapes.Value)


def _names() -> list[str]:
    """The names that work here: those that need PyTorch are left out where it is missing.

    So `help(klip)` and `from klip import *` need no extra.
    """
    absent = () if _is_installed("torch") else _NEEDS_TORCH
    return [name for name, home in sorted(_homes().items()) if home not in absent]


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: a command that is stopped at once has loaded little."""
    if name == "__all__":
        return _names()
    if name in _ROOMS:
        return import_module(_HOME_OF[name])
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    if not name.startswith("_") and name in _homes():
        return getattr(import_module("klip.shapes"), name)
    raise AttributeError(f"klip has no {name!r}{'' if name.startswith('_') else _hint(name)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})


def _hint(name: str) -> str:
    """Say what was probably meant, whatever its capitals and underscores."""
    from difflib import get_close_matches

    known = {each.lower().replace("_", ""): each for each in sorted(_homes(), reverse=True)}
    near = get_close_matches(name.lower().replace("_", ""), known, n=1)
    return f"; did you mean klip.{known[near[0]]}?" if near else "; dir(klip) lists what it has"
