"""A lock on a run's folder, held by the process that trains it and gone when that ends."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from klip.errors import KlipError
from klip.runs.files import disk, read_file, shown


class Busy(KlipError):
    """Somebody else is training this run."""


class Lock:
    """Held from construction until `release`, or until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        with disk(path):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            if not self._take():
                raise Busy(
                    f"{shown(str(folder))} is being trained by {_who(path)}: it was left alone"
                )
            about = json.dumps({"pid": os.getpid(), "host": platform.node()})
            with disk(path):
                os.ftruncate(self._handle, 0)
                os.write(self._handle, about.encode())
        except BaseException:
            os.close(self._handle)
            raise

    def _take(self) -> bool:
        """Whether it was free; looks twice, since `is_locked` holds it for an instant."""
        for _ in range(10):
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError:
                time.sleep(0.02)
        return False

    def release(self) -> None:
        """Let go."""
        os.close(self._handle)


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


def _who(path: Path) -> str:
    try:
        about: dict[str, Any] = json.loads(read_file(path))
        return f"process {int(about['pid'])} on {about['host']!r}"
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "another process"
