"""The command `klip`: each function in here is a subcommand, and does nothing but ask and print."""

import signal
import sys
import threading
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run a command; Ctrl-C is no mistake, also while the commands are still being imported."""
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
