"""The command `klip`: each public function in here is a subcommand that asks, calls and prints.

Knows every room; nobody imports it.
"""

import signal
import sys
import threading
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run a command; Ctrl-C is no mistake, even while the commands are still being imported.

    Args:
        args: the words after `klip` on the command line; this process's own unless given

    Returns:
        the exit code: 0, 1 if a part of what was asked failed, 2 after a user's mistake, 130
        after Ctrl-C

    """
    try:
        # Python drops an exception that is raised in the callbacks of an import, so a Ctrl-C might
        # be lost; there is nothing to save yet.
        alone = threading.current_thread() is threading.main_thread()
        usual = signal.signal(signal.SIGINT, signal.SIG_DFL) if alone else None
        from klip.cli.commands import run

        if alone:
            signal.signal(signal.SIGINT, usual)
        return run(args)
    except KeyboardInterrupt:
        print("klip: stopped", file=sys.stderr)
        return 130
