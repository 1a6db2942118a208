"""The command `klip`: each function in here is a subcommand, and does nothing but ask and print."""

import sys
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run a command; Ctrl-C is no mistake, also while the commands are still being imported."""
    try:
        from klip.cli.commands import run

        return run(args)
    except KeyboardInterrupt:
        print("klip: stopped", file=sys.stderr)
        return 130
