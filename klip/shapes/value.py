"""What shapes, gates, thresholds and controllers have in common: a name and parameters.

Each is a frozen dataclass. Its fields are its parameters, and the same dataclass is its config,
its command-line spelling (`str`) and its record on disk.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from klip.errors import KlipError
from klip.shapes.backend import Array, cast
from klip.shapes.context import CONTEXT_FIELDS, NO_CONTEXT, Context, MissingContext

Parameter = Any
"""A number, a traced number, or a `Threshold`."""

V = TypeVar("V", bound="Value")


class ParameterError(KlipError):
    """A parameter that is outside its range, or not there at all."""


def parameter(
    default: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    choices: tuple[str, ...] | None = None,
    softness: bool = False,
) -> Any:
    """A dataclass field with the range its value must lie in.

    `softness` marks the width of a relaxed step: at 0 the shape should be PPO-Clip, at infinity
    the unconstrained surrogate.
    """
    rules = {"above": above, "at_least": at_least, "choices": choices, "softness": softness}
    return field(default=default, metadata=rules)


def is_number(x: object) -> bool:
    """Whether `x` is a plain real number (and not a truth value)."""
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def _entry(method: Callable[..., Array]) -> Callable[..., Array]:
    """Make a context optional, its needs checked, and every parameter open to a threshold."""

    @functools.wraps(method)
    def call(
        self: Value, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        return method(self.at(context, log_ratio), log_ratio, advantage, context)

    return call


@dataclass(frozen=True)
class Value:
    """A named, immutable value with numeric parameters."""

    name: ClassVar[str] = ""
    number: ClassVar[str] = ""
    family: ClassVar[str] = "user"
    reference: ClassVar[str] = ""
    requires: ClassVar[frozenset[str]] = frozenset()
    abstract: ClassVar[bool] = True
    source: ClassVar[str] = ""
    elementwise: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(
        cls,
        *,
        name: str = "",
        number: str = "",
        family: str = "",
        reference: str = "",
        requires: Iterable[str] = (),
        abstract: bool = False,
    ) -> None:
        """Record where the value comes from; `name` defaults to the class's, in kebab case."""
        cls.name = name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        cls.number, cls.reference, cls.abstract = number, reference, abstract
        cls.family = family or cls.family
        cls.requires = cls.requires | frozenset(requires)
        if unknown := cls.requires - CONTEXT_FIELDS.keys():
            raise KlipError(
                f"{cls.__name__} requires {', '.join(sorted(unknown))}, which no context has; "
                f"there are {', '.join(CONTEXT_FIELDS)}"
            )
        for method in cls.elementwise:
            if method in cls.__dict__:
                setattr(cls, method, _entry(cls.__dict__[method]))

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            _check(self.name, f, value)
            if is_number(value):  # 1 and 1.0 are one value, and have one spelling
                object.__setattr__(self, f.name, float(value))

    def __str__(self) -> str:
        inside = ", ".join(f"{key}={value}" for key, value in self.parameters.items())
        label = f"{self.source}:{type(self).__name__}" if self.source else self.name
        return f"{label}({inside})" if inside else label

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that are set, by name."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {key: value for key, value in pairs if value is not None}

    @property
    def brief(self) -> str:
        """The spelling without parameters that are at their defaults: a label.

        >>> from klip.shapes import AdaptiveKL, Clip
        >>> AdaptiveKL(target=0.01).brief, Clip().brief
        ('adaptive-kl(target=0.01)', 'clip')
        """
        if any(f.default is dataclasses.MISSING for f in dataclasses.fields(self)):
            return str(self)
        usual = type(self)().parameters
        own = {k: v for k, v in self.parameters.items() if usual.get(k) != v}
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in own.items())})" if own else self.name

    @property
    def needs(self) -> frozenset[str]:
        """The context fields that this value and its parts ask for."""
        parts = (part.needs for part in self.parameters.values() if isinstance(part, Value))
        return self.requires.union(*parts)

    def at(self: V, context: Context, like: Array = 0.0) -> V:
        """The value for one batch: its needs checked, its thresholds arrays of `like`'s dtype."""
        check_needs(self, context.given)
        resolved = {
            key: cast(part.value(context), like)
            for key, part in self.parameters.items()
            if isinstance(part, Threshold)
        }
        return with_numbers(self, resolved) if resolved else self


@dataclass(frozen=True)
class Threshold(Value, abstract=True):
    """A parameter that is a function of the context: `Clip(eps=ByAge(...))`."""

    def value(self, context: Context) -> Array:
        """The parameter for each sample."""
        raise NotImplementedError


def check_needs(value: Value, available: Iterable[str]) -> None:
    """Raise, before any training, if `value` needs a context field that is not available.

    >>> from klip.shapes import TRPPO
    >>> check_needs(TRPPO(), {"age"})
    Traceback (most recent call last):
    klip.shapes.context.MissingContext: tr-ppo needs kl (closed-form KL(old || new) of the sample's state, detached): pass Context(kl=...), or choose a shape without that need
    """
    for name in sorted(value.needs - frozenset(available)):
        raise MissingContext(
            f"{value.name} needs {name} ({CONTEXT_FIELDS[name]}): pass Context({name}=...), "
            "or choose a shape without that need"
        )


def numbers(value: Value, prefix: str = "") -> dict[str, Any]:
    """Every numeric parameter of a value and of its parts, by dotted path.

    >>> from klip.shapes import Clip, ByAge
    >>> numbers(Clip(eps=ByAge(fresh=0.2)))
    {'eps.fresh': 0.2, 'eps.half_life': 4.0, 'eps.floor': 0.0}
    """
    found: dict[str, Any] = {}
    for key, part in value.parameters.items():
        if isinstance(part, Value):
            found |= numbers(part, f"{prefix}{key}.")
        elif not isinstance(part, str):
            found[prefix + key] = part
    return found


def with_numbers(value: V, new: Mapping[str, Any]) -> V:
    """A copy with some numbers replaced, unchecked: they may be traced, or arrays.

    >>> import jax
    >>> from klip.shapes import Clip
    >>> clip = jax.jit(lambda eps, l: with_numbers(Clip(), {"eps": eps}).multiplier(l, 1.0))
    >>> float(clip(0.2, 0.25)), round(float(clip(0.4, 0.25)), 3)  # compiled once
    (0.0, 1.284)
    """
    copy = object.__new__(type(value))
    for f in dataclasses.fields(value):
        part = getattr(value, f.name)
        inner = {k[len(f.name) + 1 :]: v for k, v in new.items() if k.startswith(f.name + ".")}
        if f.name in new:
            part = new[f.name]
        elif inner:
            part = with_numbers(part, inner)
        object.__setattr__(copy, f.name, part)
    return copy


def structure(value: V) -> V:
    """The value with every number 0: two values that compile alike have equal structures."""
    return with_numbers(value, dict.fromkeys(numbers(value), 0.0))


def _check(owner: str, f: dataclasses.Field[Any], value: Any) -> None:
    """Raise unless `value` may stand in field `f`."""
    if value is None or isinstance(value, Value):
        return
    choices = f.metadata.get("choices")
    if choices is not None:
        if value not in choices:
            raise ParameterError(f"{owner}: {f.name}={value!r} must be one of {', '.join(choices)}")
        return
    if not is_number(value):
        if hasattr(value, "dtype"):
            return  # a traced number or an array: its range cannot be known here
        raise ParameterError(f"{owner}: {f.name}={value!r} must be a number")
    above, at_least = f.metadata.get("above"), f.metadata.get("at_least")
    if not math.isfinite(value):
        raise ParameterError(f"{owner}: {f.name}={value} must be finite")
    if above is not None and not value > above:
        raise ParameterError(f"{owner}: {f.name}={value} must be greater than {above:g}")
    if at_least is not None and not value >= at_least:
        raise ParameterError(f"{owner}: {f.name}={value} must be at least {at_least:g}")
