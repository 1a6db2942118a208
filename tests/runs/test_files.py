"""Files are whole or not there, and the disk's troubles are a sentence with a way out."""

import errno
import os

import pytest

from klip.runs import DiskTrouble
from klip.runs.files import disk, read_file, shown, write_whole


def test_what_was_there_goes_to_keep(tmp_path):
    path, keep = tmp_path / "a", tmp_path / "b"
    write_whole(path, b"one", keep=keep)
    assert not keep.exists()
    write_whole(path, b"two", keep=keep)
    assert (path.read_bytes(), keep.read_bytes()) == (b"two", b"one")
    write_whole(path, b"three")
    assert (path.read_bytes(), keep.read_bytes()) == (b"three", b"one")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("name", ["fsync", "replace"])
@pytest.mark.parametrize("keep", [False, True])
def test_nothing_is_lost_when_it_cannot_be_written(tmp_path, monkeypatch, name, keep):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, name, full)
    with pytest.raises(DiskTrouble, match="free some space, then give the same command again"):
        write_whole(path, b"new", keep=tmp_path / "b" if keep else None)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_is_synced_before_it_takes_its_name(tmp_path, monkeypatch):
    """Else a power cut could leave the name with nothing in it."""
    order = []
    sync, put = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("sync"), sync(handle)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("name"), put(a, b)))
    write_whole(tmp_path / "a", b"one")
    assert order == ["sync", "name", "sync"]


@pytest.mark.parametrize(
    ("number", "way_out"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "--out"),
        (errno.EACCES, "--out"),
        (errno.EIO, "give the same command again"),
        (None, "give the same command again"),
    ],
)
def test_troubles_in_words(tmp_path, number, way_out):
    path = tmp_path / "a\x1b[2J\n"
    with pytest.raises(DiskTrouble, match=way_out) as caught, disk(path):
        raise OSError(number, "said so") if number else OSError()
    assert str(caught.value).isprintable()
    assert str(tmp_path) in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_only_troubles_of_the_disk_are_its(tmp_path):
    with pytest.raises(ValueError, match="mine"), disk(tmp_path):
        raise ValueError("mine")


def test_read_file(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    assert read_file(tmp_path / "a") == b"x"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, error in (("pipe", OSError), ("zero", OSError), ("none", FileNotFoundError)):
        with pytest.raises(error):
            read_file(tmp_path / name)


def test_shown():
    assert shown("a [b] <ü> 💥") == "a [b] <ü> 💥"
    hostile = "\x1b]0;title\x07\n\r\udcff\u202e\0"
    assert shown(hostile).isprintable()
    assert shown(hostile).encode()
    assert shown("\x1b") == r"\x1b"
