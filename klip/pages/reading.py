"""Completions token by token, for a browser: those that a trainer kept, and those of the lab.

A page embeds the view as JSON, and its script sets texts by `textContent` alone: whatever a model
has written is shown, and nothing of it runs. Characters that cannot be seen, or that turn others
round, are written out; what is very long is cut.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from klip.runs.completions import FATES

LONGEST = 120
"""characters of a token that are shown"""
LONGEST_PROMPT = 2000
"""characters of a prompt, counted from its end"""
MOST = 100_000
"""rows of kept tokens, one for each shape, that are shown: a page of some megabytes"""
DIGITS = 4
UNKNOWN = "▢"
"""what is shown for a token whose text the trainer did not know"""

_SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍"}
_LETTERS = {name: letter for letter, name in FATES.items()}


@dataclass(frozen=True)
class Shown:
    """Completions that are shown together: those of a run, over its steps."""

    name: str
    about: str
    steps: Sequence[tuple[int, Sequence[Mapping[str, Any]]]]
    """(step, rows), as `row` makes them"""

    @property
    def data(self) -> dict[str, Any]:
        """The group as the page's script takes it."""
        steps = [{"step": step, "rows": list(rows)} for step, rows in self.steps]
        return {"name": visible(self.name), "about": visible(self.about), "steps": steps}


def visible(text: str, longest: int = LONGEST) -> str:
    r"""Text in which every character can be seen, cut after so many.

    >>> visible("a\n\u202eb"), visible("x" * 200)[118:]
    ('a⏎\\u202eb', 'xx… (200 characters)')
    """
    cut = text[:longest]
    shown = "".join(_seen(c) for c in cut)
    return shown if len(text) <= longest else f"{shown}… ({len(text)} characters)"


def _seen(character: str) -> str:
    """A control, format, private or lone surrogate character by its number; others as they are."""
    if character in _SIGNS:
        return _SIGNS[character]
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")
    number = ord(character)
    return (f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}") if hidden else character


def row(
    prompt: str, about: str, texts: Sequence[str], told: Sequence[str], shapes: Mapping[str, Any]
) -> dict[str, Any]:
    """A completion; `told` is what is said of each token whatever the shape.

    `shapes` has (fates, a letter each; multipliers) by name.
    """
    tail = prompt[-LONGEST_PROMPT:]
    return {
        "prompt": visible(tail, LONGEST_PROMPT),
        "about": about,
        "texts": [visible(text) for text in texts],
        "told": [visible(line) for line in told],
        "shapes": [
            {"name": visible(name), "fates": fates, "m": [_short(x) for x in m]}
            for name, (fates, m) in shapes.items()
        ],
    }


def of_frame(
    frame: pl.DataFrame, name: str, about: str = "", rewards: Mapping[float, str] = {}
) -> Shown:
    """The group of kept tokens, `klip.runs.kept.SCHEMA`, with every shape beside the others.

    Args:
        frame: of tokens
        name: of the group
        about: what is said of it; unless given, the shape that was trained with
        rewards: words for rewards that have some

    """
    steps = []
    for (step,), at in frame.group_by("step", maintain_order=True):
        by_row = at.group_by("sequence", maintain_order=True)
        rows = [_kept_row(tokens, rewards) for _, tokens in by_row]
        steps.append((int(str(step)), rows))
    trained = frame.filter("trained")["shape"]
    return Shown(name, about or (str(trained[0]) if len(trained) else ""), sorted(steps, key=_step))


def _step(pair: tuple[int, Any]) -> int:
    return pair[0]


def _kept_row(tokens: pl.DataFrame, rewards: Mapping[float, str]) -> dict[str, Any]:
    shapes = {
        str(shape): (
            "".join(_LETTERS.get(fate, "k") for fate in of["fate"].to_list()),
            of["multiplier"].to_list(),
        )
        for (shape,), of in tokens.group_by("shape", maintain_order=True)
    }
    first = tokens.filter(pl.col("shape") == tokens["shape"][0])
    reward, age = first["reward"][0], first["age"][0]
    said = [
        *([] if reward is None else [rewards.get(reward, f"reward {reward:.3g}")]),
        *([] if age is None else [f"age {age:g}"]),
    ]
    told = [_told(token) for token in first.iter_rows(named=True)]
    texts = [UNKNOWN if text is None else text for text in first["text"].to_list()]
    return row(first["prompt"][0] or "", ", ".join(said), texts, told, shapes)


def _told(token: Mapping[str, Any]) -> str:
    parts = [f"w {token['ratio']:.4g}", f"A {token['advantage']:+.3g}"]
    if token["part"] is not None:
        parts.append(str(token["part"]))
    if token["text"] is None:
        parts.append("text unknown")
    if token["span"] is not None:
        parts.append(str(token["span"]))
    if token["entropy"] is not None:
        parts.append(f"entropy {token['entropy']:.2g}")
    return ", ".join(parts)


def thinned(frame: pl.DataFrame, most: int = MOST) -> pl.DataFrame:
    """The tokens of some steps, the first, the last and evenly many between: about `most` rows.

    A page that shows all tokens of a long run would not open.
    """
    steps = frame["step"].unique().sort()
    count = max(2, len(steps) * most // max(frame.height, 1))
    if count >= len(steps):
        return frame
    chosen = [steps[round(i * (len(steps) - 1) / (count - 1))] for i in range(count)]
    return frame.filter(pl.col("step").is_in(chosen))


def most_zeroed(frame: pl.DataFrame, count: int = 40) -> list[dict[str, Any]]:
    """The token strings that the run's own shape zeroed most often, and what others did to them."""
    known = frame.filter(pl.col("text").is_not_null())
    tokens = known.with_columns(zeroed=(pl.col("fate") == "zeroed"))
    sums = tokens.group_by("text", "shape", "trained").agg(
        pl.col("zeroed").sum().alias("zeroed"), pl.len().alias("seen")
    )
    own = sums.filter(pl.col("trained") & (pl.col("zeroed") > 0))
    ranked = own.sort(["zeroed", "seen", "text"], descending=[True, False, False]).head(count)
    by_text = {
        (text, shape): (zeroed, seen)
        for text, shape, _, zeroed, seen in sums.iter_rows()
    }  # fmt: skip
    names = frame["shape"].unique(maintain_order=True).to_list()
    return [
        {
            "text": visible(text),
            "seen": seen,
            "zeroed": [by_text.get((text, name), (0, 0))[0] for name in names],
        }
        for text, _, _, _, seen in ranked.iter_rows()
    ]


def _short(x: float) -> float | str:
    """A number for JSON, which has none that is not finite."""
    return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else f"{x}"
