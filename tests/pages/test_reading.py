"""The view of completions: every character can be seen, and shapes stand beside each other."""

import unicodedata

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.pages.reading import LONGEST, most_zeroed, of_frame, of_samples, visible
from klip.runs.completions import Completion
from klip.runs.kept import SCHEMA
from tests.runs.test_kept import columns


def frame(*parts):
    return pl.concat([pl.DataFrame(part, schema=SCHEMA) for part in parts])


@given(st.text(max_size=300))
def test_nothing_that_hides_or_turns_is_left(text):
    shown = visible(text)
    hidden = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
    assert not [c for c in shown if unicodedata.category(c) in hidden]
    assert ("characters)" in shown) >= (len(text) > LONGEST)


@pytest.mark.parametrize("text", ["seven", " the", "数学", "é", "😀", "a b"])
def test_ordinary_text_stays(text):
    assert visible(text) == text


def test_shapes_stand_beside_each_other_over_steps():
    other = columns(1, shape=["sapo"] * 2, trained=[False] * 2, fate=["kept", "weakened"])
    view = of_frame(frame(columns(5), columns(1), other), "run").data
    assert [at["step"] for at in view["steps"]] == [1, 5]
    (row,) = view["steps"][0]["rows"]
    assert [(shape["name"], shape["fates"]) for shape in row["shapes"]] == [
        ("clip", "kz"),
        ("sapo", "kw"),
    ]
    assert row["texts"] == ["a", "b"]
    assert row["told"][1] == "w 1.5, A +1, kill, answer"
    assert row["about"] == "reward 1, age 0"
    assert view["about"] == "clip"


def test_the_most_often_zeroed_come_first():
    more = columns(2, text=["c", "b"], fate=["zeroed", "zeroed"])
    other = columns(1, shape=["sapo"] * 2, trained=[False] * 2, fate=["zeroed", "zeroed"])
    found = most_zeroed(frame(columns(1), more, other))
    assert found == [
        {"text": "b", "seen": 2, "zeroed": [2, 1]},
        {"text": "c", "seen": 1, "zeroed": [1, 0]},
    ]


def test_the_labs_samples_are_a_case():
    sample = Completion("1+1=", "2$", 3, -0.5, (1.0, 0.7), (-0.5, 0.0), "kz")
    view = of_samples("arm", "seed 0", 10, [sample]).data
    (row,) = view["steps"][0]["rows"]
    assert row["about"] == "wrong, age 3"
    assert row["texts"] == ["2", "$"]
    assert row["shapes"] == [{"name": "", "fates": "kz", "m": [-0.5, 0.0]}]
