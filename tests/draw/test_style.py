import matplotlib
import pytest

from klip.draw import style
from klip.draw.geometry import beta_map, multiplier
from klip.errors import KlipError


def test_styled_replaces_the_readers_settings_and_gives_them_back():
    with matplotlib.rc_context({"lines.linewidth": 9.0, "axes.grid": True}):
        with style.styled():
            assert matplotlib.rcParams["lines.linewidth"] == 1.8
            assert matplotlib.rcParams["axes.grid"] is False
        assert matplotlib.rcParams["lines.linewidth"] == 9.0
        assert matplotlib.rcParams["axes.grid"] is True


def test_the_backend_is_left_alone():
    assert not [key for key in style.SETTINGS if key.startswith("backend")]


def test_no_figure_reaches_pyplot():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    multiplier()
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_figure_is_the_same_bytes(tmp_path, suffix):
    first, second = tmp_path / f"first.{suffix}", tmp_path / f"second.{suffix}"
    style.save(beta_map(), first)
    with matplotlib.rc_context({"svg.hashsalt": "another", "font.size": 30, "savefig.dpi": 10}):
        style.save(beta_map(), second)
    assert first.read_bytes() == second.read_bytes()


def test_a_figure_saved_twice_does_not_change(tmp_path):
    figure = multiplier()
    style.save(figure, tmp_path / "first.png")
    style.save(figure, tmp_path / "second.png")
    assert (tmp_path / "first.png").read_bytes() == (tmp_path / "second.png").read_bytes()


@pytest.mark.parametrize("name", ["clip.gif", "clip", "clip.PNGG"])
def test_another_suffix_is_named_with_the_ones_there_are(tmp_path, name):
    with pytest.raises(KlipError, match=r"\.png, \.svg or \.pdf") as raised:
        style.save(multiplier(), tmp_path / name)
    assert name in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_suffix_may_be_in_capitals_and_a_folder_new(tmp_path):
    path = tmp_path / "new" / "clip.PNG"
    style.save(multiplier(), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_folder_that_cannot_be_written_is_a_plain_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(KlipError, match="choose a folder that you may write to"):
        style.save(multiplier(), tmp_path / "file" / "clip.png")


def test_each_sign_has_its_colour():
    colours = [style.colour_of(a) for a in (2.0, -0.1, 0.0)]
    assert colours == [style.POSITIVE, style.NEGATIVE, style.NEUTRAL]
    assert len({*colours, style.KILL, style.PASS, style.IN}) == 6


def test_no_penalty_has_no_colour():
    assert style.BETA_MAP(0.5)[:3] == pytest.approx((1.0, 1.0, 1.0), abs=0.02)


def test_a_notebook_shows_a_figure_without_pyplot():
    drawn = style.figure(2, 1)
    assert drawn._repr_png_().startswith(b"\x89PNG")
