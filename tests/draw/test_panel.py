"""Panels: what a description says of itself."""

import numpy as np

from klip.draw.palette import PLAIN, Look
from klip.draw.panel import Axis, Guide, Line, Panel, Picture

X = np.arange(3.0)


def test_a_line_is_dashed_by_its_look_unless_it_lies_on_others():
    look = Look("#000000", "#FFFFFF", (2, 3))
    assert Line("a", look, X, X).dash == (2, 3)
    assert Line("a", look, X, X, below=1).dash == (12, 12)
    assert Line("a", look, X, X, published=True).dash == ()


def test_a_legend_names_lines_of_ours():
    marks = (Line("a", PLAIN, X, X, published=True), Line("a", PLAIN, X, X), Guide(1.0, "peak"))
    panel = Panel("title", Axis(), Axis(), marks)
    assert [line.label for line in panel.legend] == ["a"]
    assert not panel.legend[0].published
    assert Picture("stem", (panel, panel)).key(1) == "stem-1"
