"""A few completions, token by token: what happened to each, with its ratio, advantage and pull."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from klip.errors import KlipError
from klip.theory import diagnostics

FATES = {name[0]: name for name in diagnostics.FATES}
"""What a multiplier does to a token, by the letter that is kept for each."""

PARTS = {name[0]: name for name in diagnostics.PARTS}
"""The sets of the partition, likewise."""

SPANS = {"r": "reasoning", "a": "answer"}
"""The spans of a completion, likewise."""

DIGITS = 4
"""significant digits of the numbers that are kept"""


@dataclass(frozen=True)
class Completion:
    """A completion, as it stood after the updates of an iteration."""

    prompt: str
    text: str
    age: int
    advantage: float
    ratio: tuple[float, ...]
    """w of each token"""
    pull: tuple[float, ...]
    """m of each token"""
    fate: str
    """k, w, z, r or s for each token: kept, weakened, zeroed, reversed, strengthened"""
    part: str | None = None
    """i, k or p for each token: inside, kill, pass; None, as what follows, if it was not kept"""
    span: str | None = None
    """r or a for each token: reasoning, answer"""
    entropy: tuple[float, ...] | None = None
    """of the policy at each token, in nats"""
    reward: float | None = None
    step: int | None = None
    """the iteration"""

    @property
    def fields(self) -> dict[str, Any]:
        """What was kept, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def to_json(samples: Sequence[Completion]) -> bytes:
        """Completions as they are kept in a checkpoint."""
        return json.dumps([sample.fields for sample in samples], separators=(",", ":")).encode()

    @staticmethod
    def from_json(data: bytes) -> list[Completion]:
        """The completions that `to_json` kept."""
        try:
            return [Completion.read(fields) for fields in json.loads(data)]
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise KlipError(f"its samples cannot be read ({error})") from None

    @staticmethod
    def read(fields: dict[str, Any]) -> Completion:
        """One completion from JSON, in which anything may stand."""
        advantage = float(fields["advantage"])
        ratio, pull = (tuple(map(float, fields[name])) for name in ("ratio", "pull"))
        completion = Completion(
            prompt=str(fields["prompt"]),
            text=str(fields["text"]),
            age=int(fields["age"]),
            advantage=advantage,
            ratio=ratio,
            pull=pull,
            fate=str(fields["fate"]),
            part=str(fields["part"]) if "part" in fields else None,
            span=str(fields["span"]) if "span" in fields else None,
            entropy=tuple(map(float, fields["entropy"])) if "entropy" in fields else None,
            reward=float(fields["reward"]) if "reward" in fields else None,
            step=int(fields["step"]) if "step" in fields else None,
        )
        text, letters = completion.text, {"fate": FATES, "part": PARTS, "span": SPANS}
        for name in ("ratio", "pull", "entropy", *letters):
            of_tokens = getattr(completion, name)
            if of_tokens is not None and len(of_tokens) != len(text):
                raise ValueError(f"{text!r} has not one number for each token")
        for name, known in letters.items():
            if not set(getattr(completion, name) or "") <= known.keys():
                raise ValueError(f"the {name}s of {text!r} are {getattr(completion, name)!r}")
        return completion
