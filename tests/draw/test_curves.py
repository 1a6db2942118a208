"""A curve on axes: a line that is cut at each jump, and a connector there."""

import numpy as np

from klip.draw.curves import draw
from klip.draw.style import figure
from klip.theory.curves import trace


def test_a_jump_is_a_gap_in_the_line_and_a_dotted_connector():
    axes = figure(2, 2).add_subplot()
    draw(axes, trace(np.sign, -1.0, 2.0), color="#000000", label="sign")
    line, connector = axes.lines
    assert np.isnan(line.get_ydata()).sum() == 1
    assert (line.get_label(), list(connector.get_ydata())) == ("sign", [-1.0, 1.0])
