"""What shapes, gates, thresholds and controllers have in common: a name and parameters.

Each is a frozen dataclass. Its fields are its parameters, and the same dataclass is its config,
its command-line spelling (`str`) and its record on disk.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from klip.errors import KlipError
from klip.shapes.backend import Array, cast
from klip.shapes.context import CONTEXT_FIELDS, NO_CONTEXT, Context, MissingContext
from klip.shapes.sample import Sample

Parameter = Any
"""A number, a traced number, or a `Threshold`."""

V = TypeVar("V", bound="Value")


class ParameterError(KlipError):
    """A parameter is missing or outside its range."""


def parameter(
    default: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    choices: tuple[str, ...] | None = None,
    softness: bool = False,
) -> Any:
    """A dataclass field for a parameter of a shape.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Fade(Value):
    ...     width: Parameter = parameter(0.5, above=0)
    >>> Fade(width=-1)
    Traceback (most recent call last):
    klip.shapes.value.ParameterError: fade: width=-1 must be greater than 0

    Args:
        default: its value unless another is given
        above: the value must be greater than this
        at_least: the value must not be less than this
        choices: the words of which the value must be one
        softness: whether it is the width of a relaxed step: at 0 the shape should be PPO-Clip, at
            infinity the unconstrained surrogate

    Returns:
        a field for a frozen dataclass; what it forbids is an error when a shape is made

    """
    rules = {"above": above, "at_least": at_least, "choices": choices, "softness": softness}
    return field(default=default, metadata=rules)


def is_number(x: object) -> bool:
    """Whether `x` is a plain real number (and not a truth value)."""
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def entry(method: Callable[[Any, Sample], Any]) -> Callable[..., Any]:
    """`method(self, s)` as a function of `(log_ratio, advantage, context)`, or of a sample.

    A call first checks the needs of the value, and turns its thresholds into arrays.
    """

    def call(
        self: Value,
        log_ratio: Array | Sample,
        advantage: Array = None,
        context: Context = NO_CONTEXT,
    ) -> Any:
        s = log_ratio if isinstance(log_ratio, Sample) else Sample(log_ratio, advantage, context)
        if s.advantage is None:
            raise TypeError(f"{call.__qualname__} needs an advantage: give (log_ratio, advantage)")
        return method(self.at(s.context, s.log_w), s)

    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(call, name, getattr(method, name))
    return call


@dataclass(frozen=True)
class Value:
    """A named, immutable value with numeric parameters.

    The body of a class may set these attributes:

        name        its spelling; by default the class's name in kebab case
        number      its place in the catalogue
        family      the group to which it belongs; subclasses inherit it
        reference   who published it
        requires    the context fields that it reads, besides those of its base class
        knob        of a trust region: the parameters that set its radius, which a league tunes
    """

    name: ClassVar[str] = ""
    number: ClassVar[str] = ""
    family: ClassVar[str] = "user"
    reference: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()
    abstract: ClassVar[bool] = True
    source: ClassVar[str] = ""
    """the file or module of a user's class"""
    elementwise: ClassVar[tuple[str, ...]] = ()
    """the methods that subclasses define with one sample as their argument"""

    def __init_subclass__(cls, *, abstract: bool = False, **header: Any) -> None:
        """Complete and check the attributes; an `abstract` class only serves as a base."""
        for key in header:
            raise KlipError(f"{cls.__name__}: write {key} = ... in the body of the class")
        own = cls.__dict__
        base = next(b for b in cls.__mro__[1:] if issubclass(b, Value))
        kebab = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        cls.name, cls.abstract = own.get("name", kebab), abstract
        cls.number, cls.reference = own.get("number", ""), own.get("reference", "")
        required = own.get("requires", ())
        required = (required,) if isinstance(required, str) else tuple(required)
        if unknown := sorted(set(required) - CONTEXT_FIELDS.keys()):
            raise KlipError(
                f"{cls.__name__} requires {', '.join(unknown)}, which no context has; "
                f"there are {', '.join(CONTEXT_FIELDS)}"
            )
        cls.requires = (*base.requires, *required)
        for key in own.get("__annotations__", {}):
            hidden = getattr(base, key, None)
            if inspect.isfunction(hidden) or isinstance(hidden, property):
                raise KlipError(
                    f"{cls.__name__}: a parameter cannot be called '{key}', which every "
                    f"{base.__name__} has as a method: choose another name"
                )
        for key in cls.elementwise:
            if key in own and "elementwise" not in own:
                _check_takes_a_sample(cls, key)
                setattr(cls, key, entry(own[key]))

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
        """The spelling without parameters that have their defaults, also in parts: a label.

        >>> from klip.shapes import AdaptiveKL, ByAge, Clip
        >>> AdaptiveKL(target=0.01).brief, Clip(eps=ByAge()).brief
        ('adaptive-kl(target=0.01)', 'clip(eps=by-age)')
        """
        if any(f.default is dataclasses.MISSING for f in dataclasses.fields(self)):
            return str(self)
        usual = type(self)().parameters
        own = {k: v for k, v in self.parameters.items() if usual.get(k) != v}
        inside = (f"{k}={v.brief if isinstance(v, Value) else v}" for k, v in own.items())
        return f"{self.name}({', '.join(inside)})" if own else self.name

    @property
    def formula(self) -> str:
        """The first paragraph of the class's docstring, in one line; "" without one.

        >>> from klip.shapes import CISPO
        >>> CISPO().formula
        'm = clip(w, floor, cap) A.'
        """
        text = type(self).__doc__ or ""
        generated = text.startswith(f"{type(self).__name__}(")  # by dataclass
        return "" if generated else " ".join(text.split("\n\n")[0].split())

    def parts(self) -> Iterator[Value]:
        """The value itself, then every value among its parameters, and theirs.

        >>> from klip.shapes import ByAge, Clip, KLk3
        >>> [part.name for part in (Clip(eps=ByAge()) + KLk3()).parts()]
        ['sum', 'clip', 'by-age', 'kl-k3']
        """
        yield self
        for part in self.parameters.values():
            if isinstance(part, Value):
                yield from part.parts()

    @property
    def needs(self) -> frozenset[str]:
        """The context fields that this value and its parts ask for."""
        parts = (part.needs for part in self.parameters.values() if isinstance(part, Value))
        return frozenset(self.requires).union(*parts)

    def at(self: V, context: Context, like: Array = 0.0) -> V:
        """The value with thresholds as arrays of `like`'s dtype; raises if `context` lacks a need."""
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

    family = "threshold"

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
    paths: dict[str, Any] = {}
    for key, part in value.parameters.items():
        if isinstance(part, Value):
            paths |= numbers(part, f"{prefix}{key}.")
        elif not isinstance(part, str):
            paths[prefix + key] = part
    return paths


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
    """The value with every number 0: values of equal structure share compiled code."""
    return with_numbers(value, dict.fromkeys(numbers(value), 0.0))


def _check_takes_a_sample(cls: type[Value], name: str) -> None:
    """Raise unless the method `name` of a class takes itself and one sample."""
    method = cls.__dict__[name]
    taken = list(inspect.signature(method).parameters) if inspect.isfunction(method) else []
    if len(taken) != 2:
        raise KlipError(
            f"{cls.__name__}.{name}({', '.join(taken)}) must take one sample: write "
            f"`def {name}(self, s)`, where s.w is the ratio, s.log_w its logarithm, s.advantage "
            "the advantage, and s.age, s.kl and so on are the context"
        )


def _check(owner: str, f: dataclasses.Field[Any], value: Any) -> None:
    """Raise unless field `f` allows `value`."""
    if value is None:
        return
    choices = f.metadata.get("choices")
    if choices is not None:
        if value not in choices:
            raise ParameterError(f"{owner}: {f.name}={value!r} must be one of {', '.join(choices)}")
        return
    kind = _kind_of_part(f)
    if kind is not None:
        if not isinstance(value, kind):
            word = kind.__name__.lower()
            raise ParameterError(f"{owner}: {f.name}={value} must be a {word}")
        return
    if isinstance(value, Value):
        if not isinstance(value, Threshold) and ("above" in f.metadata or is_number(f.default)):
            raise ParameterError(
                f"{owner}: {f.name}={value} must be a number, or a threshold such as by-age"
            )
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


def _kind_of_part(f: dataclasses.Field[Any]) -> type[Value] | None:
    """The kind of value that a field holds by its annotation, such as `shape: Shape`; or None."""
    name = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", "")
    kinds: list[type[Value]] = [Value]
    for kind in kinds:
        if kind.__name__ == name:
            return kind
        kinds += [below for below in kind.__subclasses__() if below.abstract]
    return None
