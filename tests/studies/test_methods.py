"""What one line against a lag or a replay goes through."""

from klip.shapes import parse
from klip.studies.methods import beginning, methods
from klip.studies.reading import read_study
from tests.studies.folders import config, make_run, small

CLIP = "clip(eps=0.2)"


def variants(out, *runs):
    """The variants of CartPole runs, given by their shapes and settings."""
    for shape, more in runs:
        spelling = shape if ":" in shape else str(parse(shape))
        make_run(out, config(shape=spelling, **small(**more)), 2)
    return read_study(out).of("CartPole-v1")


def points(found):
    return {method.name: list(method.at) for method in found}


def begun(found):
    return {method.name: method.begins and method.begins.label for method in found}


def test_a_method_goes_through_its_values_in_order(tmp_path):
    runs = [("spo(eps=0.2)", {"lag": lag}) for lag in (0, 2, 16)]
    found = methods(variants(tmp_path, *runs, ("spo(eps=0.2)", {"lag": 4, "replay": 2})), "lag")
    assert points(found) == {"spo": [0, 2, 16]}
    assert begun(found) == {"spo": None}
    assert found[0].unsaid("lag") == ""


def test_what_differs_in_numbers_alone_is_one_where_it_never_meets(tmp_path):
    every = [("max-age(limit=0.0) * clip(eps=0.2)", {"replay": 2}),
             ("max-age(limit=1.0) * clip(eps=0.2)", {"replay": 4}),
             ("max-age(limit=1.0) * clip(eps=0.2)", {"replay": 8}),
             ("clip(eps=0.1)", {"replay": 2}), ("clip(eps=0.1)", {"replay": 4}),
             ("clip(eps=0.3)", {"replay": 4}), ("clip(eps=0.3)", {"replay": 8})]  # fmt: skip
    found = methods(variants(tmp_path, *every), "replay")
    assert points(found) == {
        "max-age * clip": [2, 4, 8], "clip(eps=0.1)": [2, 4], "clip(eps=0.3)": [4, 8],
    }  # fmt: skip
    told = {method.name: method.unsaid("replay") for method in found}
    assert told["max-age * clip"] == (
        "max-age * clip: limit 0 at replay 2, limit 1 at replay 4, limit 1 at replay 8."
    )
    assert told["clip(eps=0.1)"] == ""


def test_without_an_age_a_method_begins_at_what_it_would_be(tmp_path):
    weighted = {"normalise_advantages": "weighted"}
    found = methods(
        variants(
            tmp_path,
            (CLIP, {}), ("clip(eps=0.1)", {}), (CLIP, {"lr": 0.1}), ("tis(cap=1.0)", {}),
            (CLIP, {"replay": 2, "ratio": "decoupled"}), ("age-conditioned", {"replay": 2}),
            ("max-age(limit=1.0) * clip(eps=0.1)", {"replay": 2}),
            ("p3o-ess", {"replay": 2}), ("vaco * ramp(eps=0.2, width=0.05)", {"replay": 2}),
            ("tv-step-size(shape=clip(eps=0.2), target=0.1)", weighted),
            ("tv-step-size(shape=geppo(eps=0.15), target=0.075)",
             {"replay": 2, "age_weights": "geppo", **weighted}),
        ),
        "replay",
    )  # fmt: skip
    assert begun(found) == {
        "clip, ratio decoupled": "clip", "age-conditioned": "clip",
        "max-age(limit=1.0) * clip(eps=0.1)": "clip(eps=0.1)",
        "tv-step-size(shape=geppo(eps=0.15), target=0.075)":
            "tv-step-size(shape=clip, target=0.1), normalise_advantages weighted",
    }  # fmt: skip
    assert "age_weights geppo" in found[-1].unsaid("replay")


def test_two_possible_beginnings_are_none(tmp_path):
    """With its numbers both would do, and neither has them."""
    one, other, old = variants(
        tmp_path, ("clip(eps=0.1)", {}), ("clip(eps=0.3)", {}), ("geppo(eps=0.2)", {"lag": 1})
    )
    assert beginning(old, [one, other]) is None
    assert beginning(old, [other]) is other


def test_nobodys_code_is_executed(tmp_path):
    mine = "/nowhere/my.py:Mine(a=1.0)"
    found = methods(
        variants(tmp_path, (mine, {}), (mine, {"lag": 1, "ratio": "decoupled"}), (CLIP, {})), "lag"
    )
    assert list(begun(found).values()) == [mine]


def test_a_name_is_short_unless_that_would_not_tell_two_apart(tmp_path):
    long = {"normalise_advantages": "weighted", "gamma": 0.9}
    runs = [(shape, {"lag": lag, **more}) for lag in (0, 1)
            for shape, more in ((CLIP, {}), (CLIP, long), ("spo(eps=0.2)", long))]  # fmt: skip
    found = methods(variants(tmp_path, *runs), "lag")
    full = ", gamma 0.9, normalise_advantages weighted"
    assert points(found) == {"clip": [0, 1], "clip" + full: [0, 1], "spo": [0, 1]}
    assert [method.unsaid("lag") for method in found] == ["", "", f"spo: {full[2:]}."]
