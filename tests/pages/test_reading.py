"""The view of completions: every character can be seen, and shapes stand beside each other."""

import itertools
import unicodedata
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.pages.reading import LONGEST, UNKNOWN, most_zeroed, of_frame, thinned, visible
from klip.pages.template import embed
from klip.pages.tokens import VERDICTS
from klip.runs.completions import Completion
from klip.runs.kept import SCHEMA, kept_frame
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


def test_a_long_run_is_shown_at_some_of_its_steps():
    whole = frame(*(columns(step) for step in range(1, 101)))
    some = thinned(whole, most=20)["step"].unique().sort().to_list()
    assert (len(some), some[0], some[-1]) == (10, 1, 100)
    assert all(b - a == 11 for a, b in itertools.pairwise(some))
    assert thinned(whole, most=200).equals(whole)
    assert thinned(whole, most=1)["step"].unique().sort().to_list() == [1, 100]
    assert thinned(frame(columns(3)), most=1).height == 2  # a step is shown whole


def test_a_number_that_is_not_finite_is_shown_as_such():
    view = of_frame(frame(columns(multiplier=[float("nan"), float("-inf")])), "run").data
    (row,) = view["steps"][0]["rows"]
    assert row["shapes"][0]["m"] == ["nan", "-inf"]
    assert "-inf" in embed(view)


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
    whole = replace(sample, part="ik", span="ra", entropy=(0.1, 0.2), reward=1.0, step=12)
    view = of_frame(kept_frame([sample, whole], "clip", 10), "arm", "seed 0", VERDICTS).data
    assert (view["name"], view["about"]) == ("arm", "seed 0")
    (before,), (after,) = (at["rows"] for at in view["steps"])
    assert [at["step"] for at in view["steps"]] == [10, 12]
    assert (before["about"], after["about"]) == ("wrong, age 3", "right, age 3")
    assert before["texts"] == ["2", "$"]
    assert before["told"][1] == "w 0.7, A -0.5"
    assert after["told"][1] == "w 0.7, A -0.5, kill, answer, entropy 0.2"
    assert before["shapes"] == [{"name": "clip", "fates": "kz", "m": [-0.5, 0.0]}]


def test_a_token_without_text_has_its_place():
    kept = frame(columns(1, text=[None, None]))
    (row,) = of_frame(kept, "run").data["steps"][0]["rows"]
    assert row["texts"] == [UNKNOWN, UNKNOWN]
    assert "text unknown" in row["told"][0]
    assert most_zeroed(kept) == []
