"""A full disk, a read-only one, two commands at once, Ctrl-C and SIGTERM: nothing is lost.

Whatever happens on the way, the same command in the end leaves the bytes of a run to which
nothing happened.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from klip.cli import main
from klip.runs import read_run, run_paths
from klip.runs.lock import is_locked

KLIP = [str(Path(sys.executable).with_name("klip"))]
SMALL = ["train", "CartPole-v1", "--seeds", "2", "--workers", "1", "--envs", "2", "--rollout", "16",
         "--steps", str(32 * 200), "--minibatch", "16", "--epochs", "1", "--hidden", "8",
         "--checkpoint-every", "0.1"]  # fmt: skip


def start(*args):
    """The command in a session of its own, as from a terminal."""
    return subprocess.Popen(
        [*KLIP, *map(str, args)], start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process):
    """Its exit code and all it said; nothing of it is left, and it never shows a traceback."""
    out, err = process.communicate(timeout=300)
    said = out + err
    assert "Traceback" not in said, said
    assert "mistake in Klip" not in said, said
    deadline = time.monotonic() + 60
    while left := in_session(process.pid):
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.05)
    return process.returncode, said


def in_session(session):
    """Processes that belong to a session and are not just waiting to be reaped."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, owner = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(owner) == session and state != "Z":
            found.append(int(path.parent.name))
    return found


def wait_for(condition, process):
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it never came so far"
        time.sleep(0.005)


def rows(out):
    """How many rows there are, over all runs."""
    return sum(p.read_bytes().count(b"\n") for p in out.glob("*/*/*/metrics.jsonl"))


def content(out):
    """What runs trained to: metrics in bytes, arrays by their hash."""
    return {
        str(path.relative_to(out)): ((path / "metrics.jsonl").read_bytes(), read_run(path).digest())
        for path in run_paths(out)
    }


@pytest.fixture(scope="module")
def true(tmp_path_factory):
    """The runs to which nothing happened."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert main([*SMALL, "--out", str(out)]) == 0
    found = content(out)
    assert len(found) == 2
    return SimpleNamespace(out=out, content=found)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, with a function that changes how it is mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options):
        done = subprocess.run(["mount", *options, folder], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")

    try:
        mount("-t", "tmpfs", "-o", "size=192k", "tmpfs")
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    try:
        yield folder, lambda options: mount("-o", f"remount,{options}")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk(small_disk, true):
    """In the middle of training: a line, exit code 1, the checkpoints whole; then it goes on."""
    folder, remount = small_disk
    code, said = finish(start(*SMALL, "--out", folder))
    assert code == 1
    assert "the disk is full" in " ".join(said.split())
    records = [read_run(path) for path in run_paths(folder)]
    assert {record.status for record in records} == {"stopped"}
    for record in records:
        before = true.content[str(record.path.relative_to(folder))][0]
        assert 0 < record.iteration < 200
        assert list(record.notes) == []
        safe = b"".join(before.splitlines(keepends=True)[: record.iteration])
        assert (record.path / "metrics.jsonl").read_bytes().startswith(safe)
    remount("size=16m")
    code, said = finish(start(*SMALL, "--out", folder))
    assert code == 0, said
    assert content(folder) == true.content


def test_a_read_only_folder(small_disk, true, capsys):
    """Training says so in a line; listing does not need to write."""
    folder, remount = small_disk
    remount("size=16m")
    done, _ = (true.out / name for name in sorted(true.content))
    shutil.copytree(done, folder / done.relative_to(true.out))
    before = content(folder)
    remount("ro")
    code, said = finish(start(*SMALL, "--out", folder))
    assert code == 1
    assert "read-only: give another folder with --out" in " ".join(said.split())
    assert content(folder) == before
    assert main(["runs", str(folder)]) == 0
    assert "100%" in capsys.readouterr().out


def test_ctrl_c_while_it_is_still_being_loaded(tmp_path):
    process = start(*SMALL, "--out", tmp_path / "runs")
    wait_for(lambda: "numpy" in Path(f"/proc/{process.pid}/maps").read_text(), process)
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process)[0] in (130, -signal.SIGINT)  # to a shell both are 130
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_while_its_worker_is_still_being_loaded(tmp_path):
    process = start(*SMALL, "--out", tmp_path / "runs")
    wait_for(lambda: len(in_session(process.pid)) > 1, process)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    code, said = finish(process)
    assert code == 130
    assert "saving the runs" in said


def test_interrupted_again_and_again(tmp_path, true):
    """By Ctrl-C, by SIGTERM, by Ctrl-C twice; then there are two commands at once."""
    out = tmp_path / "runs"
    command = [*SMALL, "--out", out]
    # in the middle
    seen = 0
    for number, code, name in ((signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")):
        process = start(*command)
        wait_for(lambda target=seen + 40: rows(out) > target, process)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        returned, said = finish(process)
        assert returned == code
        assert f"{name}: saving the runs" in said
        records = [read_run(path) for path in run_paths(out)]
        assert {record.status for record in records} == {"stopped"}
        seen = sum(record.iteration for record in records)
        assert rows(out) == seen  # all was saved that was trained
    # twice in a row: it does not wait, and what is saved stays
    process = start(*command)
    wait_for(lambda: rows(out) > seen + 40, process)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.01)
    assert finish(process)[0] == 130
    records = [read_run(path) for path in run_paths(out)]
    assert sum(record.iteration for record in records) >= seen
    # two at once: the second leaves the runs to the first, and says whose they are
    first = start(*command)
    paths = run_paths(out)
    wait_for(lambda: all(is_locked(path) for path in paths), first)
    os.killpg(first.pid, signal.SIGSTOP)  # so that it cannot be done before the second looks
    try:
        second = start(*command)
        code, said = finish(second)
    finally:
        os.killpg(first.pid, signal.SIGCONT)
    assert code == 1
    holders = [
        pid for pid in in_session(first.pid) if f"process {pid} on" in " ".join(said.split())
    ]
    assert len(holders) == 1, said
    code, said = finish(first)
    assert code == 0, said
    assert content(out) == true.content
