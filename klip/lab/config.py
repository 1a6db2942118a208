"""The configs of token runs and of their warm-ups."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar

from klip.engine.fields import LATE, conform, stored, types_of
from klip.errors import KlipError
from klip.lab.addition import completion_length, prompt_length
from klip.runs import LONGEST_NAME, config_id
from klip.shapes import parse
from klip.shapes.code import digest_of_code
from klip.shapes.context import OF_BATCH, TWO_RATIOS

_MAY_BE_0 = frozenset({"seed", "place", "replay", "slip", "forget", "keep_tokens"})


@dataclass(frozen=True)
class Warmup:
    """Supervised training on scratchpads with mistakes; all arms of a seed share it."""

    kind: ClassVar[str] = "warm-up"
    """of job"""
    task: ClassVar[str] = "addition"
    """what is learned"""
    names: ClassVar[tuple[str, ...]] = ("warm-up",)
    """what its folder is called"""
    seed: int = 0
    digits: int = 2
    """of each number that is added"""
    slip: float = 0.14
    """probability of a wrong column sum, and of a wrong digit in the answer"""
    forget: float = 0.45
    """probability of a forgotten carry"""
    layers: int = 2
    width: int = 64
    heads: int = 4
    steps: int = 1400
    batch: int = 128
    """scratchpads a step"""
    learning_rate: float = 3e-3
    """at its highest: it rises over 100 steps and falls to a fiftieth"""

    def __post_init__(self) -> None:
        conform(self)

    @property
    def iterations(self) -> int:
        """A step is an iteration."""
        return self.steps

    @property
    def stored(self) -> dict[str, Any]:
        """As it lies on disk."""
        return {"kind": self.kind, "task": self.task, **dataclasses.asdict(self)}

    @functools.cached_property
    def id(self) -> str:
        """Equal ids are equal warm-ups."""
        return config_id(self.stored)

    @property
    def longest(self) -> int:
        """The most tokens that prompt and completion have together."""
        return prompt_length(self.digits) + completion_length(self.digits)


@dataclass(frozen=True)
class TokenConfig:
    """One run: GRPO from a warm-up with one shape."""

    kind: ClassVar[str] = "tokens"
    """of job"""
    group: str
    """of arms that are compared with each other"""
    arm: str
    shape: str
    """as it is spelled; its position is 1 in the answer and 0 before it, its length 2"""
    code: str = ""
    """digest of the file that defines the shape, where that is somebody's"""
    seed: int = 0
    place: int = 0
    """of the arm in its plan; the first of a group is what the others are compared with"""
    against: str = ""
    """another arm of the group that it is compared with, too"""
    iterations: int = 40
    prompts: int = 64
    """an iteration"""
    completions: int = 8
    """of each prompt"""
    epochs: int = 5
    minibatches: int = 8
    learning_rate: float = 2e-4
    gradient_norm: float = 1.0
    """beyond which a gradient is scaled down"""
    replay: int = 0
    """oldest age, in iterations, of the completions that are learned from"""
    evaluate_every: int = 5
    """iterations between looks at the held-out prompts"""
    held_out: int = 512
    """prompts that no training sees"""
    final_samples: int = 4
    """completions of each held-out prompt at the end"""
    shown: int = 10
    """the iteration from which sample completions are kept"""
    keep_tokens: int = field(default=0, metadata=LATE)
    """completions whose tokens are kept at every look at the held-out prompts, in place of those;
    of prompts that have right and wrong ones, since the others teach nothing"""
    warmup: Warmup = Warmup()

    def __post_init__(self) -> None:
        conform(self)

    @property
    def batch(self) -> int:
        """Completions an iteration."""
        return self.prompts * self.completions

    @property
    def task(self) -> str:
        """What is learned, and from how old completions."""
        return f"addition-replay{self.replay}" if self.replay else "addition"

    @property
    def names(self) -> tuple[str, ...]:
        """Names to ask for it by, within its plan."""
        return (self.arm, self.shape)

    @property
    def stored(self) -> dict[str, Any]:
        """As it lies on disk."""
        return {"kind": self.kind, "task": self.task, **stored(self)}

    @functools.cached_property
    def id(self) -> str:
        """Equal ids are equal runs."""
        return config_id(self.stored)


def check(c: TokenConfig) -> None:
    """Raise, naming the field and the value, unless this can be run.

    >>> check(TokenConfig("g", "a", "clip", minibatches=7))
    Traceback (most recent call last):
    klip.errors.KlipError: minibatches=7 must divide the 512 completions of an iteration
    """
    if c.code != digest_of_code(c.shape):
        raise KlipError(
            f"the file of the shape {c.shape} has changed since the run began: bring it back, or "
            "train anew"
        )
    shape = parse(c.shape)
    if shape.adapts:
        raise KlipError(
            f"{c.shape} is a controller, which needs the KL of a whole update: give a shape"
        )
    known = {"position", "length", "age", "mask", "sequence", "old_log_prob", "progress"}
    known |= TWO_RATIOS | OF_BATCH
    if unknown := shape.needs - known:
        raise KlipError(
            f"{c.shape} needs {', '.join(sorted(unknown))}; of a token the lab knows "
            f"{', '.join(sorted(known))}"
        )
    for name in ("group", "arm"):
        text = getattr(c, name)
        if not text or not text.isprintable() or len(text) > LONGEST_NAME:
            raise KlipError(f"{name}={text!r} must be a line of text")
    _check_numbers(c)
    check_warmup(c.warmup)
    if c.batch % c.minibatches:
        raise KlipError(
            f"minibatches={c.minibatches} must divide the {c.batch} completions of an iteration"
        )
    if c.completions < 2:
        raise KlipError("completions=1 leaves every advantage 0: give at least 2 to a prompt")


def check_warmup(w: Warmup) -> None:
    """Raise, naming the field and the value, unless this warm-up can be run."""
    _check_numbers(w)
    if w.width % (2 * w.heads):
        raise KlipError(f"width={w.width} must be a multiple of twice the {w.heads} heads")
    if w.slip > 1 or w.forget > 1:
        raise KlipError(f"slip={w.slip} and forget={w.forget} must be probabilities")


def _check_numbers(config: TokenConfig | Warmup) -> None:
    for name in types_of(type(config)):
        value = getattr(config, name)
        least = 0 if name in _MAY_BE_0 else 1e-12
        if isinstance(value, (int, float)) and value < least:
            raise KlipError(f"{name}={value} must be {'0 or more' if not least else 'more than 0'}")
