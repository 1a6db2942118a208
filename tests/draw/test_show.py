import numpy as np
import pytest

from klip.draw import style
from klip.draw.show import colour_limit, probe_picture, save, show
from klip.errors import KlipError
from klip.shapes import SPO, ByAge, Clip, ImportanceSampling, Ramp, catalogue, parse


def curve(axes, colour):
    """The shape's own line of a colour: neither dashed nor a connector."""
    lines = [x for x in axes.lines if x.get_color() == colour and x.get_linestyle() == "-"]
    (found,) = [x for x in lines if len(x.get_xdata()) > 2]
    return found.get_data()


def panels(figure, count):
    return np.array(figure.axes[: 3 * count]).reshape(3, count)


@pytest.mark.parametrize("name", catalogue())
def test_every_shape_of_the_catalogue_can_be_shown(name, tmp_path):
    figure = show([catalogue()[name]()])
    assert figure.axes[0].get_title().startswith(name.split("(")[0])
    if name in ("clip", "tr-ppo", "position-aware"):  # one of each kind of title is drawn
        save(figure, tmp_path / "shape.svg")


def test_the_curves_are_the_shapes(tmp_path):
    grid = panels(show([Ramp(), SPO()]), 2)
    for column, shape in enumerate((Ramp(), SPO())):
        for advantage in (1.0, -1.0):
            x, y = curve(grid[0, column], style.colour_of(advantage))
            np.testing.assert_allclose(y, shape.multiplier(np.log(x), advantage))
            x, y = curve(grid[1, column], style.colour_of(advantage))
            np.testing.assert_allclose(y, shape.beta(np.log(x), advantage))


def test_the_unconstrained_pull_is_the_dashed_reference():
    axes = show([Clip()]).axes[0]
    thin = [x for x in axes.lines if x.get_linewidth() < 1 and x.is_dashed()]
    dashed = [x for x in thin if len(x.get_xdata()) > 2]  # a jump's connector has two points
    assert [x.get_color() for x in dashed] == [style.POSITIVE, style.NEGATIVE]
    for shown, advantage in zip(dashed, (1.0, -1.0), strict=True):
        np.testing.assert_allclose(shown.get_ydata(), advantage * shown.get_xdata())


@pytest.mark.parametrize(("advantage", "edge"), [(1.0, 1.2), (-1.0, 0.8)])
@pytest.mark.parametrize("row", [0, 1])
def test_jumps_are_broken(row, advantage, edge):
    x, y = curve(show([Clip()]).axes[row], style.colour_of(advantage))
    (gap,) = np.flatnonzero(np.isnan(y))
    assert x[gap] == pytest.approx(edge)
    assert abs(y[gap + 1] - y[gap - 1]) == pytest.approx(edge)


def test_lines_that_coincide_are_both_seen():
    axes = show([ImportanceSampling()]).axes[1]
    dashes = [x for x in axes.lines if x.get_color() == style.POSITIVE and x.is_dashed()]
    assert np.isfinite(dashes[0].get_ydata()).all()


def test_a_row_has_one_scale():
    grid = panels(show([Clip(), SPO(), Ramp()]), 3)
    for row in grid:
        assert len({axes.get_ylim() for axes in row}) == 1
    assert len({axes.images[0].get_clim() for axes in grid[2]}) == 1


def test_a_steep_shape_does_not_wash_out_the_others():
    figure = show([Clip(), SPO(eps=0.02)])
    assert panels(figure, 2)[0, 0].get_ylim()[0] > -5
    low, high = figure.axes[3 * 2 - 2].images[0].get_clim()
    assert -low == high == pytest.approx(4.0)
    (bar,) = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert bar._colorbar.extend == "both"


def test_the_colour_scale_fits_what_there_is():
    assert colour_limit([np.zeros((3, 3))], pull=4.0) == 1.0
    assert colour_limit([np.full((3, 3), 0.5)], pull=4.0) == 0.5
    assert colour_limit([np.full((3, 3), -50.0)], pull=4.0) == 50.0
    assert colour_limit([np.full((3, 3), -50.0), np.full((3, 3), 1.0)], pull=4.0) == 4.0


def texts(axes):
    return " ".join(text.get_text() for text in axes.texts)


def test_a_column_says_what_it_assumed():
    assert "at old probability 0.5" in texts(show([parse("dppo-tv").initial]).axes[0])
    given = show([parse("dppo-tv").initial], context={"old_log_prob": np.log(0.1)})
    assert "at old probability 0.1" in texts(given.axes[0])
    assert "state KL from $w$" in texts(show([parse("tr-ppo").initial]).axes[0])
    assert texts(show([Clip()]).axes[0]) == ""


def test_a_closed_form_kl_is_noted():
    assert "+ closed-form KL, weight 0.1" in texts(show([parse("p3o").initial]).axes[0])
    assert "weight up to 5" in texts(show([parse("truly-ppo").initial]).axes[0])


def band(axes):
    (shaded,) = axes.patches
    return shaded.get_x(), shaded.get_x() + shaded.get_width()


def test_the_band_is_the_shapes_own_or_eps():
    figure = show([Clip(low=0.1, high=0.3), SPO()], eps=0.25)
    assert band(figure.axes[0]) == pytest.approx((0.9, 1.3))
    assert band(figure.axes[1]) == pytest.approx((0.75, 1.25))


def test_the_band_follows_the_context():
    shape = parse("truncate * clip(eps=by-age(fresh=0.2, half_life=4))")
    assert band(show([shape], context={"age": 4.0}).axes[0]) == pytest.approx((0.9, 1.1))


def test_a_context_that_no_shape_looks_at_is_an_error():
    with pytest.raises(KlipError, match="none of these shapes looks at 'entropy'; they need age"):
        show([Clip(eps=ByAge()), Clip()], context={"entropy": 1.0})


def test_nothing_to_show_is_an_error():
    with pytest.raises(KlipError, match="there is no shape to show"):
        show([])
    with pytest.raises(KlipError, match=r"upto=1 leaves nothing"):
        show([Clip()], upto=1)


def test_six_columns_and_long_names_are_drawn(tmp_path):
    names = ("clip", "truncate * clip + kl-k3(b=0.1)", "p3o", "position-aware", "tv", "ano")
    figure = show([parse(name).initial for name in names])
    save(figure, tmp_path / "six.png")
    titles = [axes.get_title() for axes in figure.axes[:6]]
    assert titles[1] == "truncate(cap=2.0) *\nclip(eps=0.2) +\nkl-k3(b=0.1)"
    assert max(len(row) for title in titles for row in title.split("\n")) <= 27


def test_a_user_shape_is_titled_by_its_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from klip.shapes import Shape\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Shape):\n"
        "    def multiplier(self, s):\n"
        "        return 0.5 * s.advantage + 0.0 * s.log_w\n"
    )
    assert show([parse(f"{path}:Mine").initial]).axes[0].get_title() == "mine.py:Mine"


def recovered(shape, advantages=(1.0, -1.0, 2.0)):
    w = np.linspace(0.5, 1.5, 9)
    return {a: (w, shape.multiplier(np.log(w), a)) for a in advantages}


def test_a_probe_shows_its_points_and_its_match():
    figure = probe_picture(recovered(Clip()), Clip(), "a loss")
    m_axes, beta_axes = figure.axes
    for axes, view in ((m_axes, Clip().multiplier), (beta_axes, Clip().beta)):
        marked = [x for x in axes.lines if x.get_linestyle() == "None"]
        assert len(marked) == 3
        for shown, advantage in zip(marked, (2.0, 1.0, -1.0), strict=True):
            x, y = shown.get_data()
            np.testing.assert_allclose(y, view(np.log(x), advantage), atol=1e-12)
            assert shown.get_markeredgecolor() == style.colour_of(advantage)
        assert len([x for x in axes.lines if len(x.get_xdata()) > 100]) == 3
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["$A = +2$", "$A = +1$", "$A = -1$"]
    assert legend.get_title().get_text() == "markers: the loss; lines: clip(eps=0.2)"


def test_a_probe_without_a_match_has_points_alone(tmp_path):
    figure = probe_picture(recovered(Clip()), None, "a loss")
    assert not [x for axes in figure.axes for x in axes.lines if len(x.get_xdata()) > 100]
    save(figure, tmp_path / "probe.png")


def test_a_wide_probe_is_cut_to_what_a_page_can_hold():
    w = np.exp(np.linspace(-4, 4, 161))
    shape = parse("dual-clip(cap=3)").initial
    advantages = (2.0, 1.0, 0.5, 0.3, 0.0, -0.3, -0.5, -1.0, -2.0)
    points = {a: (w, shape.multiplier(np.log(w), a)) for a in advantages}
    axes = probe_picture(points, shape, "a loss").axes[0]
    marked = [x.get_xdata() for x in axes.lines if x.get_linestyle() == "None"]
    assert len(marked) == 5
    for x in marked:
        assert x[-1] == pytest.approx(3.6, abs=0.2)  # beyond the cap
        assert np.diff(x).min() >= 3.5 / 45
    (only,) = (max(x.get_xdata()) for x in probe_picture({1.0: points[1.0]}, None, "").axes[0].lines
               if x.get_linestyle() == "None")  # fmt: skip
    assert only <= 2.0


def test_a_probe_of_nothing_is_an_error():
    with pytest.raises(KlipError, match="no recovered points"):
        probe_picture({}, Clip(), "a loss")
