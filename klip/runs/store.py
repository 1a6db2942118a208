"""The folder of one run while it is trained: `<out>/<task>/<shape>/seed-<n>-<id>/`.

config.json              what the run is a function of
shape.json               how its shape looks, for pages; going on needs it not
metrics.jsonl            one row per iteration
checkpoint.safetensors   all of the run so far; `previous.safetensors` is the one before
status.json              how it stands, for people and scripts; Klip itself trusts checkpoints
traceback.txt            Python's own words where a run failed because of somebody's code
lock                     held by whoever trains it
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from klip.disk import operations
from klip.errors import KlipError
from klip.runs.checkpoint import LARGEST_METRICS, Checkpoint, Damaged, config_id, encode, read
from klip.runs.files import disk, of_json, read_file, shown, sweep, write_whole
from klip.runs.lock import Lock
from klip.runs.machine import differences, this_machine

NEWEST, PREVIOUS = "checkpoint.safetensors", "previous.safetensors"
METRICS = "metrics.jsonl"
STATUS = "status.json"
TRACEBACK = "traceback.txt"
LARGEST_CONFIG: Final = 1_000_000
"""Bytes of a config.json that are read."""


class ChangedMachine(KlipError):
    """A run that was begun under other versions or on another processor."""


def slug(text: str) -> str:
    """A name that is safe as a folder's: letters, digits and a few signs, not too long."""
    return re.sub(r"[^A-Za-z0-9=.,_-]+", "_", text).strip("._")[:80] or "_"


def folder_of(out: Path, task: str, shape: str, seed: int, id: str) -> Path:
    """Where a run lives below `out`."""
    return out / slug(task) / slug(shape) / f"seed-{int(seed)}-{slug(id)}"


class RunFolder:
    """A run that this process trains: locked, mended where needed, ready to go on.

    `libraries` are the packages whose versions its bits depend on. `checkpoint` is where it stands
    (None: at the beginning), `notes` say what had to be mended.
    """

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        *,
        libraries: tuple[str, ...] = (),
        accept_changes: bool = False,
        start_over: bool = False,
    ) -> None:
        self.path, self.config = path, json.loads(json.dumps(config))
        self._machine = this_machine(libraries)
        self.notes: list[str] = []
        with disk(path):
            operations.make_folders(path)
        self._lock = Lock(path)
        try:
            self.checkpoint = self._newest(start_over)
            self.machines, self.history = self._going_on(accept_changes)
            self._write_config()
            self._metrics = self._open_metrics()
            self._tidy()
        except BaseException:
            self._lock.release()
            raise

    # -- while it trains ----------------------------------------------------------------------

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one more line of metrics."""
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        if self._size + len(line) > LARGEST_METRICS:
            raise KlipError(
                f"{self.path / METRICS} would be larger than {LARGEST_METRICS:,} bytes: give a "
                "larger rollout, so that there are fewer iterations"
            )
        with disk(self.path / METRICS):
            operations.write(self._metrics, line)
        self._take_in(line)

    def save(
        self,
        iteration: int,
        arrays: Mapping[str, NDArray[Any]],
        status: str = "running",
        reason: str = "",
    ) -> None:
        """Save all up to here in a checkpoint; the one before it is kept too."""
        checkpoint = Checkpoint(
            self.config, iteration, arrays, self._deflate.so_far(), self._size,
            self._sha256.hexdigest(), status, reason, self.machines, self.history,
        )  # fmt: skip
        with disk(self.path / METRICS):
            operations.sync(self._metrics)  # it must not last shorter than what counts on it
        write_whole(self.path / NEWEST, encode(checkpoint), keep=self.path / PREVIOUS)
        self.checkpoint = checkpoint
        write_whole(self.path / STATUS, _status(checkpoint))

    def keep_traceback(self, text: str) -> None:
        """Write the traceback of what the run failed of; without one, the last is removed."""
        path = self.path / TRACEBACK
        if text:
            write_whole(path, text.encode("utf-8", "backslashreplace"))
        else:
            with disk(path):
                operations.remove(path)

    def close(self) -> None:
        """Let go of the run."""
        operations.close(self._metrics)
        self._lock.release()

    # -- finding out where it stands ----------------------------------------------------------

    def _newest(self, start_over: bool) -> Checkpoint | None:
        """The newest checkpoint that is whole and of this run; the others are set aside."""
        met = False
        for name in (NEWEST, PREVIOUS):
            path = self.path / name
            if not path.exists():
                continue
            met = True
            try:
                checkpoint = read_own(path, config_id(self.config))
            except Damaged as error:
                self.notes.append(f"{error}; it was set aside as {self._set_aside(path)}")
                continue
            self.notes += self._set_aside_earlier(checkpoint.history)
            if self.notes:
                self.notes.append(f"it goes on from {name}, iteration {checkpoint.iteration}")
            return checkpoint
        if met and not start_over:
            raise Damaged(
                f"{self.path} has no checkpoint that can be used: {'; '.join(self.notes)}; "
                "begin it again with --start-over"
            )
        if met or lost(self.path):
            if not start_over:
                raise Damaged(
                    f"{self.path} lost its checkpoints (what was damaged was set aside there); "
                    "begin it again with --start-over"
                )
            self.notes += self._set_aside_earlier(())
            self.notes.append("it begins again: no checkpoint could be used")
        elif (self.path / METRICS).exists() and (self.path / METRICS).stat().st_size:
            self.notes.append("it begins again: it stopped before its first checkpoint")
        return None

    def _set_aside_earlier(self, history: Sequence[str]) -> list[str]:
        """Notes on files that were set aside earlier and that no history names."""
        named = " ".join((*history, *self.notes))
        names = sorted(path.name for path in self.path.glob("*.damaged-*"))
        return [f"{name} was set aside earlier" for name in names if name not in named]

    def _set_aside(self, path: Path) -> str:
        free = (f"{path.name}.damaged-{k}" for k in itertools.count(1))
        name = next(name for name in free if not (self.path / name).exists())
        with disk(path):
            operations.replace(path, self.path / name)
        return name

    def _going_on(
        self, accept_changes: bool
    ) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
        """The machines that the run was trained on, with this one, and its history."""
        now = self._machine
        if self.checkpoint is None:
            return ({"since": 0, **now},), tuple(self.notes)
        machines, history = self.checkpoint.machines, self.checkpoint.history
        last = {k: v for k, v in machines[-1].items() if k != "since"} if machines else {}
        changed = [shown(text) for text in differences(last, now)]
        if changed and not self.ended:
            if not accept_changes:
                raise ChangedMachine(
                    f"{shown(str(self.path))} was trained under other conditions "
                    f"({', '.join(changed)}), so "
                    "going on would not give the same bytes: go back to them, or give "
                    "--accept-changes, which is then recorded in the run"
                )
            since = self.checkpoint.iteration
            machines = (*machines, {"since": since, **now})
            self.notes.append(f"it goes on at iteration {since} though {', '.join(changed)}")
        return machines, (*history, *self.notes)

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to train."""
        return self.checkpoint is not None and self.checkpoint.status in ("done", "diverged")

    def _write_config(self) -> None:
        """Write config.json unless it is there; its content is known, so damage is undone."""
        path, data = self.path / "config.json", _json(self.config)
        there = _beginning(path) if path.exists() else None
        if there == data:
            return
        write_whole(path, data)
        if there is not None and not self._is_own(there):
            self._note("config.json was damaged, and was written anew")

    def _is_own(self, data: bytes) -> bool:
        """Whether a config.json is this run's, though perhaps computed in another way."""
        try:
            config = of_json(data)
            return data == _json(config) and config_id(config) == config_id(self.config)
        except (ValueError, TypeError, AttributeError):
            return False

    def _open_metrics(self) -> int:
        """The handle of the metrics file, cut back to the checkpoint or restored from it."""
        path, point = self.path / METRICS, self.checkpoint
        with disk(path):
            text, size = metrics_in(path, point)
        kept = b""
        if point is not None:
            kept = text[: point.metrics_size]
            if not point.covers(text):
                kept = point.metrics_text()
                write_whole(path, kept)
                self._note("metrics.jsonl was damaged, and was restored from the checkpoint")
            elif self.ended and size > len(kept):
                self._note("metrics.jsonl had more in it than the run, and was cut back")
        self._deflate, self._sha256, self._size = Deflate(), hashlib.sha256(), 0
        self._take_in(kept)
        with disk(path):
            handle = operations.create(path, os.O_WRONLY | os.O_APPEND)
            operations.truncate(handle, len(kept))
            operations.sync_folder(self.path)
        return handle

    def _tidy(self) -> None:
        """Bring up to date what a process that was killed left behind."""
        sweep(self.path)
        path = self.path / STATUS
        if self.checkpoint is not None and _beginning(path) != _status(self.checkpoint):
            write_whole(path, _status(self.checkpoint))

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.history = (*self.history, text)

    def _take_in(self, text: bytes) -> None:
        self._deflate.add(text)
        self._sha256.update(text)
        self._size += len(text)


class Deflate:
    """Compresses text as it comes; what it has so far can be asked for at any time."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(1)
        self._ready: list[bytes] = []

    def add(self, text: bytes) -> None:
        """Take in more text."""
        self._ready.append(self._stream.compress(text))

    def so_far(self) -> bytes:
        """All that was taken in, compressed."""
        return b"".join((*self._ready, self._stream.copy().flush()))


def _status(point: Checkpoint) -> bytes:
    """How a run stands, as its status file has it."""
    about = {
        "status": point.status,
        "reason": point.reason,
        "iteration": point.iteration,
        "machines": [dict(machine) for machine in point.machines],
        "history": list(point.history),
    }
    return _json(about)


def metrics_in(path: Path, point: Checkpoint | None, more: int = 0) -> tuple[bytes, int]:
    """The metrics that a checkpoint covers and `more` bytes after them, and the file's size.

    Whatever lies in a file of that name, no more of it is read.
    """
    if not path.exists():
        return b"", 0
    if not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file")
    with path.open("rb") as file:
        known = point.metrics_size if point is not None else 0
        return file.read(known + more), os.fstat(file.fileno()).st_size


def _beginning(path: Path) -> bytes:
    """A small file of ours, or nothing where it is none: more than any has is not read."""
    try:
        return read_file(path, LARGEST_CONFIG)
    except OSError:
        return b""


def lost(path: Path) -> bool:
    """Whether a folder without a checkpoint once had one."""
    return (path / STATUS).exists() or any(path.glob("*.damaged-*"))


def read_own(path: Path, id: str) -> Checkpoint:
    """The checkpoint in a file, if it is whole and of the run with this id."""
    checkpoint = read(path)
    if checkpoint.id != id:
        raise Damaged(f"{path} cannot be used: it is of run {checkpoint.id}, not of {id}")
    checkpoint.metrics_text()
    return checkpoint


def _json(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode()
