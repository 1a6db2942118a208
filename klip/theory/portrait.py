"""A shape on a grid, with its formula and properties: all that a page needs to draw anybody's.

    shape ── portrait ──> Portrait ── to_json ──> shape.json, beside a run's config

It is sampled while the shape's code is at hand, when a run begins. Whoever reads it later executes
nothing. It is kept with a checksum, and read with distrust: a file may say anything.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from klip.errors import KlipError
from klip.shapes import Region, Shape
from klip.shapes.value import is_number
from klip.theory.curves import SMALLEST_RATIO, Curve, Floats, Leap, View, trace, values
from klip.theory.profile import measured
from klip.theory.views import pull_of

FORMAT: Final = "klip shape 1"
RATIOS: Final = (SMALLEST_RATIO, 2.0)
SAMPLES: Final = 121
"""Ratios of the grid; both sides of each jump come in between."""
VIEWS: Final[tuple[View, ...]] = ("multiplier", "beta")
ADVANTAGES: Final = (1.0, -1.0)
LARGEST: Final = 1_000_000
"""A file of more bytes is not one of Klip's."""
OTHER_CONTEXTS: Final[Mapping[str, tuple[float, ...]]] = {
    "old_log_prob": (math.log(0.05), math.log(0.95)),
    "entropy": (0.1, 3.0),
    "kl": (0.0, 0.05),
    "reward": (-1.0, 1.0),
    "age": (1.0, 4.0, 16.0),
    "position": (0.0, 99.0),
    "behaviour_log_ratio": (-0.5, 0.5),
    "proximal_log_ratio": (-0.5, 0.5),
    "effective_size": (0.5, 0.1),
    "deviation": (0.5,),
    "second_moment": (0.1,),
}
"""Values at which a shape is drawn, too, besides the typical one; each by itself."""


@dataclass(frozen=True)
class Pose:
    """A shape at one context: each view against the ratio, at each sign of the advantage."""

    context: Mapping[str, float]
    """What is assumed of the samples besides typical values."""
    curves: Mapping[tuple[View, float], Curve]


@dataclass(frozen=True)
class Portrait:
    """What is known of a shape without its code."""

    spelling: str
    name: str
    formula: str
    reference: str
    initial: str
    """The shape that a controller starts with, else the shape."""
    adapts: bool
    needs: tuple[str, ...]
    weighs_kl: bool
    parameters: Mapping[str, float | str]
    poses: tuple[Pose, ...]
    """The typical context first; empty where it could not be sampled."""
    profile: Mapping[str, Any] | None
    """As `Profile.as_dict` gives it; None where it was not made."""
    trouble: str = ""
    """Why it has no picture, no profile or no guarantees."""
    guarantees: Mapping[str, str] | None = None
    """A line as of `klip.theory.guarantee.table`; None where it was not made."""


def pose(shape: Shape, context: Mapping[str, float] | None = None) -> Pose:
    """The shape sampled at a context, in which fields that are not given are typical."""
    known = dict(context or {})
    curves = {
        (view, a): trace(
            lambda w, view=view, a=a: values(shape, view, w, a, known),  # type: ignore[misc]
            *RATIOS,
            samples=SAMPLES,
        )
        for view in VIEWS
        for a in ADVANTAGES
    }
    return Pose(known, curves)


def portrait(region: Region, steps: int | None = None, profiled: bool = True) -> Portrait:
    """The portrait of a shape, or of the shape that a controller starts with.

    Whatever its code raises is told in `trouble`.

    Args:
        region: a shape or controller
        steps: how long training is; a shape that looks at the step is drawn at three of them
        profiled: measure its properties, too, in float64 alone, and work out its guarantees

    >>> clip = portrait(__import__("klip.shapes").shapes.Clip(), profiled=False)
    >>> clip.parameters, [jump.at for jump in clip.poses[0].curves["multiplier", 1.0].jumps]
    ({'eps': 0.2}, [1.2])

    """
    shape, poses, properties, promises, trouble = region.initial, [], None, None, ""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            poses = [pose(shape), *(pose(shape, other) for other in _contexts(shape, steps))]
            if profiled:
                properties = measured(pull_of(shape), shape, dtypes=()).as_dict()
                promises = _promises(shape)
        except Exception as error:  # a shape is anybody's code
            name = "" if isinstance(error, KlipError) else f"{type(error).__name__}: "
            trouble = " ".join(f"{name}{error}".split())[:300]
    known = {name: _plain(value) for name, value in region.parameters.items()}
    return Portrait(
        str(region), _name(region), region.formula.replace("`", ""), region.reference, str(shape),
        region.adapts, tuple(sorted(shape.needs)), _weighs_kl(shape), known, tuple(poses),
        properties, trouble, promises,
    )  # fmt: skip


def _promises(shape: Shape) -> Mapping[str, str]:
    from klip.theory.guarantee.table import worked_out  # late: it loads SciPy

    return worked_out(shape)


def _contexts(shape: Shape, steps: int | None) -> list[dict[str, float]]:
    named = dict(OTHER_CONTEXTS) | ({"step": (steps / 2, float(steps))} if steps else {})
    return [{name: value} for name in sorted(shape.needs) for value in named.get(name, ())]


def _name(region: Region) -> str:
    """The shape without its parameters: the family that a chart of a knob is of."""
    return region.name if not region.source else f"{region.source}:{type(region).__name__}"


def _weighs_kl(shape: Shape) -> bool:
    try:
        return shape.weighs_kl(np.ones(1))
    except Exception:  # as above; `trouble` says it
        return False


def _plain(value: Any) -> float | str:
    return float(value) if is_number(value) else str(value)


# -- on disk --------------------------------------------------------------------------------------


def to_json(drawn: Portrait) -> bytes:
    """A portrait as a small file that knows whether it is whole."""
    text = json.dumps(to_fields(drawn), separators=(",", ":"), sort_keys=True, allow_nan=False)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"format":"{FORMAT}","sha256":"{sha256}","shape":{text}}}\n'.encode()


def from_json(data: bytes) -> Portrait:
    """The portrait in a file; raises `KlipError`, saying why, unless every byte is as written."""
    start, _, text = data.rstrip(b"\n").partition(b'"shape":')
    try:
        about = json.loads(start + b'"shape":null}')
        if about["format"] != FORMAT or len(data) > LARGEST:
            raise ValueError("it is not one of Klip's")
        if hashlib.sha256(text[:-1]).hexdigest() != about["sha256"]:
            raise ValueError("its content does not match its checksum")
        return of_fields(json.loads(text[:-1]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KlipError(f"the picture of its shape cannot be used: {error}") from None


def to_fields(drawn: Portrait) -> dict[str, Any]:
    """A portrait as plain data; numbers have six digits."""
    about = {f.name: getattr(drawn, f.name) for f in dataclasses.fields(drawn)}
    if drawn.guarantees is None:
        del about["guarantees"]
    poses = [
        {
            "context": dict(each.context),
            "curves": [
                {"view": view, "advantage": a, "x": _short(curve.x), "y": _short(curve.y),
                 "jumps": [_short([j.at, j.left, j.right]) for j in curve.jumps]}
                for (view, a), curve in each.curves.items()
            ],
        }
        for each in drawn.poses
    ]  # fmt: skip
    made = {**about, "poses": poses, "parameters": dict(drawn.parameters)}
    return dict(_finite(made))


def of_fields(about: Mapping[str, Any]) -> Portrait:
    """The portrait that `to_fields` gave; raises a ValueError and the like for anything else."""
    properties = about["profile"]
    if not (properties is None or isinstance(properties, dict)):
        raise ValueError("its profile is no table")
    promises = about.get("guarantees")
    if promises is not None and set(map(type, promises.values())) != {str}:
        raise ValueError("its guarantees are no texts")
    parameters = {str(k): v for k, v in about["parameters"].items()}
    if not all(isinstance(v, str) or is_number(v) for v in parameters.values()):
        raise ValueError("its parameters are no numbers")
    texts = {name: about[name] for name in ("spelling", "name", "formula", "reference", "initial",
                                            "trouble")}  # fmt: skip
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("its texts are no texts")
    return Portrait(
        **texts,
        adapts=bool(about["adapts"]),
        weighs_kl=bool(about["weighs_kl"]),
        needs=tuple(map(str, about["needs"])),
        parameters=parameters,
        poses=tuple(_pose(each) for each in about["poses"]),
        profile=properties,
        guarantees=promises,
    )


def _pose(about: Mapping[str, Any]) -> Pose:
    context = {str(name): float(value) for name, value in about["context"].items()}
    curves = {(each["view"], float(each["advantage"])): _curve(each) for each in about["curves"]}
    if set(curves) != {(view, a) for view in VIEWS for a in ADVANTAGES}:
        raise ValueError("a picture lacks a curve")
    return Pose(context, curves)


def _curve(about: Mapping[str, Any]) -> Curve:
    x, y = _array(about["x"]), _array(about["y"])
    if x.shape != y.shape or x.ndim != 1 or not np.isfinite(x).all() or len(x) > 10 * SAMPLES:
        raise ValueError("a curve has not one y for each x")
    return Curve(x, y, tuple(Leap(*map(float, jump)) for jump in about["jumps"]))


def _array(numbers: Any) -> Floats:
    return np.array([math.nan if n is None else float(n) for n in numbers], dtype=float)


def _short(numbers: Any) -> list[float | None]:
    return [float(f"{n:.6g}") if math.isfinite(n) else None for n in numbers]


def _finite(value: Any) -> Any:
    """Plain data in which a number that is not finite is a word, so that it is JSON."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {str(k): _finite(v) for k, v in value.items()}
        case list() | tuple():
            return [_finite(v) for v in value]
    return value
