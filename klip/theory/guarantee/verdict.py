"""What is known of a claim: it holds at so many points, has a counterexample, or was measured."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from klip.errors import KlipError

Outcome = Literal["holds", "refuted", "measured"]
CLAIMS: Final = {
    "improvement": "whatever raises the objective, raises the return",
    "any step size": "the inner loop improves at every rate",
    "end of the loop": "the inner loop ends within a total variation",
    "dynamics": "small MDPs, solved exactly",
    "adversary": "a search for an MDP on which the return falls",
}


@dataclass(frozen=True)
class Bandit:
    """One state: old and new probabilities of its actions, and what the move does.

    >>> Bandit((0.5, 0.5), (1.0, -1.0), (0.6, 0.4)).change
    0.2
    """

    old: tuple[float, ...]
    advantages: tuple[float, ...]
    new: tuple[float, ...]
    gain: float | None = None
    """By how much the shape's objective rises; None where that is not what it shows."""

    @property
    def change(self) -> float:
        """E_new[A], by which the return rises: sum of new * advantage."""
        total = sum(q * a for q, a in zip(self.new, self.advantages, strict=True))
        return float(f"{total:.12g}")

    @property
    def ratios(self) -> tuple[float, ...]:
        """W of each action."""
        return tuple(q / p for q, p in zip(self.new, self.old, strict=True))

    @property
    def variation(self) -> float:
        """The total variation between old and new."""
        return sum(abs(q - p) for q, p in zip(self.new, self.old, strict=True)) / 2

    @staticmethod
    def made(old: Iterable[Any], advantages: Iterable[Any], new: Iterable[Any]) -> Bandit:
        """The bandit of rows of any numbers, such as fractions or an array's."""
        rows = [tuple(map(float, row)) for row in (old, advantages, new)]
        return Bandit(rows[0], rows[1], rows[2])

    def as_dict(self) -> dict[str, Any]:
        """The bandit as plain data."""
        about = {"old": list(self.old), "advantages": list(self.advantages), "new": list(self.new)}
        return about | {"gain": self.gain, "change": self.change}

    @staticmethod
    def of(about: Mapping[str, Any]) -> Bandit:
        """The bandit that `as_dict` gave."""
        try:
            rows = [tuple(float(x) for x in about[k]) for k in ("old", "advantages", "new")]
            gain = about.get("gain")
            bandit = Bandit(rows[0], rows[1], rows[2], None if gain is None else float(gain))
        except (KeyError, TypeError, ValueError):
            raise KlipError("a bandit needs old, advantages and new: lists of numbers") from None
        if not len(bandit.old) == len(bandit.advantages) == len(bandit.new) or not bandit.old:
            raise KlipError("a bandit needs one old, advantage and new for each action")
        return bandit

    def __str__(self) -> str:
        def row(numbers: tuple[float, ...]) -> str:
            return "(" + ", ".join(f"{x:.4g}" for x in numbers) + ")"

        return f"p = {row(self.old)}, A = {row(self.advantages)}, new policy {row(self.new)}"


@dataclass(frozen=True)
class Verdict:
    """A claim, and what became of it."""

    claim: str
    outcome: Outcome
    words: str
    """The finding in a line."""
    points: int = 0
    """At how many points a claim that holds was looked at."""
    bandit: Bandit | None = None
    """The witness, if one state is enough."""
    checked: tuple[str, ...] = ()
    """What computed the witness again."""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """How the claim ends: `holds at N points`, `refuted by ...` or `measured: ...`.

        >>> Verdict("improvement", "holds", "", points=1234).headline
        'holds at 1,234 points'
        """
        if self.outcome == "holds":
            return f"holds at {self.points:,} points" + (f": {self.words}" if self.words else "")
        return f"{'refuted by' if self.outcome == 'refuted' else 'measured:'} {self.words}"

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain data, ready for JSON."""
        about = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        bandit = None if self.bandit is None else self.bandit.as_dict()
        return about | {
            "bandit": bandit, "checked": list(self.checked), "figures": dict(self.figures),
        }  # fmt: skip


@dataclass(frozen=True)
class Guarantee:
    """The verdicts on one shape, in the order of `CLAIMS`; those not asked for are missing."""

    shape: str
    verdicts: tuple[Verdict, ...]
    remarks: tuple[str, ...] = ()
    """What was assumed of the samples' context."""
    counterexample: Mapping[str, Any] | None = None
    """What the adversary found, as `klip guarantee --replay` reads it."""

    def __getitem__(self, claim: str) -> Verdict:
        for verdict in self.verdicts:
            if verdict.claim == claim:
                return verdict
        known = ", ".join(verdict.claim for verdict in self.verdicts)
        raise KlipError(f"no verdict on '{claim}'; there are {known}")

    @property
    def brief(self) -> str:
        """The three claims of theory in a few characters, for a table's column.

        >>> both = [Verdict("improvement", "holds", ""), Verdict("any step size", "refuted", "")]
        >>> Guarantee("spo", tuple(both)).brief
        'T1 yes, T2 no'
        """
        named = zip(CLAIMS, ("T1", "T2", "T3"), strict=False)
        short = {"holds": "yes", "refuted": "no", "measured": "open"}
        found = {verdict.claim: short[verdict.outcome] for verdict in self.verdicts}
        return ", ".join(f"{name} {found[claim]}" for claim, name in named if claim in found)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        # asked for by name: this room does not draw
        text: str = importlib.import_module("klip.draw.notebook").guarantee_table(self)
        return text

    def as_dict(self) -> dict[str, Any]:
        """The verdicts as plain data, ready for JSON."""
        return {
            "shape": self.shape,
            "remarks": list(self.remarks),
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
            "counterexample": self.counterexample,
        }
