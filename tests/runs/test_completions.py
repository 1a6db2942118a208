"""Completions in a checkpoint: what was kept is read, and what is damaged is refused in words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.runs.completions import FATES, PARTS, SPANS, Completion

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
        fate=draw(letters(FATES, text)),
        **draw(st.sampled_from([{}, draw(details(text, numbers))])),
    )


def letters(names, text):
    return st.text(sorted(names), min_size=len(text), max_size=len(text))


def details(text, numbers):
    """What only a run that keeps tokens keeps."""
    return st.fixed_dictionaries({
        "part": letters(PARTS, text), "span": letters(SPANS, text), "entropy": numbers,
        "reward": finite, "step": st.integers(0, 1000),
    })  # fmt: skip


@given(st.lists(completions(), max_size=4))
def test_there_and_back(samples):
    assert Completion.from_json(Completion.to_json(samples)) == samples


def test_each_fate_has_its_letter():
    assert list(FATES) == ["k", "w", "z", "r", "s"]
    assert list(PARTS) == ["i", "k", "p"]


def test_what_was_not_kept_is_not_written():
    """So a run without kept tokens has the bytes that it had before there were any."""
    sample = Completion.read(GOOD)
    assert json.loads(Completion.to_json([sample])) == [GOOD]


GOOD = {
    "prompt": "1+2=", "text": "3$", "age": 1, "advantage": -0.5, "ratio": [1.0, 0.9],
    "pull": [-0.5, 0.0], "fate": "kz",
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Expecting value"),
        (b'["\xff"]', "codec"),
        (b"3", "not iterable"),
        (b"[3]", "not subscriptable"),
        ([{**GOOD, "ratio": [1.0]}], "'3\\$' has not one number for each token"),
        ([{**GOOD, "fate": "k"}], "has not one number for each token"),
        ([{**GOOD, "fate": "kx"}], "the fates of '3\\$' are 'kx'"),
        ([{**GOOD, "part": "ix"}], "the parts of '3\\$' are 'ix'"),
        ([{**GOOD, "span": "r"}], "has not one number for each token"),
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
