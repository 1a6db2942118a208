"""`klip compare` under SIGKILL: it comes to the same answer, and trains no run twice."""

import json
import os
import signal
import subprocess
import sys
import time

from klip.runs import read_run, run_paths

QUESTION = ("clip", "is", "--task", "CartPole-v1", "--steps", "2048", "--max-seeds", "8")


def compare(out, *more):
    line = [sys.executable, "-m", "klip", "compare", *QUESTION, "--out", str(out), "--json", *more]
    picture = ["--output", str(out.parent / "picture.svg")]
    return subprocess.Popen(
        [*line, *picture], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def done(out):
    """The runs that are done, and when their metrics were last written."""
    paths = run_paths(out) if out.exists() else []
    return {p: (p / "metrics.jsonl").stat().st_mtime_ns for p in paths if _is_done(p)}


def _is_done(path):
    try:
        return read_run(path).status == "done"
    except Exception:
        return False


def test_killed_and_asked_again(tmp_path):
    out = tmp_path / "runs"
    first = compare(out)
    for _ in range(1200):  # until some runs, not all, are done
        if len(done(out)) >= 4 or first.poll() is not None:
            break
        time.sleep(0.1)
    assert first.poll() is None, "it ended before it could be killed"
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    before = done(out)
    assert before
    again = compare(out)
    said = json.loads(again.communicate()[0])
    assert said["pairs"][0]["seeds"] == 8
    after = done(out)
    assert len(after) == 16
    assert {path: after[path] for path in before} == before
    whole = json.loads(compare(tmp_path / "whole" / "runs").communicate()[0])
    assert said == whole
