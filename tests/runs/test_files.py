"""Files are whole or not there, and the disk's troubles are a sentence with a way out."""

import errno
import fcntl
import hashlib
import os

import pytest

from klip.disk import operations
from klip.runs import DiskTrouble
from klip.runs.files import (
    digest_of,
    disk,
    folder_aside,
    of_json,
    put_folder,
    read_file,
    read_json,
    shown,
    write_whole,
)


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


def test_two_writers_at_once(tmp_path, monkeypatch):
    """Each has a file of its own, so neither takes the other's away."""
    path, sync = tmp_path / "page.html", operations.sync

    def meanwhile(handle):
        sync(handle)
        monkeypatch.setattr(operations, "sync", sync)
        write_whole(path, b"second")
        assert path.read_bytes() == b"second"

    monkeypatch.setattr(operations, "sync", meanwhile)
    write_whole(path, b"first")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["page.html"]


def test_what_the_killed_left_is_removed(tmp_path):
    """And what somebody is writing now is not, nor what is anybody else's."""
    path, now = tmp_path / "a", tmp_path / ".a.00000001.part"
    names = [".a.0123abcd.part", ".a.part", ".ab.0123abcd.part", ".a.x123abcd.part"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / ".a.89abcdef.part").mkdir()
    (tmp_path / ".a.89abcdef.part" / "policy").write_bytes(b"half")
    with now.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_whole(path, b"whole")
        assert sorted(os.listdir(tmp_path)) == sorted(["a", now.name, *names[1:]])


def test_folders_change_places(tmp_path, monkeypatch):
    path = tmp_path / "policy"
    for number, able in enumerate((True, True, False)):
        if not able:  # as on a system without such a step
            monkeypatch.setattr(operations, "exchange", lambda one, other: False)
        with folder_aside(path) as part:
            write_whole(part / "file", b"%d" % number)
            put_folder(part, path)
        assert (path / "file").read_bytes() == b"%d" % number
        assert os.listdir(tmp_path) == ["policy"]


def test_a_file_of_too_many_bytes_is_not_read(tmp_path):
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(OSError, match="3,221,225,472 bytes are more than the 100 it may have"):
        read_file(path, most=100)
    with pytest.raises(OSError, match="bytes are more than"):
        read_json(path)


@pytest.mark.parametrize("data", [b"[" * 10**6 * 2, b"[" * 9999, b"{", b"\xff", b"[[],[]"])
def test_json_that_is_none(data):
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        of_json(data)


def test_the_digest_of_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 400_000)
    assert digest_of(tmp_path / "a") == hashlib.sha256(b"abc" * 400_000).hexdigest()
    os.mkfifo(tmp_path / "pipe")
    for none in ("missing", "pipe", "."):
        assert digest_of(tmp_path / none) == ""
