"""The MuJoCo tasks as data: what Gymnasium's classes say in their code and default arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

Range = tuple[float, float]


@dataclass(frozen=True)
class Healthy:
    """Strict bounds on columns of (positions, velocities): outside them the episode ends."""

    first: int  # the column that the first range is for
    ranges: tuple[Range, ...]
    rest: float | None = None  # |column| < rest for all that follow; None leaves them free


@dataclass(frozen=True)
class Robot:
    """One MuJoCo task of Gymnasium, with its default arguments."""

    xml: str
    frame_skip: int
    reset_noise: float
    normal_velocity: bool  # the reset noise of velocities: normal, or uniform like positions
    hidden: int  # leading positions that the observation leaves out
    control_cost: float
    position: Literal["joint", "torso", "mass"] = "joint"  # whose x the reward follows
    forward: float = 1.0
    alive: float = 0.0  # the reward for being healthy
    always_alive: bool = False  # ... is paid also on the step that ends the episode
    healthy: Healthy | None = None
    clip_velocity: float | None = None
    cost_of_applied: bool = False  # the control cost looks at what MuJoCo holds, in float64
    bodies: Literal["none", "all", "moving"] = "none"  # whose inertia and velocity are observed
    forces: bool = False  # contact forces are observed
    clip_forces: float | None = None
    contact_cost: float = 0.0
    contact_cost_limit: float = math.inf


_HALF_CHEETAH = Robot(
    "half_cheetah.xml",
    frame_skip=5,
    reset_noise=0.1,
    normal_velocity=True,
    hidden=1,
    control_cost=0.1,
)

_HOPPER = Robot(
    "hopper.xml",
    frame_skip=4,
    reset_noise=5e-3,
    normal_velocity=False,
    hidden=1,
    control_cost=1e-3,
    alive=1.0,
    healthy=Healthy(first=1, ranges=((0.7, math.inf), (-0.2, 0.2)), rest=100.0),
    clip_velocity=10.0,
)

_WALKER2D = replace(
    _HOPPER,
    xml="walker2d.xml",
    healthy=Healthy(first=1, ranges=((0.8, 2.0), (-1.0, 1.0))),
)

_ANYWHERE = (-math.inf, math.inf)

_ANT = Robot(
    "ant.xml",
    frame_skip=5,
    reset_noise=0.1,
    normal_velocity=True,
    hidden=2,
    control_cost=0.5,
    position="torso",
    alive=1.0,
    # 0.2 <= z <= 1.0 with its ends, and every other number finite
    healthy=Healthy(
        first=0,
        ranges=(
            _ANYWHERE,
            _ANYWHERE,
            (math.nextafter(0.2, -math.inf), math.nextafter(1.0, math.inf)),
        ),
        rest=math.inf,
    ),
)

_HUMANOID = Robot(
    "humanoid.xml",
    frame_skip=5,
    reset_noise=1e-2,
    normal_velocity=False,
    hidden=2,
    control_cost=0.1,
    position="mass",
    forward=1.25,
    alive=5.0,
    healthy=Healthy(first=2, ranges=((1.0, 2.0),)),
    cost_of_applied=True,
    bodies="all",
    forces=True,
)

ROBOTS: Mapping[str, Robot] = MappingProxyType(
    {
        "HalfCheetah-v4": _HALF_CHEETAH,
        "HalfCheetah-v5": _HALF_CHEETAH,
        "Hopper-v4": replace(_HOPPER, always_alive=True),
        "Hopper-v5": _HOPPER,
        "Walker2d-v4": replace(_WALKER2D, always_alive=True),
        "Walker2d-v5": replace(_WALKER2D, xml="walker2d_v5.xml"),
        "Ant-v4": replace(_ANT, always_alive=True),
        "Ant-v5": replace(_ANT, forces=True, clip_forces=1.0, contact_cost=5e-4),
        "Humanoid-v4": replace(_HUMANOID, always_alive=True),
        "Humanoid-v5": replace(
            _HUMANOID, bodies="moving", contact_cost=5e-7, contact_cost_limit=10.0
        ),
    }
)
