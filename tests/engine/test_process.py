"""Processes of ours: what they are born with, and what they are not."""

import json
import os
import signal
import sys
from multiprocessing import Pipe

import pytest

from klip.engine import process
from klip.engine.process import Process, import_path

SAYS = """
import json, os, signal, sys
from multiprocessing.connection import Connection

def main(handle):
    pipe = Connection(handle)
    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    about = [sys.path, blocked, os.environ.get("OWN"), sys.stdin.read(), pipe.recv_bytes().decode()]
    pipe.send_bytes(json.dumps(about).encode())
    pipe.recv_bytes()
"""


@pytest.fixture
def says(tmp_path, monkeypatch):
    """A module that says how its process was started."""
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "klip_says.py").write_text(SAYS)
    monkeypatch.syspath_prepend(str(folder))
    return "klip_says"


def test_what_a_process_is_born_with(says):
    """The parent's path, an environment of its own, no Ctrl-C, nothing to read but the pipe."""
    child = Process(says, {"OWN": "yes"})
    child.pipe.send_bytes(b"hello")
    path, blocked, own, read, heard = json.loads(child.pipe.recv_bytes())
    assert path == import_path()
    assert (blocked, own, read, heard) == (True, "yes", "", "hello")
    assert "OWN" not in os.environ
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert child.exit_code is None
    child.kill()
    assert child.exit_code == -signal.SIGKILL


def test_it_ends_with_its_parent(says):
    """The pipe closes, however the parent goes."""
    child = Process(says)
    child.pipe.send_bytes(b"hello")
    child.pipe.recv_bytes()
    child.pipe.close()
    assert child._popen.wait(60) == 1  # it meets the end of the pipe


@pytest.mark.parametrize("entry", ["", ".", "{}", "{}/link"])
def test_the_working_folder_is_not_on_its_path(tmp_path, monkeypatch, entry):
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "path", [entry.format(tmp_path), *sys.path])
    found = import_path()
    assert not {str(tmp_path), str(tmp_path / "link"), "", "."} & set(found)
    assert found == list(dict.fromkeys(map(os.path.abspath, sys.path[1:])))


def test_unless_the_user_put_it_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert import_path()[0] == str(tmp_path)


def test_klip_is_found_where_it_was(tmp_path, monkeypatch):
    """In a checkout that is not installed it is in the working folder: after all libraries."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(process._HOME)
    monkeypatch.setattr(sys, "path", ["", "/lib"])
    assert import_path() == ["/lib", process._HOME]


@pytest.mark.filterwarnings("ignore:os.fork")  # JAX says so where it is loaded
def test_nothing_that_is_forked_or_started_has_our_end_of_the_pipe():
    """Or what an environment leaves behind would keep the parent waiting for news of the dead."""
    ours, theirs = Pipe()
    mine = process.parents_pipe(os.dup(theirs.fileno()))
    theirs.close()
    assert not os.get_inheritable(mine.fileno())
    (hold, let_go), (ready, said) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(let_go)
        os.write(said, b".")
        os.read(hold, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        mine.close()
        assert ours.poll(10)
        with pytest.raises(EOFError):
            ours.recv_bytes()
    finally:
        for each in (let_go, hold, ready, said):
            os.close(each)
        os.waitpid(child, 0)
