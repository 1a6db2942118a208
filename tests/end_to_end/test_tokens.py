"""Token plans as everything else: run, killed, damaged, interrupted, resumed, listed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from klip.cli import main
from klip.engine import read_plan
from klip.engine.advance import Keeping
from klip.engine.job import with_needs
from klip.runs import read_run, run_paths
from klip.runs.store import METRICS, NEWEST, PREVIOUS

PLAN = """
kind = "tokens"
about = "Tiny."
seeds = 1

[config]
iterations = 12
prompts = 8
completions = 4
epochs = 3
minibatches = 2
learning_rate = 3e-3
evaluate_every = 4
held_out = 8
shown = 2

[config.warmup]
digits = 1
slip = 0.2
layers = 1
width = 32
heads = 2
steps = 250
batch = 64
learning_rate = 1e-2

[[runs]]
group = "position"
arms = [{ name = "plain clip", shape = "clip(eps=0.1)" }]

[[runs]]
group = "age"
config = { replay = 3 }
arms = [{ name = "hard drop", shape = "max-age(limit=1) * clip(eps=0.1)" }]
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "tiny.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def true(plan, tmp_path_factory):
    """The runs to which nothing happened."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert main(["run", str(plan), "--out", str(out)]) == 0
    return out


def content(out):
    return {
        str(path.relative_to(out)): ((path / METRICS).read_bytes(), read_run(path).digest())
        for path in run_paths(out)
    }


def start(plan, out, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "klip", "run", str(plan), "--out", str(out), "--workers", "1",
         "--checkpoint-every", "0", *options], start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def wait_for(condition, process):
    until = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it never came so far"
        time.sleep(0.01)


def saved(out):
    """Iterations that are safe, over all token runs."""
    paths = (
        [path for path in run_paths(out) if path.parent.name != "warm-up"] if out.is_dir() else []
    )
    return sum(read_run(path).iteration for path in paths)


def test_the_commands(plan, true, capsys):
    """Three runs lie there, one of them the warm-up; the same command repeats nothing."""
    jobs = with_needs(read_plan(plan).configs)
    assert {str(Keeping(true).path(job).relative_to(true)) for job in jobs} == set(content(true))
    first = [read_run(Keeping(true).path(job)).rows[0] for job in jobs[1:]]
    assert all(row["return_mean"] > 0 and row["kl"] > 0 for row in first), "there is no gradient"
    before = {path: path.stat().st_mtime_ns for path in true.rglob("*") if path.is_file()}
    assert main(["run", str(plan), "--out", str(true)]) == 0
    assert "all 2 runs have ended" in capsys.readouterr().out
    assert main(["resume", str(true)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}
    capsys.readouterr()
    assert main(["runs", str(true), "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["runs"]
    assert {(run["kind"], run["name"], run["iterations"], run["progress"]) for run in entries} == {
        ("warm-up", "warm-up", 250, 1.0),
        ("tokens", "plain clip", 12, 1.0),
        ("tokens", "hard drop", 12, 1.0),
    }
    assert main(["runs", str(true)]) == 0
    assert "hard drop" in capsys.readouterr().out


def test_killed_twice_and_resumed(plan, true, tmp_path):
    """The worker, which a new one follows, then all at once; `klip resume` does the rest."""
    out = tmp_path / "runs"
    process = start(plan, out)
    try:
        wait_for(lambda: saved(out) > 2, process)
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            if b"klip.engine.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)
        seen = saved(out)
        wait_for(lambda: saved(out) > seen + 1, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    said, _ = process.communicate()
    assert "killed by signal 9" in said
    assert saved(out) < 24
    assert main(["resume", str(out), "--workers", "1"]) == 0
    assert main(["run", str(plan), "--out", str(out)]) == 0  # what had not begun
    assert content(out) == content(true)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(plan, true, tmp_path, number):
    """In the middle: all is saved, and the same command goes on."""
    out = tmp_path / "runs"
    process = start(plan, out)
    wait_for(lambda: saved(out) > 2, process)
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == (130 if number == signal.SIGINT else 143), said
    assert "saving the runs" in said
    assert "Traceback" not in said
    assert {read_run(path).status for path in run_paths(out)} <= {"done", "stopped"}
    assert main(["run", str(plan), "--out", str(out)]) == 0
    assert content(out) == content(true)


def test_damaged(plan, true, tmp_path):
    """Files of ended runs and of the warm-up: mended, or begun again where one says so."""
    draw = random.Random(3)
    out = shutil.copytree(true, tmp_path / "runs")
    for path in run_paths(out):
        names = draw.choice([(NEWEST,), (METRICS,), (NEWEST, METRICS, "config.json")])
        for name in names:
            data = bytearray((path / name).read_bytes())
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            (path / name).write_bytes(data)
    lost = next(path for path in run_paths(out) if path.parent.name == "plain_clip")
    for name in (NEWEST, PREVIOUS):
        (lost / name).write_bytes(b"nothing")
    assert main(["run", str(plan), "--out", str(out)]) == 1
    assert main(["run", str(plan), "--out", str(out), "--start-over"]) == 0
    assert content(out) == content(true)
    assert any("begins again" in line for line in read_run(lost).history)


def test_a_run_that_diverges_leaves_its_neighbour_alone(plan, true, tmp_path, capsys):
    text = PLAN.replace("{ replay = 3 }", "{ replay = 3, learning_rate = 1e30 }")
    path, out = tmp_path / "wild.toml", tmp_path / "runs"
    path.write_text(text)
    assert main(["run", str(path), "--out", str(out)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "diverged: addition-replay3 hard drop seed 0" in said
    assert "not finite" in said
    assert "nonfinite" not in said, "a plan has no such option"
    for words in (["run", str(path), "--out", str(out)], ["resume", str(out)]):
        assert main(words) == 1, "it is still not done"
        assert "diverged: addition-replay3 hard drop seed 0" in " ".join(
            capsys.readouterr().out.split()
        )
    mine, theirs = content(out), content(true)
    calm = [name for name in mine if "replay" not in name]
    assert {name: mine[name] for name in calm} == {name: theirs[name] for name in calm}


def test_without_pytorch_plans_are_listed_and_a_run_says_what_it_needs(plan, tmp_path):
    script = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from klip.cli import main
assert main(["plans"]) == 0
assert main(["run", {str(plan)!r}, "--dry-run", "--out", {str(tmp_path / "runs")!r}]) == 0
import klip.engine.finish as finish
def version(name):
    raise finish.PackageNotFoundError(name)
finish.version = version
assert main(["run", {str(plan)!r}, "--out", {str(tmp_path / "runs")!r}]) == 2
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "scratchpad" in done.stdout
    assert "klip-rl[torch]" in done.stderr
    assert not (tmp_path / "runs").exists()
