"""A run's folder under other versions, two owners, and disks that are full or read-only."""

import errno
import os
import zlib

import pytest

import klip.runs.store
from klip.runs import Busy, ChangedMachine, DiskTrouble, read_run
from klip.runs.checkpoint import decode, encode
from klip.runs.lock import is_locked
from klip.runs.store import METRICS, NEWEST, Deflate
from tests.runs.folders import (
    arrays,
    check,
    fields,
    flip,
    go_on,
    make,
    opened,
    where,
)


def test_other_versions_are_refused(tmp_path, monkeypatch):
    path = make(tmp_path)
    here = klip.runs.store.this_machine()
    with monkeypatch.context() as patch:
        other = {**here, "jax": "99.1", "cpu": "abacus\x1b"}
        patch.setattr(klip.runs.store, "this_machine", lambda libraries: other)
        with pytest.raises(ChangedMachine, match="--accept-changes") as caught:
            opened(path)
    message = str(caught.value)
    assert "jax none -> 99.1" in message
    assert "abacus" in message
    assert "numpy" not in message
    assert message.isprintable()
    assert not is_locked(path)
    folder = opened(path)  # back under the old ones nothing has happened
    check(folder, 4)
    assert folder.notes == []
    folder.close()


def test_other_versions_are_accepted_and_recorded(tmp_path, monkeypatch):
    path = make(tmp_path)
    here = dict(klip.runs.store.this_machine())
    other = {**here, "jax": "99.1"}
    monkeypatch.setattr(klip.runs.store, "this_machine", lambda libraries: other)
    folder = opened(path, accept_changes=True)
    check(folder, 4)
    (note,) = folder.notes
    assert "jax" in note
    assert "iteration 4" in note
    go_on(folder, 6, (6,))
    folder.close()
    record = read_run(path)
    assert record.machines == ({"since": 0, **here}, {"since": 4, **other})
    assert record.history == [note]
    again = opened(path)  # it is now used to them
    assert again.notes == []
    assert again.machines == record.machines
    again.close()


@pytest.mark.parametrize("status", ["done", "diverged"])
def test_a_finished_run_is_read_under_any_versions(tmp_path, monkeypatch, status):
    path = make(tmp_path, until=4, status=status, reason="why")
    monkeypatch.setattr(klip.runs.store, "this_machine", lambda libraries: {"jax": "99.1"})
    folder = opened(path)
    assert folder.ended
    assert folder.notes == []
    check(folder, 4)
    folder.close()
    assert (read_run(path).status, read_run(path).reason) == (status, "why")


def test_a_failed_run_is_tried_again(tmp_path):
    path = make(tmp_path, until=4, status="failed", reason="the environment broke")
    folder = opened(path)
    assert not folder.ended
    check(folder, 4)
    folder.close()


def test_damage_found_under_other_versions_is_not_forgotten(tmp_path, monkeypatch):
    """The newest is set aside, then it is refused for its versions: what comes after tells both."""
    path = make(tmp_path)
    flip(path / NEWEST)
    with monkeypatch.context() as patch:
        patch.setattr(klip.runs.store, "this_machine", lambda libraries: {"jax": "99.1"})
        with pytest.raises(ChangedMachine):
            opened(path)
    folder = opened(path)
    check(folder, 2)
    assert any(f"{NEWEST}.damaged-1" in note for note in folder.notes)
    folder.close()


# -- locks and disks ------------------------------------------------------------------------------


def test_two_at_once(tmp_path):
    path = make(tmp_path)
    before = {p: p.read_bytes() for p in path.iterdir() if p.name != "lock"}
    folder = opened(path)
    with pytest.raises(Busy, match=f"process {os.getpid()} "):
        opened(path)
    go_on(folder, 5)
    assert is_locked(path)
    folder.close()
    assert not is_locked(path)
    assert {p: p.read_bytes() for p in path.iterdir() if p.name != "lock"} == before


def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("module", "name"),
    [(os, "write"), (os, "fsync"), (os, "replace"), (os, "ftruncate"), (os, "mkdir")],
)
def test_a_disk_that_is_full_on_opening(tmp_path, monkeypatch, module, name):
    """The lock is let go, and once there is space it goes on."""
    config = fields()
    path = where(tmp_path, config)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, full)
        with pytest.raises(DiskTrouble, match="disk is full"):
            opened(path)
    assert not is_locked(path)
    assert not list(path.glob(".*.part"))
    opened(path).close()


def test_a_disk_that_is_full_on_saving(tmp_path, monkeypatch):
    """What was saved before still is, and the same folder can be saved once there is space."""
    path = make(tmp_path)
    folder = opened(path)
    go_on(folder, 6)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskTrouble, match="disk is full"):
            folder.save(6, arrays(fields(), 6))
    assert folder.checkpoint.iteration == 4
    assert read_run(path).iteration == 4
    assert not list(path.glob(".*.part"))
    folder.save(6, arrays(fields(), 6))
    folder.close()
    again = opened(path)
    check(again, 6)
    again.close()


def test_a_disk_that_takes_only_a_part_of_a_row(tmp_path, monkeypatch):
    """A write that is cut short is gone on with, not taken for whole."""
    folder = opened(where(tmp_path, fields()))
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: real(handle, data[:7]))
        go_on(folder, 3)
    folder.save(3, arrays(fields(), 3))
    folder.close()
    again = opened(folder.path)
    check(again, 3)
    assert again.notes == []
    again.close()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskTrouble, match="Not a directory"):
        opened(tmp_path / "file" / "run")


@pytest.mark.parametrize("name", ["lock", METRICS])
def test_links_are_not_followed(tmp_path, name):
    """Somebody's folder cannot make us write into a file elsewhere."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = where(tmp_path, fields())
    path.mkdir(parents=True)
    (path / name).symlink_to(victim)
    with pytest.raises(DiskTrouble):
        opened(path)
    assert victim.read_text() == "precious"
    assert not is_locked(path)


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    folder = opened(where(tmp_path, fields()))
    with pytest.raises(ValueError, match="JSON"):
        folder.append({"iteration": 1, "step": 1, "return_mean": float("nan")})
    assert (folder.path / METRICS).read_bytes() == b""
    folder.close()


def test_a_checkpoint_is_the_same_bytes_however_it_came_about(tmp_path):
    """Saved along the way or not, reopened or not."""
    one = make(tmp_path / "one", until=4, saves=(4,))
    two = make(tmp_path / "two", until=4, saves=(1, 2))
    folder = opened(two)
    go_on(folder, 4, (3, 4))
    folder.close()
    points = [decode((path / NEWEST).read_bytes()) for path in (one, two)]
    assert encode(points[0]) == encode(points[1])


def test_deflate_shows_what_it_has_without_being_disturbed():
    quiet, watched = Deflate(), Deflate()
    for k in range(50):
        line = f"line {k % 7} of some text\n".encode()
        quiet.add(line)
        watched.add(line)
        assert zlib.decompress(watched.so_far()).endswith(line)
    assert watched.so_far() == quiet.so_far()
