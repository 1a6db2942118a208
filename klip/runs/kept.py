"""Tokens of a few completions, kept while a language model trains: one Parquet file a step.

    DIR/tokens/step-00000010.parquet

A row is a token and a shape: what the shape did, or would have done, to the token. So shapes stand
beside each other, and any tool that reads Parquet can count.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from klip.disk import operations
from klip.errors import KlipError
from klip.runs.completions import FATES, PARTS, SPANS, Completion
from klip.runs.files import disk, write_whole
from klip.runs.tables import read_table

FOLDER: Final = "tokens"
"""The folder of the files, beside whatever else a run writes."""

SCHEMA: Final = {
    "step": pl.Int64,
    "sequence": pl.Int32,
    "place": pl.Int32,
    "prompt": pl.String,
    "text": pl.String,
    "shape": pl.String,
    "trained": pl.Boolean,
    "ratio": pl.Float32,
    "advantage": pl.Float32,
    "multiplier": pl.Float32,
    "fate": pl.String,
    "part": pl.String,
    "span": pl.String,
    "age": pl.Float32,
    "entropy": pl.Float32,
    "reward": pl.Float32,
}
"""The columns: `place` counts the tokens of a sequence, `shape` is spelled, and `trained` is true
of the shape that the run trains with. What a trainer does not know is null."""

_NEVER_NULL: Final = (
    *("step", "sequence", "place", "shape", "trained", "ratio", "advantage", "multiplier", "fate"),
)
"""The columns that every trainer can fill."""

_NAME = re.compile(r"step-(\d{8,})\.parquet")


def write_kept(folder: str | Path, step: int, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Write the tokens of a step, as whole columns of `SCHEMA`, and return the path."""
    if unknown := columns.keys() ^ SCHEMA.keys():
        raise KlipError(f"kept tokens have the columns {', '.join(SCHEMA)}, not {sorted(unknown)}")
    path = Path(folder) / FOLDER / f"step-{step:08d}.parquet"
    file = io.BytesIO()
    pl.DataFrame(dict(columns), schema=SCHEMA).write_parquet(file)
    with disk(path):
        operations.make_folders(path.parent)
    write_whole(path, file.getvalue())
    return path


def kept_paths(folder: str | Path) -> list[Path]:
    """The files of kept tokens in a folder, or in its folder `tokens`, by step."""
    return list(_by_step(folder).values())


def kept_steps(folder: str | Path) -> list[int]:
    """The steps whose tokens are kept in a folder."""
    return list(_by_step(folder))


def _by_step(folder: str | Path) -> dict[int, Path]:
    found = {
        int(match[1]): path
        for place in (Path(folder), Path(folder) / FOLDER)
        if place.is_dir()
        for path in place.iterdir()
        if (match := _NAME.fullmatch(path.name))
    }
    return dict(sorted(found.items()))


def read_kept(folder: str | Path) -> pl.DataFrame:
    """All kept tokens of a folder; raises if there are none, or if a file is of another kind."""
    paths = kept_paths(folder)
    if not paths:
        raise KlipError(f"there are no kept tokens in {folder}: train with keep_tokens=4, say")
    frames = []
    for path in paths:
        try:
            frame = read_table(path)
            frame = frame.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())
        except (pl.exceptions.PolarsError, OSError, ValueError) as error:
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise KlipError(f"{path} is not a file of kept tokens ({line}): remove it") from None
        if empty := [name for name in _NEVER_NULL if frame[name].null_count()]:
            raise KlipError(
                f"{path} is not a file of kept tokens (a token has no {empty[0]}): remove it"
            )
        frames.append(frame)
    return pl.concat(frames)


def kept_frame(samples: Sequence[Completion], shape: str, step: int) -> pl.DataFrame:
    """Completions of a run of this shape as kept tokens, `SCHEMA`.

    `step` is that of completions which do not say theirs. What was not kept is null, but for the
    reward: it is 1 or 0, and a completion whose advantage is positive had 1.
    """
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA}
    seen: Counter[int] = Counter()
    for sample in samples:
        at = step if sample.step is None else sample.step
        nothing = [None] * len(sample.text)
        reward = float(sample.advantage > 0) if sample.reward is None else sample.reward
        values = {
            "step": at,
            "sequence": seen[at],
            "place": list(range(len(sample.text))),
            "prompt": sample.prompt,
            "text": list(sample.text),
            "shape": shape,
            "trained": True,
            "ratio": list(sample.ratio),
            "advantage": sample.advantage,
            "multiplier": list(sample.pull),
            "fate": [FATES[letter] for letter in sample.fate],
            "part": nothing if sample.part is None else [PARTS[x] for x in sample.part],
            "span": nothing if sample.span is None else [SPANS[x] for x in sample.span],
            "age": float(sample.age),
            "entropy": nothing if sample.entropy is None else list(sample.entropy),
            "reward": reward,
        }
        seen[at] += 1
        for name, value in values.items():
            columns[name] += value if isinstance(value, list) else [value] * len(sample.text)
    return pl.DataFrame(columns, schema=SCHEMA)
