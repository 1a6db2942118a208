"""A study from folders of runs, whatever state they are in, or from a packed folder."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final

import numpy as np

from klip.engine.process import Process, parents_pipe
from klip.errors import KlipError
from klip.runs import Record, read_run, run_paths
from klip.runs.completions import Completion
from klip.runs.files import LARGEST_TEXT, read_file
from klip.runs.portraits import read_portrait
from klip.runs.store import METRICS, NEWEST
from klip.studies.packing import CHOICES, is_packed, unpack
from klip.studies.sound import odd_setting, sound_columns
from klip.studies.study import Column, Run, Study, ordered

MANY: Final = 60
"""From this many runs on, several processes read them."""

Stamp = tuple[tuple[int, int], ...]
Known = dict[Path, tuple[Stamp, Run]]
"""Runs that were read before, by path, and what their files looked like then."""


def read_study(folder: str | Path, known: Known | None = None, workers: int = 1) -> Study:
    """Every run in or below a folder, whatever its state; or a packed folder.

    >>> study = read_study("examples/cartpole")
    >>> len(study.runs), study.tasks, study.runs[0].metrics["return_mean"].shape
    (6, ['CartPole-v1'], (80,))

    Args:
        folder: folder that `klip.train`, `klip.run` or `klip.pack` wrote
        known: runs that were read before; those whose files have not changed are not read again
        workers: processes that read, where there are many runs

    Returns:
        the runs with their configs, states and metrics, `[iterations]` each, and what could not be
        read; `klip.metrics` and `klip.returns` make frames of it

    """
    folder = Path(folder)
    if is_packed(folder):
        return unpack(folder)
    runs: dict[str, Run] = {}
    trouble = []
    for run in _read_all(run_paths(folder), folder, {} if known is None else known, workers):
        if isinstance(run, str):
            trouble.append(run)
            continue
        if "shape" not in run.config:  # others begin with it, such as a warm-up
            continue
        twin = runs.get(run.id)
        if twin is not None:  # a copy: counted twice it would make intervals too narrow
            run, other = (run, twin) if run.rows > twin.rows else (twin, run)
            trouble.append(f"{other.path} is the same run as {run.path}, and was left out")
        runs[run.id] = run
    choices = {}
    for path in sorted(folder.glob("frozen*.json")):
        if CHOICES.fullmatch(path.name):
            try:
                choices[path.name] = read_file(path, LARGEST_TEXT)
            except OSError as error:
                trouble.append(f"{path.name} cannot be read: {error.strerror}")
    return Study(ordered(runs.values()), tuple(sorted(trouble)), choices)


def read_one(path: Path) -> Run:
    """The run in a folder of its own, whatever its state; an error where it cannot be read.

    Its path is the folder's.
    """
    run = _read(path, None)
    if isinstance(run, str):
        raise KlipError(run)
    return run


def _read_all(paths: list[Path], folder: Path, known: Known, workers: int) -> list[Run | str]:
    stamps = {path: stamp(path) for path in paths}
    old = {path for path in paths if path in known and known[path][0] == stamps[path]}
    # A run may stop being trained without any of its files changing.
    fresh = [path for path in paths if path not in old or known[path][1].status == "running"]
    if workers > 1 and len(fresh) >= MANY:
        new = _read_apart(fresh, folder, min(workers, len(fresh)))
    else:
        new = {path: _read(path, folder) for path in fresh}
    for path, run in new.items():
        if isinstance(run, Run):
            known[path] = (stamps[path], run)
    return [new[path] if path in new else known[path][1] for path in paths]


def _read_apart(paths: list[Path], folder: Path, workers: int) -> dict[Path, Run | str]:
    """Runs by their paths, read in several processes."""
    new: dict[Path, Run | str] = {}
    left: dict[Any, deque[Path]] = {}
    processes = [Process("klip.studies.reading") for _ in range(workers)]
    try:
        for number, process in enumerate(processes):
            share = paths[number::workers]
            left[process.pipe] = deque(share)
            process.pipe.send_bytes(json.dumps([str(folder), *map(str, share)]).encode())
        while left:
            ready: list[Any] = wait(left)
            for pipe in ready:
                new[left[pipe].popleft()] = pipe.recv()
                if not left[pipe]:
                    del left[pipe]
    except (EOFError, OSError):
        raise KlipError(
            "a process that read runs was killed (out of memory?): give the same command again"
        ) from None
    finally:
        for process in processes:
            process.kill()
    return new


def main(handle: int) -> None:
    """Read the runs that the parent names, each in turn, and send them to it."""
    pipe = parents_pipe(handle)
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        folder, *paths = map(Path, json.loads(pipe.recv_bytes()))
        for path in paths:
            pipe.send(_read(path, folder))


def stamp(path: Path) -> Stamp:
    """What tells whether a run's files have changed."""
    stamps = []
    for name in (METRICS, NEWEST, "lock"):
        try:
            about = (path / name).stat()
            stamps.append((about.st_mtime_ns, about.st_size))
        except OSError:
            stamps.append((0, 0))
    return tuple(stamps)


def _read(path: Path, folder: Path | None) -> Run | str:
    """A run, or why it could not be read; with paths relative to a folder, or as they are."""
    try:
        record = read_run(path)
        kept = record.arrays.get("samples") if record.arrays else None
        samples = () if kept is None else tuple(Completion.from_json(kept.tobytes()))
    except KlipError as error:
        return _relative(str(error), folder)
    if odd := odd_setting(record.config):
        return _relative(f"{path} cannot be used: {odd}", folder)
    metrics, left_out = sound_columns(columns(record.rows))
    portrait, trouble = read_portrait(path, record.config)
    notes = [*record.notes, *left_out, *([trouble] if trouble else [])]
    inside = str(path) if folder is None else path.relative_to(folder).as_posix()
    return Run(
        path.resolve().name if inside == "." else inside,
        record.id,
        record.config,
        record.status,
        _relative(record.reason, folder),
        tuple(record.machines),
        tuple(_relative(line, folder) for line in record.history),
        tuple(_relative(line, folder) for line in notes),
        _digest(record) if record.arrays else "",
        metrics,
        samples,
        portrait,
    )


def _digest(record: Record) -> str:
    """`Record.digest`, from the text on disk instead of spelling out the rows again.

    The trainer writes each row as `json.dumps` does, so the file's lines are the text that the
    digest is of. Where the file is damaged or has other rows, they are spelled out.
    """
    lines: list[bytes] = []
    if not record.notes:  # else the file may be of any size
        with contextlib.suppress(OSError), (record.path / METRICS).open("rb") as file:
            lines = [line.rstrip(b"\n") for line in itertools.islice(file, len(record.rows))]
    if not lines or len(lines) != len(record.rows):
        return record.digest()
    sha256 = hashlib.sha256(b"[" + b", ".join(lines) + b"]")
    for name, array in sorted(record.arrays.items()):
        sha256.update(f"{name} {array.dtype} {array.shape}".encode())
        sha256.update(np.ascontiguousarray(array).tobytes())
    return sha256.hexdigest()


def _relative(text: str, folder: Path | None) -> str:
    """The text with paths relative to the folder, if there is one: the same wherever that lies."""
    if folder is None:
        return text
    return text.replace(f"{folder}/", "").replace(f"{folder.resolve()}/", "")


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Rows of metrics as columns; what is not a number, or not finite, is NaN.

    >>> columns([{"step": 1, "kl": None, "b": [1, 2]}, {"step": 2, "kl": 0.5, "b": None}])["b"]
    array([[ 1.,  2.],
           [nan, nan]])
    """
    if not rows:
        return {}
    names = list(rows[0])
    if all(list(row) == names for row in rows):
        by_name = zip(names, zip(*(row.values() for row in rows), strict=True), strict=True)
        return {name: _column(values) for name, values in by_name}
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: Sequence[Any]) -> Column:
    first = next((v for v in values if v is not None), None)
    if not isinstance(first, list):
        return _numbers(values)
    width = max(len(v) for v in values if isinstance(v, list))
    empty = [None] * width
    fits = (v if isinstance(v, list) and len(v) == width else empty for v in values)
    return _numbers([number for v in fits for number in v]).reshape(len(values), width)


def _numbers(values: Sequence[Any]) -> Column:
    try:
        column = np.array(values, dtype=np.float64)
        if column.shape != (len(values),):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        column = np.array([_number(v) for v in values], np.float64)
    column[~np.isfinite(column)] = np.nan
    return column


def _number(value: Any) -> float:
    """A number as a float; NaN for anything else, and for one that no float can hold."""
    try:
        return float(value) if isinstance(value, (int, float)) else np.nan
    except OverflowError:
        return np.nan
