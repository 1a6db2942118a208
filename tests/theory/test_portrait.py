"""Portraits: all that a page needs of a shape, in a small file that is never executed."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from klip.errors import KlipError
from klip.shapes import AdaptiveKL, Shape, catalogue, parse
from klip.theory.curves import values
from klip.theory.guarantee.table import known
from klip.theory.portrait import LARGEST, RATIOS, SAMPLES, from_json, portrait, pose, to_json


@dataclass(frozen=True)
class Raises(Shape):
    """m = wA, and an error where w > 1.5."""

    def multiplier(self, s):
        if np.any(np.asarray(s.w) > 1.5):
            raise RuntimeError("too far\nfor me")
        return s.w * s.advantage


@dataclass(frozen=True)
class Fading(Shape):
    """m = wA (1 - step / 1000), and infinite far out."""

    requires = ("step",)

    def multiplier(self, s):
        return s.w * s.advantage * (1 - s.context.step / 1000) / (s.w < 1.9)


def test_a_portrait_has_the_multiplier_and_beta_at_both_signs():
    drawn = pose(parse("clip"))
    grid = np.linspace(*RATIOS, SAMPLES)
    for (view, advantage), curve in drawn.curves.items():
        expected = values(parse("clip"), view, grid, advantage)
        at_grid = np.isin(curve.x, grid)
        np.testing.assert_array_equal(curve.y[at_grid], expected)
        assert [round(jump.at, 9) for jump in curve.jumps] == [1.2 if advantage > 0 else 0.8]


@pytest.mark.parametrize("name", catalogue())
def test_every_shape_survives_the_file_and_the_file_is_small(name):
    data = to_json(portrait(parse(name), steps=1000, profiled=False))
    again = from_json(data)
    assert to_json(again) == data
    assert (again.trouble, len(again.poses) > 0) == ("", True)
    assert len(data) < 100_000
    if not parse(name).initial.needs:
        assert len(data) < 15_000


def test_a_shape_that_looks_at_the_step_is_drawn_at_three():
    drawn = portrait(Fading(), steps=1000, profiled=False)
    assert [dict(each.context) for each in drawn.poses] == [{}, {"step": 500.0}, {"step": 1000.0}]
    start, half, end = (np.nan_to_num(p.curves["multiplier", 1.0].y, posinf=0) for p in drawn.poses)
    assert start[40] == 2 * half[40] > end[40] == 0
    assert np.isnan(from_json(to_json(drawn)).poses[0].curves["multiplier", 1.0].y).any()


def test_a_controller_is_drawn_as_it_starts():
    drawn = portrait(AdaptiveKL(), profiled=False)
    assert (drawn.adapts, drawn.initial, drawn.weighs_kl) == (True, "kl(b=1.0)", True)
    assert drawn.parameters["target"] == 0.02


def test_whatever_a_shape_raises_is_told_and_stops_nothing():
    drawn = portrait(Raises())
    assert (drawn.poses, drawn.profile) == ((), None)
    assert "raises RuntimeError: too far for me" in drawn.trouble
    assert from_json(to_json(drawn)) == drawn


def test_the_profile_is_that_of_the_shape_in_float64():
    drawn = from_json(to_json(portrait(parse("ramp"))))
    assert drawn.profile["sign"] == "zero"
    assert drawn.profile["finite"] == {"float64": True}
    assert drawn.guarantees == known()["ramp(eps=0.2, width=0.05)"]


def test_a_shape_that_is_no_number_far_out_has_a_profile_and_no_guarantees():
    drawn = portrait(Fading(), steps=1000)
    assert drawn.profile is not None
    assert drawn.guarantees is None
    assert "a guarantee needs a finite m" in drawn.trouble


def damaged(data):
    whole = json.loads(data)
    yield b""
    yield b"{}"
    yield data[:-30]
    yield data.replace(b"0.8", b"0.9", 1)
    yield data.replace(b"klip shape 1", b"klip shape 2")
    yield data + b" " * LARGEST
    yield json.dumps({**whole, "shape": {}}).encode()
    yield b"[" * 100_000


def test_no_damage_is_believed():
    data = to_json(portrait(parse("clip"), profiled=False))
    for bad in damaged(data):
        with pytest.raises(KlipError, match="the picture of its shape cannot be used"):
            from_json(bad)


def test_no_random_damage_changes_what_is_read():
    data, draw = to_json(portrait(parse("clip"), profiled=False)), np.random.default_rng(0)
    for _ in range(400):
        bad = bytearray(data)
        if draw.uniform() < 0.3:
            del bad[draw.integers(len(bad)) :]
        else:
            bad[draw.integers(len(bad))] ^= 1 << draw.integers(8)
        try:
            assert to_json(from_json(bytes(bad))) == data
        except KlipError:
            continue


@pytest.mark.parametrize(
    ("name", "value"),
    [("poses", [{"context": {}, "curves": []}]), ("parameters", {"a": []}), ("formula", 3),
     ("profile", []), ("parameters", 7), ("guarantees", {"brief": 3}), ("guarantees", "T1 yes")],
)  # fmt: skip
def test_a_file_that_is_whole_and_says_nonsense_is_refused(name, value):
    import hashlib

    about = json.loads(to_json(portrait(parse("clip"), profiled=False)))["shape"]
    text = json.dumps({**about, name: value}, separators=(",", ":"), sort_keys=True)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    data = f'{{"format":"klip shape 1","sha256":"{sha256}","shape":{text}}}'
    with pytest.raises(KlipError):
        from_json(data.encode())
