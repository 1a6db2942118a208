"""Keyword arguments of tasks as a line of text: read back as they were, and nothing executed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.ppo.arguments import arguments_in, spelled

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner)
    | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@given(st.dictionaries(st.from_regex(r"[a-z_]{2,8}", fullmatch=True), VALUES, max_size=3))
def test_they_are_read_back(arguments):
    names = {f"a_{name}": value for name, value in arguments.items()}
    text = spelled(names)
    assert arguments_in(text) == names
    assert repr(arguments_in(text)) == repr(dict(sorted(names.items())))
    assert spelled(text) == text
    assert text.isprintable()


def test_words_of_a_command_line():
    words = ["size=3", "goal=left", "slip=1e-3", "on=true", "off=False", "none=null", "at=[1, 2]",
             "pair=(1, 2)", "empty=", "path=a=b", "text='3'"]  # fmt: skip
    assert arguments_in(spelled(words)) == {
        "size": 3, "goal": "left", "slip": 1e-3, "on": True, "off": False, "none": None,
        "at": [1, 2], "pair": (1, 2), "empty": "", "path": "a=b", "text": "3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("size", "cannot be read"),
        ("3", "cannot be read"),
        ("a=open('x')", "cannot be read"),
        ("**{}", "cannot be read"),
        ("a=1) or (b=2", "cannot be read"),
        (["size"], "write name=value"),
        ({"a b": 1}, "no name of a keyword argument"),
        ({1: 1}, "no name of a keyword argument"),
        ({"a": {1, 2}}, "give numbers, text"),
        ({"a": float("nan")}, "give numbers, text"),
        ({"a": "x" * 2000}, "1000 are the most"),
        (5, "must be a table"),
    ],
)
def test_what_is_none(given, message):
    with pytest.raises(KlipError, match=message) as caught:
        spelled(given)
    assert "\n" not in str(caught.value)
