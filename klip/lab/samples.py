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
class Sample:
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
    def to_json(samples: Sequence[Sample]) -> bytes:
        """As they are kept."""
        return json.dumps([asdict(sample) for sample in samples], separators=(",", ":")).encode()

    @staticmethod
    def from_json(data: bytes) -> list[Sample]:
        """As they were."""
        try:
            return [Sample.read(one) for one in json.loads(data)]
        except (ValueError, TypeError, KeyError) as error:
            raise KlipError(f"its samples cannot be read ({error})") from None

    @staticmethod
    def read(fields: dict[str, Any]) -> Sample:
        """From JSON, in which anything may stand."""
        made = Sample(
            str(fields["prompt"]), str(fields["text"]), int(fields["age"]),
            float(fields["advantage"]), tuple(map(float, fields["ratio"])),
            tuple(map(float, fields["pull"])), str(fields["part"]),
        )  # fmt: skip
        if {len(made.text)} != {len(made.ratio), len(made.pull), len(made.part)}:
            raise ValueError(f"{made.text!r} has not one number for each token")
        if not set(made.part) <= PARTS.keys():
            raise ValueError(f"the parts of {made.text!r} are {made.part!r}")
        return made
