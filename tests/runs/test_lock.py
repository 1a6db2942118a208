"""One process at a time trains a run; when it ends, however it ends, the run is free."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from klip.runs import Busy, DiskTrouble
from klip.runs import lock as lock_module
from klip.runs.lock import Lock, held, is_locked


def test_taken_and_let_go(tmp_path):
    assert not is_locked(tmp_path)
    lock = Lock(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(Busy, match=f"process {os.getpid()} on "):
        Lock(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)
    Lock(tmp_path).release()


def test_reading_does_not_make_a_lock(tmp_path):
    is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_it_is_gone_with_its_process(tmp_path):
    """Killed without warning, the file stays and the lock does not."""
    code = (
        "import sys, time; from pathlib import Path; from klip.runs.lock import Lock; "
        "lock = Lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            assert is_locked(tmp_path)
            with pytest.raises(Busy, match=f"process {holder.pid} on "):
                Lock(tmp_path)
        finally:
            holder.kill()
    assert (tmp_path / "lock").exists()
    assert not is_locked(tmp_path)
    Lock(tmp_path).release()
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_looking_does_not_keep_others_from_taking_it(tmp_path):
    """`is_locked` holds it for an instant: a trainer must not take that for another trainer."""
    (tmp_path / "lock").touch()
    stop = threading.Event()

    def look():
        while not stop.is_set():
            is_locked(tmp_path)

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(100):
            Lock(tmp_path).release()
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"pid": Infinity, "host": 1}', b'{"pid": "x", "host": "y"}', b"\xff",
     b"[" * 9999],
)  # fmt: skip
def test_whoever_holds_it(tmp_path, content):
    """What stands in the file is only for the message."""
    lock = Lock(tmp_path)
    (tmp_path / "lock").write_bytes(content)
    with pytest.raises(Busy, match="by another process"):
        Lock(tmp_path)
    lock.release()


def test_a_hostile_host_is_escaped(tmp_path):
    lock = Lock(tmp_path)
    (tmp_path / "lock").write_text(json.dumps({"pid": 7, "host": "\x1b[2J\n"}))
    with pytest.raises(Busy, match="process 7 on") as caught:
        Lock(tmp_path)
    assert str(caught.value).isprintable()
    lock.release()


def test_no_handle_is_left_open(tmp_path):
    """Neither by refusals nor by looking nor by a lock that is none."""
    lock = Lock(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(Busy):
            Lock(tmp_path)
        is_locked(tmp_path)
    os.mkdir(tmp_path / "b")
    os.mkfifo(tmp_path / "b" / "lock")
    assert not is_locked(tmp_path / "b")
    with pytest.raises(DiskTrouble):
        Lock(tmp_path / "b")
    assert len(os.listdir("/proc/self/fd")) == before
    lock.release()


@pytest.mark.filterwarnings("ignore:os.fork")  # JAX says so where it is loaded
def test_a_forked_process_does_not_hold_it(tmp_path):
    """An environment may fork, and its child may live on."""
    lock = Lock(tmp_path)
    (ours, theirs), (ready, said) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(theirs)
        os.write(said, b".")
        os.read(ours, 1)  # until the parent lets it go
        os._exit(0)
    try:
        os.read(ready, 1)
        assert is_locked(tmp_path)  # the child has closed its copy, not ours
        lock.release()
        assert not is_locked(tmp_path)
        Lock(tmp_path).release()
    finally:
        for each in (theirs, ours, ready, said):
            os.close(each)
        os.waitpid(child, 0)


def ended_process():
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    return gone.pid


def test_whoever_is_named_is_alive(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "PATIENCE", 0.0)
    lock = Lock(tmp_path)
    about = json.loads((tmp_path / "lock").read_text())
    (tmp_path / "lock").write_text(json.dumps({**about, "pid": ended_process()}))
    with pytest.raises(Busy, match="which has ended, has left behind"):
        Lock(tmp_path)
    lock.release()


def test_a_process_whose_parent_was_killed_is_waited_for(tmp_path):
    """It saves its runs and ends: the same command again need not say that they are busy."""
    lock = Lock(tmp_path)
    about = json.loads((tmp_path / "lock").read_text())
    assert about["parent"] == os.getppid()
    (tmp_path / "lock").write_text(json.dumps({**about, "parent": ended_process()}))
    saved = threading.Timer(0.6, lock.release)
    saved.start()
    Lock(tmp_path).release()
    saved.join()


STARTS = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', *sys.argv[1:]]).wait()"
HOLDS = """
import os, sys, time
from pathlib import Path
from klip.runs.lock import Lock
parent = os.getppid()
print("ready", flush=True)
while os.getppid() == parent:
    time.sleep(0.01)
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_names_the_parent_that_was_killed_before_it_was_taken(tmp_path):
    """So whoever starts the same again waits for its holder, which is about to end."""
    command = [sys.executable, "-c", STARTS, HOLDS, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as parent:
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
        parent.wait()
        assert parent.stdout.readline() == "held\n"
        assert json.loads((tmp_path / "lock").read_text())["parent"] == parent.pid
        parent.stdin.close()
        Lock(tmp_path).release()


def test_a_folder_is_held_by_one_at_a_time(tmp_path):
    order = []

    def second():
        with held(tmp_path):
            order.append("second")

    with held(tmp_path):
        other = threading.Thread(target=second)
        other.start()
        time.sleep(0.2)
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert list(tmp_path.iterdir()) == []
