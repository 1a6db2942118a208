"""A run as it lies on disk, read without touching it: for lists, reports, and using its policy."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from klip.errors import KlipError
from klip.runs.checkpoint import Checkpoint, Damaged, config_id, known_config
from klip.runs.files import read_json, shown
from klip.runs.lock import is_locked
from klip.runs.store import LARGEST_CONFIG, METRICS, NEWEST, PREVIOUS, lost, metrics_in, read_own

LARGEST_TAIL: Final = 16_000_000
"""Bytes of metrics after the last checkpoint that are read while a run is trained."""
LONGEST_ROW: Final = 1_000_000
_FOLDER = re.compile(r"seed-\d+-([0-9a-f]{10})")


@dataclass(frozen=True)
class Record:
    """One run on disk. Damaged files are never believed; `notes` name them."""

    path: Path
    config: Mapping[str, Any]
    id: str
    status: str
    """running, stopped, done, diverged, failed; or damaged, if no checkpoint can be used"""
    reason: str
    """why it is diverged, failed or damaged"""
    iteration: int
    """iterations that are safe in a checkpoint"""
    rows: Sequence[Mapping[str, Any]]
    """a row of metrics per iteration; while it is trained, also those since the checkpoint"""
    arrays: Mapping[str, NDArray[Any]]
    """of the newest checkpoint: parameters, optimiser, statistics, environments"""
    machines: Sequence[Mapping[str, Any]]
    history: Sequence[str]
    notes: Sequence[str]

    @property
    def final_return(self) -> float | None:
        """The final return in the paper's definition, from the rows so far."""
        return final_return(self.rows)

    def digest(self) -> str:
        """A hash of all arrays and metrics: equal for runs that trained to the same bytes."""
        sha256 = hashlib.sha256(json.dumps(self.rows).encode())
        for name, array in sorted(self.arrays.items()):
            sha256.update(f"{name} {array.dtype} {array.shape}".encode())
            sha256.update(np.ascontiguousarray(array).tobytes())
        return sha256.hexdigest()


def is_run(path: Path) -> bool:
    """Whether a folder is a run's, by its name and its files."""
    named = _FOLDER.fullmatch(path.name) is not None
    return named and any((path / name).is_file() for name in (NEWEST, PREVIOUS, "config.json"))


def run_paths(folder: Path) -> list[Path]:
    """Every run in or below a folder, in order of their names."""
    if not folder.is_dir():
        raise KlipError(f"there is no folder {folder}; `klip train` makes one")
    if is_run(folder.resolve()):
        return [folder]
    return sorted(path for path in folder.rglob("seed-*") if is_run(path))


def read_run(path: Path) -> Record:
    """The run in a folder, from those of its files that are whole."""
    named = _FOLDER.fullmatch(path.resolve().name)
    if named is None or not path.is_dir():
        raise KlipError(f"{path} is not the folder of a run: those end in seed-<n>-<id>")
    notes: list[str] = []
    live = is_locked(path)  # asked first: a run that ends meanwhile did not stop
    point = _newest(path, named[1], notes)
    if point is None:
        config = _read_config(path, named[1])
        rows = _parse(_metrics(path, None)[0], []) if live else []
        if not notes and lost(path):
            notes.append("its checkpoints are lost: begin it again with --start-over")
        status = "running" if live else "damaged" if notes else "stopped"
        return Record(path, config, named[1], status, "; ".join(notes), 0, rows, {}, (), (), notes)
    text, size = _metrics(path, point)
    if not point.covers(text):
        notes.append(f"{METRICS} is damaged: its rows were read from the checkpoint")
        text = point.metrics_text()
    elif point.status in ("done", "diverged") and size > point.metrics_size:
        notes.append(f"{METRICS} has more in it than the run: that was not read")
    if not live:  # what comes after the checkpoint will be trained again
        text = text[: point.metrics_size]
    status = point.status
    if status == "running" and not live:
        status = "stopped"
    return Record(
        path, point.config, named[1], status, shown(point.reason), point.iteration,
        _parse(text, notes), point.arrays, point.machines, [shown(line) for line in point.history],
        notes,
    )  # fmt: skip


def final_return(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The paper's final return: the mean over the iterations in the last tenth of the steps.

    Their step is at or above the 0.9 quantile of all steps. An iteration in which no episode
    ended has no return and does not count.
    """
    if not rows:
        return None
    start = float(np.quantile([row["step"] for row in rows], 0.9))
    late = [row["return_mean"] for row in rows if row["step"] >= start]
    known = [value for value in late if value is not None]
    return float(np.mean(known)) if known else None


def _newest(path: Path, id: str, notes: list[str]) -> Checkpoint | None:
    for name in (NEWEST, PREVIOUS):
        try:
            if (path / name).exists():
                return read_own(path / name, id)
        except Damaged as error:
            if (path / name).exists():  # else its trainer has just made it the previous one
                notes.append(str(error))
    return None


def _read_config(path: Path, id: str) -> dict[str, Any]:
    try:
        config = read_json(path / "config.json", most=LARGEST_CONFIG)
        if config_id(config) == id:
            return known_config(config)
    except (Damaged, OSError, KeyError, ValueError, TypeError, AttributeError):
        pass
    raise Damaged(
        f"{path} has no checkpoint yet and its config.json is damaged, so what the run was cannot "
        "be known: move the folder away, and give the command that began it again"
    )


def _metrics(path: Path, point: Checkpoint | None) -> tuple[bytes, int]:
    """The metrics that a checkpoint covers, and some of those that came after; and their size."""
    try:
        return metrics_in(path / METRICS, point, LARGEST_TAIL)
    except OSError:
        return b"", 0


def _parse(text: bytes, notes: list[str]) -> list[dict[str, Any]]:
    """The rows before the first line that is none: the last line may be half written."""
    rows: list[dict[str, Any]] = []
    names: list[str] = []
    place, number = 0, 1
    while (end := text.find(b"\n", place)) >= 0:
        try:
            if end - place > LONGEST_ROW:
                raise ValueError(number)
            row = json.loads(text[place:end])
            value, step = row["return_mean"], row["step"]
            right = row["iteration"] == number and type(step) is int and 0 <= step < 1 << 63
            if not right or not (value is None or math.isfinite(value)):
                raise ValueError(number)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            notes.append(f"line {number} of {METRICS} is damaged: the rows before it were read")
            break
        if list(row) != names:
            names = list(row)
        rows.append(dict(zip(names, row.values(), strict=True)))  # all share the names' memory
        place, number = end + 1, number + 1
    return rows
