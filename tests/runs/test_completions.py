"""Completions in a checkpoint: what was kept is read, and what is damaged is refused in words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.runs.completions import PARTS, Completion

finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def completions(draw):
    text = draw(st.text(max_size=8))
    numbers = st.lists(finite, min_size=len(text), max_size=len(text)).map(tuple)
    return Completion(
        prompt=draw(st.text(max_size=5)),
        text=text,
        age=draw(st.integers(0, 100)),
        advantage=draw(finite),
        ratio=draw(numbers),
        pull=draw(numbers),
        part="".join(draw(st.sampled_from(sorted(PARTS))) for _ in text),
    )


@given(st.lists(completions(), max_size=4))
def test_there_and_back(samples):
    assert Completion.from_json(Completion.to_json(samples)) == samples


def test_each_set_has_its_letter():
    assert PARTS == {"i": "inside", "k": "kill", "p": "pass"}


GOOD = {
    "prompt": "1+2=", "text": "3$", "age": 1, "advantage": -0.5, "ratio": [1.0, 0.9],
    "pull": [-0.5, 0.0], "part": "ik",
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Expecting value"),
        (b'["\xff"]', "codec"),
        (b"3", "not iterable"),
        (b"[3]", "not subscriptable"),
        ([{**GOOD, "ratio": [1.0]}], "'3\\$' has not one number for each token"),
        ([{**GOOD, "part": "i"}], "has not one number for each token"),
        ([{**GOOD, "part": "ix"}], "the parts of '3\\$' are 'ix'"),
        ([{**GOOD, "age": "old"}], "'old'"),
        ([{**GOOD, "age": float("inf")}], "infinity"),
        ([{**GOOD, "pull": None}], "not iterable"),
        ([{k: v for k, v in GOOD.items() if k != "text"}], "'text'"),
    ],
    ids=str,
)
def test_what_is_damaged_is_refused(data, message):
    assert len(Completion.from_json(json.dumps([GOOD]).encode())) == 1
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    with pytest.raises(KlipError, match=message) as raised:
        Completion.from_json(raw)
    assert str(raised.value).startswith("its samples cannot be read (")
