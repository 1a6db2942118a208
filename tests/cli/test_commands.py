"""From the command line to a command: help for each, one line for a mistake, no broken pipes."""

import inspect
import subprocess
import sys
import typing

import pytest

from klip.cli import main
from klip.cli.commands import COMMANDS
from klip.errors import KlipError


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert COMMANDS[command].__doc__.split("\n")[0].split(";")[0][:30] in capsys.readouterr().out


def test_every_option_is_explained():
    """In the docstring's `Args`, or where the option's kind is defined."""
    silent = []
    for name, function in COMMANDS.items():
        hints = typing.get_type_hints(function, include_extras=True)
        for option in inspect.signature(function).parameters:
            marks = getattr(hints[option], "__metadata__", ())
            explained = any(getattr(mark, "help", None) for mark in marks)
            if not explained and f"\n        {option}: " not in f"\n{function.__doc__}":
                silent.append(f"{name} {option}")
    assert set(silent) <= {"profile name", "tokens command"}  # they take nothing else


def test_a_mistake_is_one_line_and_exit_code_2(monkeypatch, capsys):
    def wrong() -> None:
        """Raise."""
        raise KlipError("the \x1b[31mname\n is wrong: give another")

    monkeypatch.setitem(COMMANDS, "shapes", wrong)
    assert main(["shapes"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("klip: the ")
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_a_fault_of_ours_is_not_hidden(monkeypatch):
    def broken() -> None:
        """Raise."""
        raise ZeroDivisionError

    monkeypatch.setitem(COMMANDS, "shapes", broken)
    with pytest.raises(ZeroDivisionError):
        main(["shapes"])


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (1, 1)])
def test_what_a_command_returns_is_the_exit_code(monkeypatch, result, code):
    def command() -> int | None:
        """Return."""
        return result

    monkeypatch.setitem(COMMANDS, "shapes", command)
    assert main(["shapes"]) == code


def test_a_reader_that_leaves_early_is_no_error():
    line = f"{sys.executable} -m klip shapes | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("shapes (")
