"""Charts: plain data, short numbers, and nothing that JSON cannot say."""

import json

import numpy as np
import pytest

from klip.draw.as_plotly import charts, rounded
from klip.draw.palette import PLAIN
from klip.draw.panel import Axis, Dots, Fan, Guide, Line, Panel, Picture, Whisker

X = np.array([4096.0, 1234568.0, 3.0])
Y = np.array([1 / 3, np.nan, 2.0])


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (Line("a", PLAIN, X, Y, Y, Y, (X, Y), "5 seeds", below=1),
         {"kind": "line", "x": [4096, 1234568, 3], "y": [0.333333, None, 2],
          "dash": "12px,12px", "about": "5 seeds", "shown": True, "low": [0.333333, None, 2]}),
        (Fan("f", X, Y, Y, 0.2), {"kind": "fan", "low": [0.333333, None, 2], "alpha": 0.2}),
        (Dots("d", X, Y), {"kind": "dots", "y": [0.333333, None, 2]}),
        (Whisker("w", 1, 2.0, None, np.inf), {"kind": "whisker", "low": None, "high": None}),
        (Guide(0.5, "peak"), {"kind": "level", "at": 0.5, "text": "peak", "axis": "y"}),
    ],
)  # fmt: skip
def test_a_mark_as_data(mark, expected):
    axis = Axis("x", ((1.0, "one"),), log=True)
    picture = Picture("stem", (Panel("title", axis, Axis("y", from_zero=True), (mark,)),))
    (chart,) = dict(charts(picture)).values()
    (found,) = chart["marks"]
    assert expected.items() <= found.items()
    assert (found["light"], found["dark"]) == (mark.look.light, mark.look.dark)
    assert chart["x"] == {"label": "x", "at": [1.0], "names": ["one"], "log": True}
    assert chart["y"] == {"label": "y", "zero": True}
    json.dumps(chart, allow_nan=False)


def test_whole_numbers_stay_exact():
    assert rounded([12345678.0, 0.12345678, None, np.nan]) == [12345678, 0.123457, None, None]
