"""Ctrl-C and SIGTERM as requests to stop: runs are saved first, unless a second signal comes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interruption:
    """While entered, catches both signals; calls to it say whether one has come.

    Once all is saved, leaving raises what the signal would have: KeyboardInterrupt, or SystemExit
    with 143 for SIGTERM.
    """

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self.signal: int | None = None
        self._say = say
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():  # Python allows it only there
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None and self.signal is not None:
            self._raise(self.signal)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self._raise(number)
        self.signal = number
        name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        self._say(f"{name}: saving the runs, then stopping (once more to stop at once)")

    @staticmethod
    def _raise(number: int) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)
