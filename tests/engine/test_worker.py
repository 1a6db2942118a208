"""A worker: its cores, on systems that can pin and on those that cannot, and its parent's end."""

import json
import os
import threading
from multiprocessing import Pipe
from pathlib import Path

import pytest

from klip.engine import worker
from klip.engine.advance import Keeping


@pytest.fixture
def elsewhere(monkeypatch):
    """A system that neither says nor takes which cores a process may use, such as macOS."""
    for name in ("sched_getaffinity", "sched_setaffinity"):
        monkeypatch.delattr(os, name, raising=False)


def test_the_cores_that_there_are(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 1}, raising=False)
    pinned = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda *how: pinned.append(how), raising=False)
    assert worker.cores() == [1, 3]
    worker.pin(3)
    assert pinned == [(0, {3})]


@pytest.mark.usefixtures("elsewhere")
def test_without_pinning(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert worker.cores() == [0, 1, 2]
    worker.pin(2)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert worker.cores() == [0]


def test_a_parent_that_is_gone_leaves_nothing_to_do(monkeypatch):
    trained = []
    monkeypatch.setattr(worker.signal, "signal", lambda *how: None)
    monkeypatch.setattr(worker, "advance", lambda *share: trained.append(share))
    ours, theirs = Pipe()
    ours.close()
    worker.main(os.dup(theirs.fileno()))
    theirs.close()
    assert trained == []


def test_a_parent_that_was_killed_while_it_started_leaves_nothing_to_do(monkeypatch):
    """Its share is in the pipe, but the command that sent it is given again: that one trains."""
    trained = []
    monkeypatch.setattr(worker.signal, "signal", lambda *how: None)
    monkeypatch.setattr(worker, "pin", lambda core: None)
    monkeypatch.setattr(worker, "advance", lambda *share: trained.append(share))
    monkeypatch.setattr(worker, "_listen", lambda *how: None)
    for parent in (os.getppid() + 1, os.getppid()):
        ours, theirs = Pipe()
        ours.send_bytes(json.dumps([[], Keeping(Path()).text, 0, parent]).encode())
        worker.main(os.dup(theirs.fileno()))
        assert len(trained) == (parent == os.getppid())
        ours.close()
        theirs.close()


def test_an_environment_that_hangs_does_not_keep_it_alive_after_its_parent(monkeypatch):
    """There is nobody left who could end it."""
    ended, stop = [], threading.Event()
    monkeypatch.setattr(worker, "GRACE", 0.05)
    monkeypatch.setattr(os, "_exit", ended.append)
    ours, theirs = Pipe()
    listening = threading.Thread(target=worker._listen, args=(theirs, stop))
    listening.start()
    ours.send_bytes(b"stop")
    assert stop.wait(10)
    assert not ended  # a parent that only asks to stop may end it itself
    ours.close()
    listening.join(10)
    assert ended == [1]
    theirs.close()
