"""Methods that hold old samples, each over several lags or replays: what one line of a picture is.

A method is a shape with its settings. Its numbers may follow the lag or the replay, as GePPO's
radius does: shapes that differ in their numbers alone, and never at one value, are one method. One
that needs an age cannot train where there is none: its line begins at the one that pulls as it
would.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from klip.ppo.config import Config
from klip.shapes import Context, Region, Shape, numbers, structure, with_numbers
from klip.shapes.names import brief, shape_of
from klip.studies.study import CODE, Variant, plain

FRESH: Final = {"lag": 0, "replay": 1}
"""Settings that make samples old, and their values where none is."""
IDLE: Final = frozenset(
    {*FRESH, "gradient_steps", "ratio", "correction_cap", "trace", "age_weights"}
)
"""Settings that change nothing where no sample is old."""
HOLDING: Final = ("ratio", "correction_cap", "trace", "age_weights", "normalise_advantages")
"""Settings that are parts of a method, how it holds old samples, as its shape is."""
NOT_OLD: Final = {"age": 0.0, "behaviour_log_ratio": 0.0, "proximal_log_ratio": 0.0,
                  "deviation": 0.0, "second_moment": 0.0}  # fmt: skip
"""What a shape is told of a sample that is not old."""
LONGEST: Final = 40
"""Characters of a name that a legend has room for."""


@dataclass(frozen=True, eq=False)
class Method:
    """One way to hold old samples, at several lags or replays."""

    shape: str
    """in brief, without numbers that follow the knob"""
    settings: str
    """those in which methods differ, such as `, ratio decoupled`"""
    at: Mapping[int, Variant]
    """by lag or replay, ascending"""
    begins: Variant | None = None
    """the same with fresh samples, where those have another shape or other settings"""
    name: str = ""
    """its shape, with the settings if there is room for them or others have that shape"""

    def unsaid(self, knob: str) -> str:
        """What its name leaves out: settings, and numbers that follow `knob`, lag or replay."""
        shapes = {value: shape_of(variant.shape) for value, variant in self.at.items()}
        own = {value: numbers(shape) for value, shape in shapes.items() if shape is not None}
        names = [*dict.fromkeys(name for each in own.values() for name in each)]
        names = [name for name in names if len({each.get(name) for each in own.values()}) > 1]
        told = [
            " and ".join(f"{name.rpartition('.')[2]} {each[name]:g}" for name in names)
            + f" at {knob} {value}"
            for value, each in own.items()
            if names
        ]
        if self.settings not in self.name:
            told.insert(0, self.settings.removeprefix(", "))
        return f"{self.name}: {', '.join(told)}." if told else ""


def held_as_usual(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same settings with old samples, where there are some, held as `Config` has it.

    >>> held_as_usual({"lag": 2, "replay": 1, "ratio": "decoupled"})
    {'lag': 2, 'replay': 1, 'ratio': 'behaviour'}
    >>> held_as_usual({"lag": 0, "normalise_advantages": "none"})
    {'lag': 0, 'normalise_advantages': 'none'}
    """
    if all(settings.get(name, value) == value for name, value in FRESH.items()):
        return settings
    usual = {f.name: f.default for f in fields(Config) if f.name in HOLDING}
    return {name: usual.get(name, value) for name, value in settings.items()}


def methods(variants: Iterable[Variant], knob: str) -> list[Method]:
    """The methods that have points at two or more values of `knob`, lag or replay.

    Args:
        variants: of one task
        knob: the other one is at its value for fresh samples

    """
    (other,) = FRESH.keys() - {knob}
    same: dict[str, dict[int, Variant]] = defaultdict(dict)
    for v in variants:
        if v.settings.get(other, FRESH[other]) == FRESH[other]:
            value = int(v.settings.get(knob, FRESH[knob]))
            same[v.label.replace(f", {knob} {plain(value)}", "")][value] = v
    fresh = [of[FRESH[knob]] for of in same.values() if FRESH[knob] in of]
    found = []
    for method in _joined(same):
        first = next(iter(method.at.values()))
        begins = None if FRESH[knob] in method.at else beginning(first, fresh)
        if len(method.at) + (begins is not None) > 1:
            found.append(replace(method, begins=begins))
    shared = Counter(method.shape for method in found)
    return [replace(method, name=_name(method, shared[method.shape] > 1)) for method in found]


def _name(method: Method, shared: bool) -> str:
    full = method.shape + method.settings
    return full if shared or len(full) <= LONGEST else method.shape


def _joined(same: Mapping[str, Mapping[int, Variant]]) -> Iterator[Method]:
    """Those that differ in a shape's numbers alone, and never at one value, as one."""
    alike: dict[tuple[str, str], list[tuple[str, Mapping[int, Variant]]]] = defaultdict(list)
    for label, of in same.items():
        shape = next(iter(of.values())).shape
        head = brief(shape) if label.startswith(brief(shape)) else label
        alike[_without_numbers(shape), label.removeprefix(head)].append((head, of))
    for (shape, settings), members in alike.items():
        every = [(value, variant) for _, of in members for value, variant in of.items()]
        if len(members) > 1 and len(dict(every)) == len(every):
            members = [(shape, dict(every))]
        for head, of in members:
            yield Method(head, settings, dict(sorted(of.items())))


def _without_numbers(spelling: str) -> str:
    """The names in a spelling; somebody's own code as it is."""
    shape = shape_of(spelling)
    if shape is None:
        return spelling
    names = re.sub(r"\w+=0\.0(, )?", "", str(structure(shape)))
    return names.replace(", )", ")").replace("()", "")


def beginning(variant: Variant, fresh: Sequence[Variant]) -> Variant | None:
    """The one that trains on fresh samples as this would, if exactly one does.

    Where none does with its own numbers, one that does with this one's: a method's numbers may
    follow the knob.
    """
    others = [each for each in fresh if _settings(each) == _settings(variant)]
    for each in others:
        if each.shape == variant.shape:
            return each
    mine = shape_of(variant.shape)
    if mine is None:
        return None
    shapes = [(each, shape) for each in others if (shape := shape_of(each.shape)) is not None]
    found = [each for each, shape in shapes if _pulls_alike(mine, shape)] or [
        each for each, shape in shapes if _pulls_alike(mine, _renumbered(shape, mine))
    ]
    return found[0] if len(found) == 1 else None


def _settings(variant: Variant) -> list[Any]:
    """What a variant is besides its shape, where no sample is old."""
    codes = [variant.runs[0].config.get(name, "") for name in CODE]
    return [codes, sorted((k, repr(v)) for k, v in variant.settings.items() if k not in IDLE)]


def _renumbered(shape: Region, other: Region) -> Region:
    own = numbers(other)
    return with_numbers(shape, own) if own.keys() == numbers(shape).keys() else shape


def _pulls_alike(first: Region, second: Region) -> bool:
    """Whether two have the same multipliers and weights of the KL, to the last bit.

    Controllers must be of one kind; how they adapt is then a matter of their numbers.
    """
    shapes = isinstance(first, Shape) and isinstance(second, Shape)
    if not shapes and type(first) is not type(second):
        return False
    pulls = [_pulls(each.initial) for each in (first, second)]
    return all(a is not None and b is not None and np.array_equal(a, b)
               for a, b in zip(*pulls, strict=True))  # fmt: skip


def _pulls(shape: Shape) -> tuple[Any, Any]:
    """m and the weight of the KL over a grid; None where more than a sample has to be known."""
    if "effective_size" in shape.needs:
        return None, None
    log_ratio, advantage = np.meshgrid(np.linspace(-3, 3, 241), [-2.0, -1.0, 0.5, 1.0])
    known = Context(**{name: np.full_like(log_ratio, NOT_OLD.get(name, 0.5))
                       for name in shape.needs})  # fmt: skip
    m, weight = shape.multiplier(log_ratio, advantage, known), np.zeros_like(log_ratio)
    if shape.weighs_kl(np.ones(1)):
        weight = weight + shape.kl_weight(log_ratio, advantage, known)
    return np.asarray(m), weight
