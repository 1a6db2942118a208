"""A lock on a run's folder, held by the process that trains it and gone when that ends."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from klip.disk import operations
from klip.errors import KlipError
from klip.runs.files import disk, of_json, read_file, shown

INSTANT: Final = 0.2
"""Seconds after which a lock that is held is somebody's, and not that of one who only looks."""
PATIENCE: Final = 15.0
"""Seconds to wait for a process whose parent was killed: more than such a process has to save."""
_STARTED: Final = os.getpid(), os.getppid()
"""This process and its parent, asked early: once that was killed, the system names another."""


class Busy(KlipError):
    """Somebody else is training this run."""


class Lock:
    """Held from construction until `release`, or until the process ends, however it ends.

    A process that is forked from this one does not hold it. One whose parent was killed saves its
    runs and ends, so it is waited for.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        with disk(path):
            self._handle = operations.create(path, os.O_RDWR)
        try:
            if not self._take(path):
                raise Busy(
                    f"{shown(str(folder))} is being trained by {_who(path)}: it was left alone"
                )
            about = {"pid": os.getpid(), "host": platform.node(), "parent": _parent()}
            with disk(path):
                operations.truncate(self._handle, 0)
                operations.write(self._handle, json.dumps(about).encode())
        except BaseException:
            operations.close(self._handle)
            raise
        _HELD.add(self)

    def _take(self, path: Path) -> bool:
        """Whether it was free, or became so; `is_locked` holds it for an instant."""
        until = time.monotonic() + INSTANT
        patience = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError:
                now = time.monotonic()
                if now > until and (now > patience or not _is_orphan(path)):
                    return False
                time.sleep(0.02 if now < until else 0.2)

    def release(self) -> None:
        """Let go."""
        _HELD.discard(self)
        operations.close(self._handle)

    def forked(self) -> None:
        """Close the handle that a forked process has got with everything else."""
        os.close(self._handle)


# A child that an environment forks has our handles, and would hold our locks after our end.
_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


def _let_go() -> None:
    for lock in list(_HELD):
        lock.forked()
    _HELD.clear()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Wait until nobody else holds a folder, then hold it; it leaves no file behind."""
    with disk(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether somebody is training the run in this folder now."""
    try:
        handle = os.open(folder / "lock", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def is_alive(pid: int) -> bool:
    """Whether there is a process of this number on this machine that has not ended."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):  # it has just ended, or the system does not tell
        return not Path("/proc/self").exists()


def _parent() -> int:
    """The process that started this one, also after its end."""
    pid, parent = _STARTED
    return parent if pid == os.getpid() else os.getppid()  # a forked process has one of its own


def _about(path: Path) -> dict[str, Any] | None:
    """What the holder of a lock has written about itself, if that can be read."""
    try:
        about = of_json(read_file(path, most=10_000))
        pid, parent = int(about["pid"]), int(about.get("parent", 0))
        return {"pid": pid, "parent": parent, "host": str(about["host"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _is_orphan(path: Path) -> bool:
    """Whether a lock is held by a process here whose parent is gone, so that it is about to end."""
    about = _about(path)
    if about is None or about["host"] != platform.node() or about["parent"] < 1:
        return False
    return not (is_alive(about["parent"]) and is_alive(about["pid"]))


def _who(path: Path) -> str:
    about = _about(path)
    if about is None:
        return "another process"
    if about["host"] == platform.node() and not is_alive(about["pid"]):
        return f"a process that process {about['pid']}, which has ended, has left behind"
    return f"process {about['pid']} on {about['host']!r}"
