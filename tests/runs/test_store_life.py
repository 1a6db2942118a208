"""A run's folder through any order of events."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from klip.errors import KlipError
from klip.runs import Damaged, RunFolder, read_run
from klip.runs.lock import is_locked
from klip.runs.store import METRICS, NEWEST, PREVIOUS
from tests.runs.folders import arrays, fields, make, row, same_arrays, text, where


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
