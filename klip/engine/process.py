"""Processes of ours: plain Python that imports Klip, runs one of its modules, and nothing else.

`multiprocessing` would run the user's script again in each of them, and would look for every
module in the working folder first. These start with neither: what a process is to do comes through
a pipe.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType

_HOME = str(Path(__file__).parents[2])  # the folder that Klip itself was imported from
_START = "import sys; sys.path[:] = sys.argv[2:]; from {} import main; main(int(sys.argv[1]))"
_NO_CHANGE: Mapping[str, str] = MappingProxyType({})


class Process:
    """A process that calls `main` of a module with the number of its end of a pipe.

    Ctrl-C is for the parent: the process is born with that signal blocked.
    """

    def __init__(self, module: str, environment: Mapping[str, str] = _NO_CHANGE) -> None:
        self.pipe, theirs = Pipe()
        number = theirs.fileno()
        command = [sys.executable, "-P", "-c", _START.format(module), str(number), *import_path()]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,  # ours may be the user's script
                pass_fds=[number],
                env={**os.environ, **environment},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal killed it."""
        return self._popen.poll()

    def end(self) -> None:
        """Kill it; what it has sent can still be read."""
        self._popen.kill()
        self._popen.wait()

    def kill(self) -> None:
        """Leave nothing of it behind."""
        self.end()
        self.pipe.close()


def parents_pipe(handle: int) -> Connection:
    """Our end of the pipe to the parent; nothing that we start or fork has it.

    Otherwise what an environment leaves behind would keep the pipe open after our end.
    """
    os.set_inheritable(handle, False)
    pipe = Connection(handle)
    os.register_at_fork(after_in_child=pipe.close)
    return pipe


def import_path() -> list[str]:
    """Where a process of ours imports from: where this one does, but for the working folder.

    That is left out unless PYTHONPATH names it; then only code that the user names is looked for
    there (`klip.shapes.code.importable`). Klip's own folder is always among them.
    """
    here = os.path.realpath(os.curdir)
    asked = {os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p}
    folders = [os.path.abspath(folder) for folder in sys.path]
    kept = [f for f in folders if f in asked or os.path.realpath(f) != here]
    return list(dict.fromkeys([*kept, _HOME]))
