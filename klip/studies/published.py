"""What the paper published, and when ours may be set beside it.

Numbers of Colletti and Holzinger 2026 (CC BY 4.0, github.com/learning-mechanisms/KLip-PPO):
Table 1, the curves behind its figures, the peaks of the kill fraction. A comparison is
made only where the config is the paper's in everything but the seed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from klip.ppo.config import OWN, usual_settings
from klip.shapes import AdaptiveKL
from klip.shapes.names import family

SEEDS: Final = 5
PAPER: Final[Mapping[str, str]] = {
    "ppo_clip": "clip(eps=0.2)",
    "ppo_kl_per_sample": "per-sample(eps=0.2)",
    "ppo_kl_fixed": "kl(b=1.0)",
    "ppo_kl_adaptive": str(AdaptiveKL()),
}
"""The paper's algorithms, by its authors' keys, as shapes with the paper's knobs."""
TITLES: Final[Mapping[str, str]] = {
    "ppo_clip": "PPO-Clip",
    "ppo_kl_per_sample": "Per-sample",
    "ppo_kl_fixed": "Fixed β",
    "ppo_kl_adaptive": "Adaptive β",
}
"""The column heads of Table 1."""
TASKS: Final = (
    "Ant-v4", "CartPole-v1", "HalfCheetah-v4", "Hopper-v4", "Humanoid-v4", "LunarLander-v3",
    "Walker2d-v4",
)  # fmt: skip
_NO_EFFECT: Final = (*OWN, "per_epoch")


@dataclass(frozen=True)
class Published:
    """A cell of Table 1."""

    mean: float
    std: float
    """Of the population of seeds."""
    n: int = SEEDS


@dataclass(frozen=True)
class PublishedCurve:
    """A line of the paper's figures: mean over 5 seeds, and its std where it was published."""

    steps: NDArray[np.float64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64] | None


def algorithm(shape: str) -> str | None:
    """The paper's key of a shape, if it is one of its four with the paper's knob."""
    return next((key for key, spelled in PAPER.items() if spelled == shape), None)


def settings_differ(task: str, settings: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that are not the paper's for this task, by name: (ours, the paper's).

    >>> settings_differ("Hopper-v4", {"lr": 1e-3, "gamma": 0.99})
    {'lr': (0.001, 0.0003)}
    """
    usual = usual_settings(task)
    return {
        name: (value, usual.get(name))
        for name, value in settings.items()
        if name not in _NO_EFFECT and value != usual.get(name)
    }


def why_not_compared(task: str, shape: str, settings: Mapping[str, Any]) -> str:
    """Why no published number stands beside a variant; empty where one does."""
    if task not in TASKS:
        return "task not in the paper"
    if algorithm(shape) is None:
        known = family(shape) in {family(known) for known in PAPER.values()}
        return "not the paper's knob" if known else "not in the paper"
    differ = settings_differ(task, settings)
    differences = ", ".join(
        f"{name} {_short(a)} (paper: {_short(b)})" for name, (a, b) in differ.items()
    )
    return f"other settings: {differences}" if differences else ""


def published_return(task: str, key: str) -> Published:
    """A cell of Table 1."""
    cell = _data("returns")["final_returns_mean_popstd_over_5_seeds"][task.split("-")[0]][key]
    return Published(float(cell["mean"]), float(cell["std"]))


def published_curve(task: str, key: str) -> PublishedCurve:
    """The finest curve there is: all iterations on MuJoCo tasks, at most 80 points elsewhere."""
    fine = _data("curves_mujoco").get(task)
    points = np.array((fine or _data("curves")[task])[key], dtype=float).T
    return PublishedCurve(points[0], points[1], points[2] if len(points) > 2 else None)


def published_peak_kill(task: str) -> float | None:
    """The largest kill fraction that the mean over PPO-Clip's seeds reached."""
    peaks = _data("returns")["peak_I_kill_fraction_of_seed_mean_ppo_clip"]
    peak = peaks.get(task.split("-")[0]) if task in TASKS else None
    return None if peak is None else float(peak)


@functools.cache
def _data(name: str) -> Any:
    path = files("klip.studies") / "data" / f"published_{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def _short(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
