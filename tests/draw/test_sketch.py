"""Sketches: a few kilobytes of SVG, jumps cut, in the page's own colours."""

import xml.etree.ElementTree as ET

import pytest

from klip.draw.sketch import sketch
from klip.shapes import Clip, Ramp, catalogue, parse


@pytest.mark.parametrize("name", [name for name in catalogue() if name in ("clip", "ramp", "spo")])
def test_a_sketch_is_small_and_whole(name):
    text = sketch(parse(name))
    ET.fromstring(text)
    assert len(text) < 12_000
    assert "nan" not in text
    assert "#" not in text


def test_a_clip_jumps_and_a_ramp_does_not():
    assert sketch(Clip()).count('class="jump') == 4
    assert sketch(Ramp()).count('class="jump') == 0
