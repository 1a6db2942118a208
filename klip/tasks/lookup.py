"""From the name of a task to Gymnasium's environment, or to an error that says what is wrong."""

from __future__ import annotations

import difflib
import warnings
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from klip.tasks.lanes import NONE, Arguments, TaskError
from klip.tasks.own import own_spec


def find(task: str) -> EnvSpec:
    """The environment that a name stands for, or a `TaskError` that names near ids.

    Args:
        task: Gymnasium's id, such as Hopper-v4; `module:Id-v0` or `file.py:Id-v0` for one in code
            that is imported first

    """
    place, _, name = task.rpartition(":")
    spec = own_spec(place, name) if place else gymnasium.registry.get(name)
    if spec is None:
        near = suggestions(name)
        hint = f"did you mean {' or '.join(near)}?" if near else "see gymnasium.pprint_registry()"
        own = "" if place else "; your own environment is module:Id-v0 or file.py:Id-v0"
        raise TaskError(f"there is no environment {task}: {hint}{own if not near else ''}")
    if _gone(spec):
        near = [other for other in suggestions(name) if _base(other) == _base(name)]
        raise TaskError(f"{task} no longer works with Gymnasium: use {' or '.join(near)}")
    return spec


def make_environment(task: str, arguments: Arguments = NONE) -> gymnasium.Env[Any, Any]:
    """A new environment, without Gymnasium's checker, which would only slow it down."""
    spec = find(task)
    try:
        with warnings.catch_warnings():
            # Box2D's import warns about itself, and crashes Python where warnings are errors
            warnings.simplefilter("ignore", DeprecationWarning)
            return gymnasium.make(spec, disable_env_checker=True, **arguments)
    except gymnasium.error.DependencyNotInstalled as error:
        raise TaskError(f"{task} needs what is not installed: {_remedy(error)}") from error
    except (Exception, SystemExit) as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise TaskError(f"{task} could not be made: {words}") from error


def suggestions(name: str) -> list[str]:
    """Ids that are near to a wrong name: its other versions first, then similar names."""
    ids = {spec.id.lower(): spec.id for spec in gymnasium.registry.values() if not _gone(spec)}
    bases = {_base(lower) for lower in ids}
    near = difflib.get_close_matches(_base(name).lower(), bases, n=3, cutoff=0.6)
    if near and near[0] == _base(name).lower():
        near = near[:1]
    return [ids[lower] for base in near for lower in sorted(ids) if _base(lower) == base][:4]


def _base(name: str) -> str:
    """An id without its version."""
    return name.rpartition("-v")[0] or name


def _gone(spec: EnvSpec) -> bool:
    """Whether Gymnasium keeps the id only to say that it left (MuJoCo's v2 and v3)."""
    return getattr(spec.entry_point, "__name__", "").startswith("_raise")


def _remedy(error: Exception) -> str:
    """What to install; Gymnasium's advice for Box2D asks for a compiler without need."""
    if "box2d" in str(error).lower():
        return 'pip install "gymnasium[box2d]"'
    return " ".join(str(error).split())
