"""What a notebook shows of a trust region."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

import pytest

from klip.draw.notebook import notebook
from klip.shapes import Shape, parse


def texts(html):
    return "".join(ET.fromstring(html).itertext())


@pytest.mark.parametrize(
    "spelling",
    ["clip", "tr-ppo", "adaptive-kl", "truncate * clip + kl-k3(b=0.1)", "by-sign(clip, spo)"],
)
def test_every_kind_of_region_shows_its_spelling_its_formulas_and_a_picture(spelling):
    region = parse(spelling)
    shown = region._repr_html_()
    assert shown == notebook(region)
    assert str(region) in texts(shown)
    assert all(part.formula in texts(shown) for part in region.parts())
    assert "<svg" in shown


def test_a_shape_that_cannot_be_drawn_says_why():
    @dataclass(frozen=True)
    class Broken(Shape):
        """m = A / 0 <b>"""

        def multiplier(self, s):
            raise ZeroDivisionError("by <zero>")

    shown = Broken()._repr_html_()
    assert "m = A / 0 <b>" in texts(shown)
    assert "It has no picture: broken raises ZeroDivisionError: by <zero>" in texts(shown)
    assert "<svg" not in shown
