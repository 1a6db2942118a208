"""What the commands share: ways to print that neither cut nor colour what they should not."""

import json
from pathlib import Path

import pytest
from rich.text import Text

from klip.cli.common import console, escape, print_json


def test_json_is_one_object_that_any_reader_takes(capsys):
    print_json({"path": Path("a/b"), "none": None, "numbers": [1, 2.5]})
    assert json.loads(capsys.readouterr().out) == {"path": "a/b", "none": None, "numbers": [1, 2.5]}


def test_json_holds_no_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"value": float("nan")})


@pytest.mark.parametrize("text", ["[bold]x[/]", "clip[0]", "a [link=file:///] b"])
def test_escaped_text_has_no_markup(text):
    assert Text.from_markup(escape(text)).plain == text


def test_a_table_is_not_folded_where_there_is_no_terminal(capsys):
    console().print("x" * 150)
    assert capsys.readouterr().out == "x" * 150 + "\n"
