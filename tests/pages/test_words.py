"""Numbers on a page, and intervals in the cells of its tables."""

from klip.pages.words import around_zero, difference, ends, interval, marks, reach
from klip.studies.scores import Estimate


def known(estimate, low=None, high=None):
    return Estimate(estimate, low, high, 5, "t", 0.95)


def test_an_interval_that_cannot_be_known_is_not_written():
    assert interval(known(1.0)) == ""
    assert interval(None) == ""
    assert difference(known(-3.0, -10.0, 4.0)) == "−3.0 [−10.0, +4.0]"
    assert reach(known(0.1)) == "+10.0 (no interval can be known)"
    assert ends(known(0.1, 0.05, 0.15)) == "[+5.0, +15.0]"


def test_marks_share_one_scale():
    first, nothing, second = marks([known(2.0, 0.0, 4.0), None, known(10.0)])
    assert first == {"left": 0.0, "width": 40.0, "middle": 20.0}
    assert nothing is None
    assert second == {"left": 100.0, "width": 0.0, "middle": 100.0}
    assert marks([None]) == [None]
    (inside,) = marks([known(0.5, 0.25, 2.0)], (0.0, 1.0))
    assert inside == {"left": 25.0, "width": 75.0, "middle": 50.0}


def test_zero_is_in_the_middle_of_a_difference():
    (mark,) = around_zero([known(1.0, -1.0, 3.0)])
    assert mark["middle"] == 66.67
    assert around_zero([known(0.0)])[0]["middle"] == 50.0
