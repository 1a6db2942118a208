"""Cards of shapes: formula, picture, profile; and what cannot be shown says why."""

from klip.pages.cards import card, written


def test_a_card_has_formula_picture_and_profile():
    clip = card("clip(eps=0.2)")
    assert clip.label == "clip"
    assert "<svg" in clip.picture
    assert clip.properties
    assert clip.remark == ""


def test_a_controller_is_drawn_as_it_starts():
    assert "A controller" in card("adaptive-kl").remark


def test_somebodys_code_has_no_picture():
    mine = card("my.py:Mine(a=1)")
    assert mine.picture is None
    assert "executes nothing" in mine.remark
    assert "does not know" in card("no-such(a=1)").remark


def test_properties_as_a_person_writes_them():
    assert [written(value) for value in (None, True, 0.123456, [1.5, "x"], [])] == [
        "–", "yes", "0.1235", "1.5; x", "none",
    ]  # fmt: skip
