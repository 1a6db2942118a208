"""What a knob is searched over: a range or a list, as one writes it on a command line.

lr                       the usual range of that knob
lr=1e-5..1e-2            a range; by its logarithm where it spans a factor of 10 or more
epochs=3..20             whole numbers, where the knob is one
gamma=0.98,0.99,0.999    a list; numbers keep their order
activation=tanh,relu     words, or true and false
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_origin

from klip.engine.fields import types_of
from klip.errors import KlipError
from klip.ppo.config import Config
from klip.ppo.knobs import path_in
from klip.shapes import numbers, parse

Spec = str | Sequence[Any] | tuple[float, float]

WIDE: Final = 10.0
"""A range whose ends are so many times apart is searched by its logarithm."""
AROUND: Final = 4.0
"""A number of a shape is searched from this part of its value to as many times it."""

# Numbers that are compiled into a program have a list: each further value compiles once more.
USUAL: Final[Mapping[str, str]] = {
    "lr": "3e-5..3e-3",
    "value_lr": "3e-5..1e-2",
    "lr_end": "0..0.5",
    "warmup": "0..0.2",
    "log_std": "-2..0.5",
    "epochs": "1,3,5,10,20",
    "minibatch": "32,64,128,256",
    "rollout": "256,512,1024,2048,4096",
    "envs": "1,2,4,8,16",
    "gamma": "0.95,0.98,0.99,0.995,0.999",
    "gae_lambda": "0.8,0.9,0.95,0.98,1.0",
    "entropy_weight": "0.0,0.001,0.003,0.01,0.03",
    "value_weight": "0.25,0.5,1.0,2.0",
    "value_clip": "0.0,0.1,0.2,0.5",
    "max_grad_norm": "0.3,0.5,1.0,2.0,5.0",
    "adam_b1": "0.0,0.5,0.9",
    "adam_b2": "0.95,0.99,0.999",
    "adam_eps": "1e-8,1e-5,1e-3",
    "policy_gain": "0.01,0.1,1.0",
    "replay": "1,2,4",
    "lag": "0,1,2",
}
"""Of fields of the config; those of words, and those of yes and no, have all their values."""


@dataclass(frozen=True)
class Range:
    """The values that a knob may take: numbers between two ends, or a list."""

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    """whether numbers between the ends are whole"""

    @property
    def log(self) -> bool:
        """Whether it is searched by its logarithm."""
        return not self.choices and self.low > 0 and self.high / self.low >= WIDE

    @property
    def ordered(self) -> bool:
        """Whether its values are numbers."""
        numbers = (isinstance(v, (int, float)) and not isinstance(v, bool) for v in self.choices)
        return not self.choices or all(numbers)

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values to check before anything starts: both ends, or all of a list."""
        return self.choices or (self.value(self.low), self.value(self.high))

    def value(self, number: float) -> Any:
        """A number between the ends as the knob takes it, with at most four digits.

        >>> Range("lr", low=1e-5, high=1e-2).value(0.000123456)
        0.0001235
        """
        return round(number) if self.whole else float(f"{number:.4g}")

    def __str__(self) -> str:
        if self.choices:
            return f"{self.name}={','.join(_word(v) for v in self.choices)}"
        return f"{self.name}={self.value(self.low):g}..{self.value(self.high):g}"


def ranges_in(shape: str, over: Sequence[str] | Mapping[str, Spec]) -> tuple[Range, ...]:
    """The ranges of knobs, given as words or as a mapping; each is checked by itself.

    Args:
        shape: whose numbers knobs may be
        over: words as above; or, by name, a list of values, a word without its name, or None

    >>> [str(r) for r in ranges_in("clip", ["lr=1e-4..1e-2", "eps", "epochs=3,10"])]
    ['lr=0.0001..0.01', 'eps=0.05..0.8', 'epochs=3,10']

    """
    if isinstance(over, str):
        over = [over]
    pairs = list(over.items()) if isinstance(over, Mapping) else [_split(word) for word in over]
    if not pairs:
        raise KlipError("there is nothing to search over: give a knob or more, such as lr eps")
    made = tuple(_range(shape, name, spec) for name, spec in pairs)
    for name in (each.name for each in made):
        if sum(each.name == name for each in made) > 1:
            raise KlipError(f"the knob {name!r} is named twice: give it once")
    return made


def _split(word: Any) -> tuple[str, str | None]:
    if not isinstance(word, str):
        raise KlipError(f"over has {word!r}: write lr, lr=1e-5..1e-2 or epochs=3,10")
    name, sign, spec = word.partition("=")
    return name.strip(), spec.strip() if sign else None


def _range(shape: str, name: str, spec: Any) -> Range:
    path = path_in(shape, name)
    kind = float if path is not None else types_of(Config)[name]
    if spec is None:
        spec = USUAL.get(name) if path is None else _around(shape, path)
        spec = spec or _every(kind)
        if spec is None:
            raise KlipError(f"{name} has no usual range: give one, such as {name}=LOW..HIGH")
    if isinstance(spec, str):
        low, dots, high = spec.partition("..")
        if dots:
            return _between(name, kind, low, high)
        spec = [_read(name, kind, word) for word in spec.split(",")]
    if not isinstance(spec, Sequence) or len(set(map(repr, spec))) < 2:
        raise KlipError(f"{name}={_shown(spec)} is no choice: give two values or more")
    if len(set(map(repr, spec))) < len(spec):
        raise KlipError(f"{name}={_shown(spec)} has a value twice: give each once")
    made = Range(name, tuple(spec))
    return Range(name, tuple(sorted(spec))) if made.ordered else made


def _between(name: str, kind: Any, low: str, high: str) -> Range:
    if kind not in (int, float):
        raise KlipError(f"{name}={low}..{high} is no range, since {name} is no number: give a list")
    ends = [_read(name, kind, end) for end in (low, high)]
    if not ends[0] < ends[1]:
        raise KlipError(f"{name}={low}..{high} is empty: give the smaller end first")
    return Range(name, (), float(ends[0]), float(ends[1]), kind is int)


def _around(shape: str, path: str) -> str:
    value = float(numbers(parse(shape))[path])
    if not value > 0:
        name = path.split(".")[-1]
        raise KlipError(f"{name} is {value:g} in {shape}: give its range, as {name}=LOW..HIGH")
    return f"{value / AROUND:.4g}..{value * AROUND:.4g}"


def _every(kind: Any) -> list[Any] | None:
    """All values of words, and of yes and no."""
    if kind is bool:
        return [False, True]
    return list(get_args(kind)) if get_origin(kind) is Literal else None


def _read(name: str, kind: Any, word: str) -> Any:
    """A value as its field has it."""
    word = word.strip()
    try:
        if kind is bool:
            return {"true": True, "yes": True, "false": False, "no": False}[word.lower()]
        if kind in (int, float):
            number = float(word)
            if abs(number) < 2**53 and (kind is float or number.is_integer()):
                return kind(number)
        elif kind is str or get_origin(kind) is Literal:
            return word
        else:
            raise KlipError(f"{name} cannot be searched over: it is no number, word, or yes or no")
    except (KeyError, ValueError):
        pass
    what = {bool: "true or false", int: "a whole number"}.get(kind, "a number")
    raise KlipError(f"{name}={word!r} must be {what}")


def _shown(spec: Any) -> str:
    return ",".join(map(_word, spec)) if isinstance(spec, (list, tuple)) else repr(spec)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"
