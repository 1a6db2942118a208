"""What a shape has and lacks, and scores that are divided by it."""

import dataclasses

from klip.draw.palette import PLAIN
from klip.draw.properties import PROVEN, divided, has, promised, proven
from klip.shapes import parse
from klip.studies.predicting import predictions
from klip.theory.portrait import portrait


def test_somebodys_shape_has_the_properties_that_its_runs_kept():
    kept = dataclasses.replace(portrait(parse("spo")), spelling="my.py:Mine")
    assert has("my.py:Mine", kept) == has("spo(eps=0.2)")
    assert has("my.py:Mine") == {}
    assert has("my.py:Mine", dataclasses.replace(kept, guarantees=None)) == {}
    assert has("my.py:Mine", dataclasses.replace(kept, profile={"sign": 3})) == {}


def test_what_is_open_is_neither_had_nor_lacked():
    assert PROVEN["T3"] not in has("kl-k3(b=1.0)")
    assert PROVEN["T2"] in has("kl-k3(b=1.0)")


def test_a_promise_is_the_tables_or_what_runs_kept():
    kept = dataclasses.replace(portrait(parse("spo")), spelling="my.py:Mine")
    assert promised("my.py:Mine", kept) == promised("spo(eps=0.2)") == "T1 yes, T2 no, T3 yes"
    assert promised("my.py:Mine", dataclasses.replace(kept, guarantees=None)) == ""
    assert promised("no-such-shape") == ""
    assert [*proven("T1 yes, T2 no, T3 open").values()] == [True, False]


def test_a_panel_has_those_that_keep_a_property_above_the_others():
    scores = {"a": 3.0, "b": 2.0, "c": 1.0}
    found = predictions(
        scores, {"soft": {"a": True, "b": False, "c": False}, "all": dict.fromkeys(scores, True)}
    )
    points = {name: (f"label {name}", score, PLAIN) for name, score in scores.items()}
    picture = divided("scores", found, points, "score")
    assert list(picture.colours) == ["label a", "label b", "label c"]
    soft, every = picture.panels
    assert [tick for _, tick in soft.y.ticks] == ["yes (1)", "no (2)"]
    assert [(mark.label, round(mark.at), mark.estimate) for mark in soft.marks] == [
        ("label a", 0, 3.0), ("label c", 1, 1.0), ("label b", 1, 2.0)
    ]  # fmt: skip
    assert soft.note.startswith("+1.50 for those that have it")
    assert every.note == "All alike: it cannot tell."
