"""The command `klip`: each function in here is a subcommand, and does nothing but ask and print."""

from klip.cli.commands import main
