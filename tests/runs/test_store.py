"""The folder of a run: what was saved is found again, what is damaged is said, nothing is lost."""

import errno
import json
import os
import shutil
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import klip.runs.store
from klip.errors import KlipError
from klip.runs import Busy, ChangedMachine, Damaged, DiskTrouble, RunFolder, folder_of, read_run
from klip.runs.checkpoint import decode, encode
from klip.runs.lock import is_locked
from klip.runs.store import METRICS, NEWEST, PREVIOUS, Deflate, slug
from tests.runs.folders import arrays, fields, go_on, make, row, same_arrays, where

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


def opened(path, config=None, **options):
    return RunFolder(path, config or fields(), **options)


def text(until, config=None):
    """The metrics file up to an iteration."""
    rows = [row(config or fields(), k) for k in range(1, until + 1)]
    return "".join(json.dumps(r) + "\n" for r in rows).encode()


def check(folder, iteration, config=None):
    """It stands exactly where the truth was after so many iterations."""
    config = config or fields()
    assert folder.checkpoint.iteration == iteration
    assert same_arrays(folder.checkpoint.arrays, config, iteration)
    assert (folder.path / METRICS).read_bytes() == text(iteration, config)
    assert json.loads((folder.path / "config.json").read_text()) == config


def flip(path, place=-1):
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


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


HARMS = ["flipped", "cut", "zero", "foreign", "folder", "pipe"]


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
    assert (path / f".{NEWEST}.part").exists()
    again = opened(path)
    assert again.checkpoint is None
    go_on(again, 2, (2,))
    again.close()
    assert not (path / f".{NEWEST}.part").exists()


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


# -- other versions -------------------------------------------------------------------------------


def test_other_versions_are_refused(tmp_path, monkeypatch):
    path = make(tmp_path)
    here = klip.runs.store.this_machine()
    with monkeypatch.context() as patch:
        other = {**here, "jax": "99.1", "cpu": "abacus\x1b"}
        patch.setattr(klip.runs.store, "this_machine", lambda: other)
        with pytest.raises(ChangedMachine, match="--accept-changes") as caught:
            opened(path)
    message = str(caught.value)
    assert f"jax {here['jax']} -> 99.1" in message
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
    monkeypatch.setattr(klip.runs.store, "this_machine", lambda: other)
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
    monkeypatch.setattr(klip.runs.store, "this_machine", lambda: {"jax": "99.1"})
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
        patch.setattr(klip.runs.store, "this_machine", lambda: {"jax": "99.1"})
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


def test_a_disk_that_takes_only_a_part_of_a_row(tmp_path):
    """A write that is cut short is gone on with, not taken for whole."""
    folder = opened(where(tmp_path, fields()))
    real = folder._metrics

    class Nearly:
        def write(self, data):
            return real.write(data[:7])

    folder._metrics = Nearly()
    go_on(folder, 3)
    folder._metrics = real
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


@pytest.mark.parametrize("name", ["lock", METRICS, ".config.json.part"])
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


# -- any order of events --------------------------------------------------------------------------


@settings(max_examples=40, stateful_step_count=25)
class Life(RuleBasedStateMachine):
    """A run that is trained, saved, killed, damaged and reopened in any order.

    After reopening it stands at an iteration that was saved, with exactly its arrays and rows, the
    newest there was unless that was damaged; and then that was said.
    """

    def __init__(self):
        super().__init__()
        self.out = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self.config = fields(seed=3)
        self.other = make(self.out / "other", fields(seed=4))
        self.path = where(self.out, self.config)
        self.written: dict[bytes, int] = {}  # every checkpoint ever, by its bytes
        self.folder = RunFolder(self.path, self.config)
        self.now = 0

    def teardown(self):
        if self.folder:
            self.folder.close()
        shutil.rmtree(self.out)

    @precondition(lambda self: self.folder)
    @rule(rows=st.integers(1, 3))
    def train(self, rows):
        for k in range(self.now + 1, self.now + rows + 1):
            self.folder.append(row(self.config, k))
        self.now += rows

    @precondition(lambda self: self.folder)
    @rule()
    def save(self):
        self.folder.save(self.now, arrays(self.config, self.now))
        self.written[(self.path / NEWEST).read_bytes()] = self.now

    @precondition(lambda self: self.folder)
    @rule()
    def kill(self):
        self.folder.close()  # which saves nothing: the system does no less
        self.folder = None

    @precondition(lambda self: not self.folder)
    @rule(
        name=st.sampled_from([NEWEST, PREVIOUS, METRICS, "config.json", "status.json", "lock"]),
        how=st.sampled_from(["flip", "cut", "zero", "foreign", "append", "missing"]),
        place=st.floats(0, 1, exclude_max=True),
        byte=st.integers(1, 255),
    )
    def damage(self, name, how, place, byte):
        path = self.path / name
        data = bytearray(path.read_bytes()) if path.exists() else bytearray()
        at = int(place * len(data))
        if how == "missing":
            path.unlink(missing_ok=True)
            return
        if how == "flip" and data:
            data[at] ^= byte
        if how == "cut":
            data = data[:at]
        if how == "zero":
            data = bytearray()
        if how == "append":
            data.append(byte)
        if how == "foreign":
            data = bytearray((self.other / name).read_bytes())
        path.write_bytes(data)

    def stands(self, name):
        """Which iteration a file holds; None if it is damaged, -1 if it is not there."""
        path = self.path / name
        return self.written.get(path.read_bytes()) if path.exists() else -1

    @precondition(lambda self: not self.folder)
    @rule()
    def read(self):
        """Reading changes nothing and never breaks."""
        before = {p: p.read_bytes() for p in self.path.iterdir()}
        try:
            record = read_run(self.path)
        except KlipError:
            record = None
        assert {p: p.read_bytes() for p in self.path.iterdir()} == before
        good = [k for k in map(self.stands, (NEWEST, PREVIOUS)) if k is not None and k >= 0]
        assert record is not None or not good
        if record is not None:
            assert record.iteration == (good[0] if good else 0)
            assert record.rows == [row(self.config, k) for k in range(1, record.iteration + 1)]
            assert not good or same_arrays(record.arrays, self.config, good[0])
            assert record.notes or self.stands(NEWEST) is not None

    @precondition(lambda self: not self.folder)
    @rule()
    def reopen(self):
        newest, previous = self.stands(NEWEST), self.stands(PREVIOUS)
        good = [k for k in (newest, previous) if k is not None and k >= 0]
        metrics = (self.path / METRICS).read_bytes() if (self.path / METRICS).exists() else b""
        try:
            self.folder = RunFolder(self.path, self.config)
        except Damaged as error:
            refused = str(error)
            assert not good
            assert "--start-over" in refused
            assert not is_locked(self.path)
            self.folder = RunFolder(self.path, self.config, start_over=True)
            assert any("begins again" in note for note in self.folder.notes)
        point = self.folder.checkpoint
        told = "; ".join(self.folder.notes)
        if good:
            assert point.iteration == good[0]
            assert same_arrays(point.arrays, self.config, good[0])
        else:
            assert point is None
            assert "begins again" in told or not (self.written or metrics)
        self.now = good[0] if good else 0
        kept = text(self.now, self.config)
        assert (self.path / METRICS).read_bytes() == kept
        assert newest is not None or "set aside" in told
        if good:
            assert ("restored" in told) == (not metrics.startswith(kept))


TestLife = Life.TestCase
