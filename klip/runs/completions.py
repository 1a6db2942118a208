"""A few completions, token by token: which were killed, and with what ratio, advantage and pull."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from klip.errors import KlipError
from klip.theory import diagnostics

PARTS = {name[0]: name for name in diagnostics.PARTS}
"""The sets of the partition by the letter that is kept for each token."""


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
    part: str
    """i, k or p for each token: inside, kill, pass"""

    @staticmethod
    def to_json(samples: Sequence[Completion]) -> bytes:
        """Completions as they are kept in a checkpoint."""
        return json.dumps([asdict(sample) for sample in samples], separators=(",", ":")).encode()

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
        completion = Completion(
            prompt=str(fields["prompt"]),
            text=str(fields["text"]),
            age=int(fields["age"]),
            advantage=float(fields["advantage"]),
            ratio=tuple(map(float, fields["ratio"])),
            pull=tuple(map(float, fields["pull"])),
            part=str(fields["part"]),
        )
        text, part = completion.text, completion.part
        if {len(text)} != {len(completion.ratio), len(completion.pull), len(part)}:
            raise ValueError(f"{text!r} has not one number for each token")
        if not set(part) <= PARTS.keys():
            raise ValueError(f"the parts of {text!r} are {part!r}")
        return completion
