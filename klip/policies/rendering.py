"""Gymnasium's environments rendered into memory, on a machine with or without a screen."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes.util import find_library
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from numpy.typing import NDArray

from klip.errors import KlipError
from klip.tasks.lanes import NONE, Arguments
from klip.tasks.lookup import find

Frame = NDArray[np.uint8]  # [H, W, 3]
SCREENLESS = (
    "MuJoCo renders without a screen through EGL: apt-get install libegl1 libopengl0 "
    "libgl1-mesa-dri (Debian, Ubuntu); or set MUJOCO_GL to what your machine has (egl, osmesa, "
    "glfw)"
)


@contextmanager
def screenless(task: str) -> Iterator[None]:
    """Let pygame and MuJoCo render into memory; at the end, put the process's settings back."""
    wanted = {
        "SDL_VIDEODRIVER": "dummy",
        "SDL_AUDIODRIVER": "dummy",
        "PYGAME_HIDE_SUPPORT_PROMPT": "1",
    }
    if (backend := mujoco_backend()) is not None:
        wanted["MUJOCO_GL"] = backend
    with _environ({name: text for name, text in wanted.items() if name not in os.environ}):
        if str(find(task).entry_point).startswith("gymnasium.envs.mujoco"):
            _try_mujoco(task)
        yield


def mujoco_backend() -> str | None:
    """The library by which MuJoCo can render here without a screen; None leaves it to MuJoCo."""
    if sys.platform == "linux":
        for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
            if find_library(library):
                return name
    return None


def _try_mujoco(task: str) -> None:
    """Open and close a context of OpenGL; raise an error that says what is missing."""
    backend = os.environ.get("MUJOCO_GL")
    try:
        if backend == "egl":
            from mujoco.egl import GLContext  # type: ignore[import-untyped]
        elif backend == "osmesa":
            from mujoco.osmesa import GLContext  # type: ignore[import-untyped]
        elif backend in (None, "glfw") and sys.platform == "linux" and not _has_screen():
            raise RuntimeError("there is no screen, and no EGL or OSMesa was found or asked for")
        else:
            return
        GLContext(8, 8).free()
    except Exception as error:
        raise KlipError(
            f"{task} cannot be rendered here ({one_line(error)}). {SCREENLESS}"
        ) from None


def _has_screen() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def _environ(values: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)


def rendered_environment(task: str, arguments: Arguments = NONE) -> gymnasium.Env[Any, Any]:
    """The environment as `gymnasium.make` gives it, ready to render."""
    spec = find(task)
    try:
        with warnings.catch_warnings():
            # Gymnasium says that v4 is old, and Box2D warns about itself
            warnings.simplefilter("ignore", DeprecationWarning)
            entry = spec.entry_point
            modes = _modes(load_env_creator(entry) if isinstance(entry, str) else entry)
            if modes is None or "rgb_array" in modes:
                with _quiet_mujoco(task):
                    given = {"render_mode": "rgb_array", "disable_env_checker": True}
                    return gymnasium.make(spec, **{**arguments, **given})
    except gymnasium.error.DependencyNotInstalled as error:
        raise KlipError(f"{task} needs what is not installed: {one_line(error)}") from error
    except ImportError as error:
        raise KlipError(
            f'rendering {task} needs {error.name}: pip install "klip-rl[video]"'
        ) from error
    except Exception as error:
        raise KlipError(f"{task} could not be made: {one_line(error)}") from error
    raise KlipError(
        f"{task} cannot be filmed: it renders as {', '.join(modes) or 'nothing'}, and a film needs "
        "rgb_array"
    )


@contextmanager
def _quiet_mujoco(task: str) -> Iterator[None]:
    """Keep MuJoCo from writing to the terminal, and to a file here, that HalfCheetah is old."""
    if "mujoco" not in sys.modules:
        yield
        return
    from klip.tasks.physics import quiet_mujoco

    with quiet_mujoco(task):
        yield


def _modes(creator: Any) -> list[str] | None:
    """The ways in which an environment's class can render; None for a function that makes one."""
    if not isinstance(creator, type):
        return None
    return [str(mode) for mode in getattr(creator, "metadata", {}).get("render_modes", [])]


def render(env: gymnasium.Env[Any, Any], task: str) -> Frame:
    """A picture of the environment as it is now, uint8 [H, W, 3]."""
    try:
        frame = np.asarray(env.render())
    except gymnasium.error.DependencyNotInstalled as error:
        raise KlipError(
            f'rendering {task} needs what is not installed: pip install "klip-rl[video]" '
            f"({one_line(error)})"
        ) from error
    except Exception as error:
        raise KlipError(f"{task} could not be rendered: {one_line(error)}") from error
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise KlipError(
            f"{task} renders {frame.dtype}{list(frame.shape)}, and a film needs uint8[H, W, 3]"
        )
    return frame


def one_line(error: BaseException) -> str:
    """An exception's name and text, short enough for a message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
