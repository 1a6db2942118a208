"""The folder of a run: what was saved is found again, what is damaged is said, nothing is lost."""

import json
import os
import shutil
from pathlib import Path

import pytest

from klip.runs import Damaged, DiskTrouble, RunFolder, folder_of, read_run
from klip.runs.checkpoint import decode
from klip.runs.lock import is_locked
from klip.runs.store import METRICS, NEWEST, PREVIOUS, TRACEBACK, slug
from tests.runs.folders import arrays, check, fields, flip, go_on, make, opened, text, where

HOSTILE = ("../../etc", "/root", "a\nb", "..", ".", "", "x" * 500, "<b>", "my.py:S(a=1)", "a\0b",
           "a\\b", "~", "ü/é", "-rf", "a\x1b[2J", "\udcff", "CON", "....//....//x")  # fmt: skip


def test_names_stay_below_their_folder():
    """Whatever a task, a shape or an id is called."""
    for hostile in HOSTILE:
        path = folder_of(Path("runs"), hostile, hostile, 0, hostile)
        assert path.parts[0] == "runs"
        assert len(path.parts) == 4
        assert not {".", "..", ""} & set(path.parts)
        assert str(path).isascii()
        assert str(path).isprintable()
        assert len(slug(hostile)) <= 80


def test_a_seed_is_a_number():
    with pytest.raises(ValueError, match="invalid literal"):
        folder_of(Path("runs"), "a", "b", "../0", "id")


def test_a_new_run(tmp_path):
    config = {**fields(), "hidden": (8,)}
    folder = RunFolder(where(tmp_path, fields()), config)
    assert folder.checkpoint is None
    assert folder.notes == []
    assert not folder.ended
    go_on(folder, 3, (3,))
    folder.close()
    assert sorted(p.name for p in folder.path.iterdir()) == [
        NEWEST, "config.json", "lock", METRICS, "status.json"
    ]  # fmt: skip
    status = json.loads((folder.path / "status.json").read_text())
    assert (status["status"], status["iteration"]) == ("running", 3)


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    """Rows since then are trained again, with no word about it; the file is never longer."""
    path = make(tmp_path, until=5, saves=(2, 4))
    assert (path / METRICS).read_bytes() == text(5)
    folder = opened(path)
    check(folder, 4)
    assert folder.notes == []
    go_on(folder, 6, (6,))
    folder.close()
    assert (path / METRICS).read_bytes() == text(6)
    again = opened(path)
    check(again, 6)
    again.close()


def test_half_a_row_is_cut_back(tmp_path):
    path = make(tmp_path, until=5)
    with (path / METRICS).open("ab") as file:
        file.write(b'{"iteration": 6, "st')
    folder = opened(path)
    check(folder, 4)
    assert folder.notes == []
    folder.close()


@pytest.mark.parametrize("how", ["flipped", "cut", "zero", "missing", "foreign", "shuffled"])
def test_metrics_are_restored_from_the_checkpoint(tmp_path, how):
    path = make(tmp_path)
    file = path / METRICS
    if how == "flipped":
        flip(file, 10)
    elif how == "cut":
        file.write_bytes(text(4)[:-1])
    elif how == "zero":
        file.write_bytes(b"")
    elif how == "missing":
        file.unlink()
    elif how == "foreign":
        shutil.copy(make(tmp_path, fields(seed=1)) / METRICS, file)
    else:
        file.write_bytes(b"".join(text(4).splitlines(keepends=True)[::-1]))
    folder = opened(path)
    check(folder, 4)
    (note,) = folder.notes
    assert "restored" in note
    go_on(folder, 5, (5,))
    folder.close()
    assert note in read_run(path).history
    assert note in json.loads((path / "status.json").read_text())["history"]
    assert (path / METRICS).read_bytes() == text(5)


HARMS = ["flipped", "cut", "zero", "foreign", "folder", "pipe"]


def harm(path, how, other):
    if how == "flipped":
        flip(path, len(path.read_bytes()) // 2)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "zero":
        path.write_bytes(b"")
    elif how == "foreign":
        shutil.copy(other / path.name, path)
    elif how == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.unlink()
        os.mkfifo(path)


@pytest.mark.parametrize("how", HARMS)
def test_the_previous_checkpoint_is_used(tmp_path, how):
    """The damaged one is set aside, and that is said, and stays recorded."""
    path, other = make(tmp_path), make(tmp_path, fields(seed=1))
    harm(path / NEWEST, how, other)
    bad = (path / NEWEST).read_bytes() if how in HARMS[:4] else None
    folder = opened(path)
    check(folder, 2)
    aside = path / f"{NEWEST}.damaged-1"
    assert aside.exists()
    assert bad is None or aside.read_bytes() == bad
    first, second = folder.notes
    assert f"{path / NEWEST} cannot be" in first
    assert f"set aside as {aside.name}" in first
    assert second == f"it goes on from {PREVIOUS}, iteration 2"
    go_on(folder, 3, (3,))
    folder.close()
    again = opened(path)
    check(again, 3)
    assert again.notes == []
    assert again.history == (first, second)
    again.close()


def test_what_was_set_aside_is_said_even_if_the_run_was_killed_then(tmp_path):
    """It is recorded in the next checkpoint, whoever makes it."""
    path = make(tmp_path)
    flip(path / NEWEST)
    opened(path).close()
    folder = opened(path)
    check(folder, 2)
    assert f"{NEWEST}.damaged-1 was set aside earlier" in folder.notes
    go_on(folder, 3, (3,))
    folder.close()
    again = opened(path)
    assert again.notes == []
    again.close()


def test_files_set_aside_are_never_overwritten(tmp_path):
    path = make(tmp_path)
    for k in range(3, 7):
        flip(path / NEWEST)
        folder = opened(path)
        go_on(folder, k, (k,))
        folder.close()
        if k == 5:
            (path / f"{NEWEST}.damaged-1").unlink()
            kept = (path / f"{NEWEST}.damaged-2").read_bytes()
    assert (path / f"{NEWEST}.damaged-2").read_bytes() == kept
    assert len(list(path.glob("*.damaged-*"))) == 3


def test_both_checkpoints_damaged(tmp_path):
    """It does not begin again by itself, however often it is asked, and keeps all files."""
    path = make(tmp_path)
    for name in (NEWEST, PREVIOUS):
        flip(path / name)
    bad = {(path / name).read_bytes() for name in (NEWEST, PREVIOUS)}
    kept = (path / METRICS).read_bytes()
    for attempt in range(3):
        with pytest.raises(Damaged, match="--start-over") as caught:
            opened(path)
        assert str(path) in str(caught.value)
        if attempt == 0:
            assert str(caught.value).count("does not match its checksum; it was set aside as") == 2
        assert {p.read_bytes() for p in path.glob("*.damaged-*")} == bad
        assert (path / METRICS).read_bytes() == kept
        assert read_run(path).status == "damaged"
        assert not is_locked(path)
    folder = opened(path, start_over=True)
    assert folder.checkpoint is None
    assert any("begins again" in note for note in folder.notes)
    assert {p.read_bytes() for p in path.glob("*.damaged-*")} == bad
    go_on(folder, 4, (2, 4))
    folder.close()
    assert (path / METRICS).read_bytes() == text(4)
    history = read_run(path).history
    assert any("begins again" in line for line in history)
    for aside in path.glob("*.damaged-*"):
        assert any(aside.name in line for line in history)
    again = opened(path)
    check(again, 4)
    assert again.notes == []
    again.close()


def test_both_checkpoints_gone(tmp_path):
    """Its status says that there were some: that is no new run."""
    path = make(tmp_path)
    for name in (NEWEST, PREVIOUS):
        (path / name).unlink()
    with pytest.raises(Damaged, match="--start-over"):
        opened(path)
    assert read_run(path).status == "damaged"
    opened(path, start_over=True).close()


def test_starting_over_is_for_damaged_runs_only(tmp_path):
    """One that can go on does."""
    path = make(tmp_path)
    folder = opened(path, start_over=True)
    check(folder, 4)
    assert folder.notes == []
    folder.close()
    flip(path / NEWEST)
    folder = opened(path, start_over=True)
    check(folder, 2)
    folder.close()


def test_a_run_that_stopped_before_its_first_checkpoint(tmp_path):
    path = make(tmp_path, until=3, saves=())
    folder = opened(path)
    assert folder.checkpoint is None
    (note,) = folder.notes
    assert "before its first checkpoint" in note
    assert (path / METRICS).read_bytes() == b""
    go_on(folder, 1, (1,))
    folder.close()
    assert read_run(path).history == [note]


class Killed(BaseException):
    """The process ends here."""


def killed_at(monkeypatch, folder, call):
    """Save, but the process is killed when it renames for the n-th time; -1: before its sync."""
    real, calls = os.replace, []

    def replace(*args):
        calls.append(args)
        if len(calls) == call:
            raise Killed
        real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(Killed):
            folder.save(6, arrays(fields(), 6))
    folder.close()


@pytest.mark.parametrize(("call", "stands"), [(1, 4), (2, 4), (3, 6)])
def test_killed_while_saving(tmp_path, monkeypatch, call, stands):
    """Before the old one is put away, before the new one is in place, before its status is."""
    path = make(tmp_path)
    folder = opened(path)
    go_on(folder, 6)
    killed_at(monkeypatch, folder, call)
    assert (path / NEWEST).exists() == (call != 2)
    assert read_run(path).iteration == stands
    assert read_run(path).notes == []
    again = opened(path)
    check(again, stands)
    assert again.notes == []
    go_on(again, 7, (7,))
    again.close()
    assert read_run(path).iteration == 7


def test_killed_at_the_very_first_save(tmp_path, monkeypatch):
    """Only a part of a file is there: that is not believed, and nothing was safe."""
    path = make(tmp_path, until=6, saves=())
    folder = opened(path)
    go_on(folder, 6)
    killed_at(monkeypatch, folder, 1)
    assert list(path.glob(f".{NEWEST}.*.part"))
    again = opened(path)
    assert again.checkpoint is None
    go_on(again, 2, (2,))
    again.close()
    assert not list(path.glob(f".{NEWEST}.*.part"))


def test_the_last_two_are_kept(tmp_path):
    folder = opened(where(tmp_path, fields()))
    for k in range(1, 5):
        go_on(folder, k, (k,))
        assert decode((folder.path / NEWEST).read_bytes()).iteration == k
        if k > 1:
            assert decode((folder.path / PREVIOUS).read_bytes()).iteration == k - 1
    folder.close()
    assert len(list(folder.path.glob("*.safetensors"))) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\0", b'{"task": "../../x"}'])
def test_a_damaged_config_is_written_anew(tmp_path, content):
    path = make(tmp_path)
    right = (path / "config.json").read_bytes()
    (path / "config.json").write_bytes(content)
    folder = opened(path)
    check(folder, 4)
    assert (path / "config.json").read_bytes() == right
    (note,) = folder.notes
    assert "config.json was damaged" in note
    go_on(folder, 5, (5,))
    folder.close()
    assert read_run(path).history == [note]


def test_a_config_that_cannot_be_written_is_no_traceback(tmp_path):
    path = make(tmp_path)
    (path / "config.json").unlink()
    (path / "config.json").mkdir()
    with pytest.raises(DiskTrouble, match=r"config\.json"):
        opened(path)
    assert not is_locked(path)


def test_a_traceback_is_kept_until_there_is_none(tmp_path):
    folder = RunFolder(where(tmp_path, fields()), fields())
    folder.keep_traceback("")
    assert not (folder.path / TRACEBACK).exists()
    folder.keep_traceback("it broke\n\udcff")
    assert (folder.path / TRACEBACK).read_text() == "it broke\n\\udcff"
    folder.keep_traceback("")
    assert not (folder.path / TRACEBACK).exists()
    folder.close()


def test_how_a_run_is_computed_is_no_part_of_what_it_is(tmp_path):
    """It goes on with other processes in its place, and nothing was damaged."""
    path = make(tmp_path, fields())
    folder = RunFolder(path, {**fields(), "processes": 2})
    assert folder.notes == []
    assert folder.checkpoint.iteration == 4
    folder.close()
    assert json.loads((path / "config.json").read_text())["processes"] == 2
    assert read_run(path).config == fields()  # as its checkpoint has it
    (path / "config.json").write_text("{}")
    folder = RunFolder(path, fields())
    assert folder.notes == ["config.json was damaged, and was written anew"]
    folder.close()
