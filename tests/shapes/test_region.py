"""Shapes and controllers alike: a trainer need not tell them apart."""

import pytest

from klip.shapes import Clip, Controller, Feedback, Region, Shape, catalogue, parse


@pytest.mark.parametrize("cls", catalogue(Shape).values(), ids=lambda cls: cls.name)
def test_a_shape_is_a_region_with_an_empty_state(cls):
    shape = cls()
    assert shape.init() == {}
    assert shape.shape_at({}) is shape is shape.initial
    assert shape.stop({}, Feedback(kl=9.0, ratio_deviation=9.0)) is False
    assert shape.update({}, Feedback(kl=9.0)) == {}
    assert shape.step_scale({}) == 1
    assert not shape.adapts


def test_a_controller_adapts():
    assert all(cls.adapts for cls in catalogue(Controller).values())
    assert parse("espo").initial == parse("is")


def test_one_catalogue_holds_both():
    assert catalogue(Region).keys() == catalogue(Shape).keys() | catalogue(Controller).keys()
    assert isinstance(Clip(), Region)
