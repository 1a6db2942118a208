"""Figures: that they draw what is described, and that the same study gives the same bytes."""

from itertools import pairwise

import numpy as np
import pytest

from klip.draw.as_matplotlib import FORMATS, compact, drawn, write
from klip.draw.palette import PLAIN, looks
from klip.draw.panel import Axis, Dots, Fan, Guide, Line, Panel, Picture, Whisker
from klip.draw.pictures import pictures
from klip.draw.style import styled
from klip.pages.writing import report_of
from klip.studies.findings import find
from klip.studies.packing import pack
from klip.studies.reading import read_study
from tests.studies.folders import FORMS, config, make_run, make_study, small

X = np.arange(5.0)


def figure(*marks, x=Axis("x"), y=Axis("y")):  # noqa: B008 - frozen
    return drawn(Picture("stem", (Panel("a $title$", x, y, marks),)))


def test_a_line_has_its_band_and_its_rough_line_behind():
    look = looks(["a", "a(b=1)"])["a(b=1)"]
    (ax,) = figure(Line("a$b", look, X, X, X - 1, X + 1, (X, -X))).axes
    raw, line = ax.get_lines()
    assert raw.get_alpha() < 0.5
    assert raw.get_linewidth() < line.get_linewidth()
    np.testing.assert_array_equal(line.get_ydata(), X)
    assert line.get_label() == r"a\$b"
    assert line.get_linestyle() == "--"
    assert len(ax.collections) == 1
    assert ax.get_title() == r"a \$title\$"


def test_lines_that_are_not_shown_are_left_out():
    fig = figure(Line("a", PLAIN, X, X), Line("b", PLAIN, X, 2 * X, shown=False))
    assert [line.get_label() for line in fig.axes[0].get_lines()] == ["a"]
    (legend,) = fig.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a"]


def test_a_legend_says_what_the_colours_of_whiskers_mean():
    colours = looks(["K = 10", "K = 40"])
    marks = tuple(
        Whisker("clip", i, 1.0, 0.0, 2.0, look) for i, look in enumerate(colours.values())
    )
    (legend,) = drawn(Picture("s", (Panel("", Axis(), Axis(), marks),), colours=colours)).legends
    assert [text.get_text() for text in legend.get_texts()] == ["K = 10", "K = 40"]
    shades = [line.get_color() for line in legend.get_lines()]
    assert shades == [look.light for look in colours.values()]


def test_every_mark_is_drawn():
    rows = Axis(ticks=((0.0, "first"), (1.0, "second")), down=True)
    across = [Whisker("a", 0, 2.0, 1.0, 4.0), Whisker("b", 1, 3.0, None, None)]
    (ax,) = figure(Guide(2.5, "here", "x"), *across, y=rows).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["first", "second"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert len(ax.get_lines()) == 4  # an interval, two dots, the level
    upright = Whisker("a", 0.1, 2.0, 1.0, 4.0, upright=True)
    knob = Axis("eps", ((0.1, "0.1"), (1.0, "1")), log=True)
    (ax,) = figure(Dots("seed", X, X), Fan("25–75 %", X, -X, X, 0.2), upright, x=knob).axes
    assert ax.get_xscale() == "log"
    np.testing.assert_array_equal(ax.get_lines()[1].get_xdata(), [0.1, 0.1])


def test_panels_fill_their_rows_evenly():
    panel = Panel("", Axis(), Axis(), (Dots("", X, X),))
    grids = [Picture("p", (panel,) * n).grid for n in (1, 3, 4, 5, 7)]
    assert grids == [(1, 1), (1, 3), (2, 2), (2, 3), (3, 3)]


def test_numbers_on_axes_are_short():
    assert compact(-1.5e6) == "−1.5M"
    assert compact(0.1 + 0.2) == "0.3"


def test_the_same_bytes_from_folders_and_from_a_pack(tmp_path):
    out = make_study(tmp_path / "runs", shapes=FORMS[:2], seeds=2, **small())
    make_run(out, config(shape="clip(eps=0.3)", **small()))
    study = read_study(out)
    pack(study, tmp_path / "packed")
    packed = read_study(tmp_path / "packed")
    first = write(report_of(study).figures(), tmp_path / "a")
    second = write(report_of(packed).figures(), tmp_path / "b")
    assert [p.name for p in first] == [p.name for p in second]
    stems = {p.stem for p in first}
    assert stems == {*pictures(find(study)), "shapes"}
    assert len(first) == len(stems) * len(FORMATS)
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name


@pytest.mark.parametrize("length", [5, 30, 110])
def test_names_of_rows_have_room(length):
    """Within the figure, beside no other panel's marks, and no two on each other."""
    names = [f"shape-{i}" + " setting" * (length // 8) for i in range(12)]
    rows = Axis(ticks=tuple((float(i), name) for i, name in enumerate(names)), down=True)
    marks = tuple(Whisker(name, i, 1.0, 0.0, 2.0) for i, name in enumerate(names))
    panels = tuple(Panel(f"task {k}", Axis("return"), rows, marks) for k in range(3))
    fig = drawn(Picture("intervals", panels, 4, (3.1, 0.75 + 0.2 * len(names))))
    with styled():
        fig.draw_without_rendering()
    right = 0.0
    for ax in fig.axes:
        boxes = [text.get_window_extent() for text in ax.get_yticklabels()]
        assert min(box.x0 for box in boxes) >= right
        assert all(a.y0 >= b.y1 - 1 for a, b in pairwise(boxes))
        right = ax.get_window_extent().x1
    assert right <= fig.bbox.x1
