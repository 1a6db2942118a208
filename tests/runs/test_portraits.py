"""`shape.json`: written once, mended where it is damaged, and never believed if it is not whole."""

from klip.runs.portraits import PORTRAIT, keep_portrait, read_portrait
from klip.shapes import parse
from klip.theory.portrait import portrait, to_json

CONFIG = {"shape": "clip(eps=0.2)"}


def clip():
    return to_json(portrait(parse("clip"), profiled=False))


def test_it_is_written_once(tmp_path):
    keep_portrait(tmp_path, CONFIG, clip)
    drawn, trouble = read_portrait(tmp_path, CONFIG)
    assert (drawn.spelling, trouble) == ("clip(eps=0.2)", "")
    keep_portrait(tmp_path, CONFIG, lambda: 1 / 0)
    (tmp_path / PORTRAIT).write_bytes(clip()[:100])
    keep_portrait(tmp_path, CONFIG, clip)
    assert (tmp_path / PORTRAIT).read_bytes() == clip()


def test_what_is_missing_damaged_or_another_shapes_is_no_portrait(tmp_path):
    assert read_portrait(tmp_path, CONFIG) == (None, "")
    (tmp_path / PORTRAIT).write_bytes(clip().replace(b"PPO", b"OPP"))
    assert "shape.json is damaged" in read_portrait(tmp_path, CONFIG)[1]
    (tmp_path / PORTRAIT).write_bytes(clip())
    assert "not of its shape" in read_portrait(tmp_path, {"shape": "my.py:Mine()"})[1]
    (tmp_path / PORTRAIT).write_bytes(b" " * 2_000_000)
    assert "too large" in read_portrait(tmp_path, CONFIG)[1]
    (tmp_path / PORTRAIT).unlink()
    (tmp_path / PORTRAIT).mkdir()
    assert "cannot be read" in read_portrait(tmp_path, CONFIG)[1]


def test_a_link_is_replaced_and_not_written_through(tmp_path):
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / PORTRAIT).symlink_to(tmp_path / "elsewhere")
    keep_portrait(tmp_path, CONFIG, clip)
    assert (tmp_path / "elsewhere").read_text() == "mine"
    assert not (tmp_path / PORTRAIT).is_symlink()
