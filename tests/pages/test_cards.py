"""Cards of shapes: formula, picture, profile; and what cannot be shown says why."""

from dataclasses import replace

from klip.pages.cards import card, written
from klip.shapes import parse
from klip.theory.portrait import portrait


def test_a_card_has_formula_picture_and_profile():
    clip = card("clip(eps=0.2)")
    assert clip.label == "clip"
    assert "<svg" in clip.picture
    assert [promise[:2] for promise in clip.promises] == [
        ("guarantees", "T1 yes, T2 yes, T3 no"),
        ("inner loop ends", "w = 1 + max(0.2, 0.2 P-/P+)"),
    ]
    assert ("sign", "zero") in [of[:2] for of in clip.properties]
    assert clip.remark == ""


def test_a_controller_is_drawn_as_it_starts():
    assert "A controller" in card("adaptive-kl").remark


def test_somebodys_code_is_drawn_as_its_runs_kept_it():
    kept = replace(portrait(parse("ramp")), spelling="my.py:Mine(a=1)", formula="<b>mine</b>")
    mine = card("my.py:Mine(a=1)", kept)
    assert mine.picture == card(str(parse("ramp"))).picture
    assert mine.promises == card(str(parse("ramp"))).promises != ()
    before = card("my.py:Mine(a=1)", replace(kept, guarantees=None))
    assert "klip guarantee says them" in before.remark
    assert "klip guarantee says them" not in mine.remark
    assert (mine.formula, mine.label) == ("<b>mine</b>", "my.py:Mine(a=1)")
    assert dict((name, value) for name, value, _ in mine.properties)["sign"] == "zero"
    assert card("clip(eps=0.2)", kept) == card("clip(eps=0.2)")  # known by name: not believed
    troubled = card(
        "my.py:Mine(a=1)", replace(kept, poses=(), profile=None, guarantees=None, trouble="E: no")
    )
    assert (troubled.picture, troubled.promises, troubled.properties) == (None, (), ())
    assert "raised E: no" in troubled.remark


def test_a_shape_that_looks_at_more_is_drawn_at_other_values_too():
    drawn = card("clip(eps=by-age(fresh=0.2, half_life=8.0))")
    assert [about for about, _ in drawn.others] == ["age 1", "age 4", "age 16"]
    timed = card("clip(eps=by-step(start=0.3, end=0.1, steps=100.0))", steps=200)
    assert [about for about, _ in timed.others] == ["step 100", "step 200"]


def test_somebodys_code_without_a_portrait_has_no_picture():
    mine = card("my.py:Mine(a=1)")
    assert mine.picture is None
    assert "executes nothing" in mine.remark
    assert "does not know" in card("no-such(a=1)").remark


def test_properties_as_a_person_writes_them():
    assert [written(value) for value in (None, True, 0.123456, [1.5, "x"], [])] == [
        "–", "yes", "0.1235", "1.5; x", "none",
    ]  # fmt: skip
