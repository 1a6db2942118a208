import numpy as np
import pytest

from klip.draw import geometry, style
from klip.shapes import Clip, KLk1
from klip.theory.curves import along_ratio


def line(axes, colour):
    """The data of the longest line of a colour: connectors and guides are short."""
    lines = [x for x in axes.lines if x.get_color() == colour]
    return max(lines, key=lambda x: len(x.get_xdata())).get_data()


def clipped_step(w, advantage):
    """m/w of PPO-Clip, written down without the library."""
    killed = (w > 1.2) if advantage > 0 else (w < 0.8)
    return np.where(killed, 0.0, advantage)


def between_jumps(x, y):
    inside = np.isfinite(y) & (np.abs(x - 1.2) > 1e-9) & (np.abs(x - 0.8) > 1e-9)
    return x[inside], y[inside]


def test_clip_function_is_the_clipped_ratio():
    x, y = line(geometry.clip_function().axes[0], "black")
    np.testing.assert_allclose(y, np.clip(x, 0.8, 1.2))


@pytest.mark.parametrize(("panel", "advantage"), [(0, 1.0), (1, -1.0)])
def test_surrogate_is_the_smaller_of_its_two_terms(panel, advantage):
    axes = geometry.surrogate().axes[panel]
    clipped, free = (x.get_ydata() for x in axes.lines if x.get_color() == "black")
    x, chosen = line(axes, style.colour_of(advantage))
    np.testing.assert_allclose(free, x * advantage)
    np.testing.assert_allclose(chosen, np.minimum(clipped, free))


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_multiplier_shows_the_step_and_the_smooth_branch(advantage):
    clip_axes, kl_axes = geometry.multiplier().axes
    x, y = between_jumps(*line(clip_axes, style.colour_of(advantage)))
    np.testing.assert_allclose(y, clipped_step(x, advantage))
    x, y = line(kl_axes, style.colour_of(advantage))
    np.testing.assert_allclose(y, advantage + geometry.B / x)


def test_the_marked_turn_is_where_the_negative_branch_vanishes():
    at = np.array([geometry.B])
    assert KLk1(b=geometry.B).effective_advantage(np.log(at), -1.0) == pytest.approx(0.0)


def test_the_morph_ends_in_ppo_clip():
    x, y = between_jumps(*line(geometry.morph().axes[2], style.POSITIVE))
    np.testing.assert_allclose(y, Clip(eps=geometry.EPS).effective_advantage(np.log(x), 1.0))


def test_the_morphs_middle_panel_is_one_family():
    lines = [x for x in geometry.morph().axes[1].lines if x.get_color() == style.POSITIVE]
    coefficients = [(y - 1.0) * x for x, y in (shown.get_data() for shown in lines)]
    assert [c[0] for c in coefficients] == pytest.approx([1.0, 0.5, 0.25])
    for c in coefficients:
        np.testing.assert_allclose(c, c[0])


def test_the_step_is_a_gap_and_not_a_slope():
    x, y = line(geometry.morph().axes[2], style.POSITIVE)
    (gap,) = np.flatnonzero(np.isnan(y))
    assert x[gap - 1] == x[gap] == x[gap + 1] == pytest.approx(1.2)
    assert (y[gap - 1], y[gap + 1]) == pytest.approx((1.0, 0.0))


def test_beta_map_is_minus_wa_on_kill_alone():
    image = geometry.beta_map().axes[0].images[0]
    beta = np.asarray(image.get_array())
    left, right, bottom, top = image.get_extent()
    w = np.linspace(left, right, beta.shape[1])[None, :]
    advantage = np.linspace(bottom, top, beta.shape[0])[:, None]
    killed = ((w > 1.2) & (advantage > 0)) | ((w < 0.8) & (advantage < 0))
    np.testing.assert_allclose(beta, np.where(killed, -w * advantage, 0.0), atol=1e-12)
    low, high = image.get_clim()
    assert low == -high


def test_the_three_parts_are_labelled_in_their_colours():
    texts = geometry.beta_map().axes[0].texts
    colours = [text.get_color() for text in texts]
    assert [colours.count(style.PARTITION[p]) for p in ("in", "kill", "pass")] == [2, 2, 2]
    for text in texts:
        x, y = text.get_position()
        killed = (x > 1.2 and y > 0) or (x < 0.8 and y < 0)
        assert killed == (text.get_color() == style.KILL)


def test_each_figure_is_written_in_each_format(tmp_path):
    written = geometry.figures(tmp_path / "figures", formats=("svg",))
    assert [path.stem for path in written] == list(geometry.FIGURES)
    assert all(path.read_text().startswith("<?xml") for path in written)


def test_a_ratio_axis_may_open_at_zero():
    assert np.isfinite(along_ratio(KLk1(), "multiplier", 1.0, (0.0, 2.0)).y).all()
