"""Plans on a real Ray cluster: two nodes on this machine, one of which is killed."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import klip
from klip.cli import main
from klip.engine.cluster import Halt, Tail
from klip.ppo.config import Config
from klip.runs import read_run, run_paths

pytest.importorskip("ray")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import ray_cluster

FIELDS = {"steps": 128 * 60, "envs": 1, "rollout": 128, "minibatch": 32, "epochs": 2, "lag": 1,
          "replay": 2}  # fmt: skip
PLAN = f"""
seeds = 2
[[runs]]
tasks = ["CartPole-v1"]
shapes = ["clip", "adaptive-kl"]
config = {{ {", ".join(f"{k} = {v}" for k, v in FIELDS.items())} }}
"""

TOKENS = """
kind = "tokens"
seeds = 1
config = { iterations = 2, prompts = 4, completions = 4, minibatches = 2, held_out = 8, \
warmup = { digits = 1, layers = 1, width = 16, heads = 2, steps = 5 } }
[[runs]]
group = "position"
arms = [{ name = "a", shape = "clip(eps=0.1)" }, { name = "b", shape = "mine:Mine" }]
"""

MINE = """
from klip.shapes import Shape

class Mine(Shape):
    def multiplier(self, s):
        return s.w * s.advantage
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Head and second node, one CPU each."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    made = ray_cluster.Cluster(tmp_path)
    yield made
    made.close()


def test_a_node_is_killed(cluster, tmp_path):
    """Its cohort goes on elsewhere, and every run ends with the bytes of a local one."""
    address, second = cluster.address, cluster.second
    plan, out, folder = tmp_path / "plan.toml", tmp_path / "shared", tmp_path / "folder"
    plan.write_text(PLAN)
    folder.mkdir()
    for name in ("numpy", "jax", "json", "pickle", "tempfile"):  # a stranger's
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n1 / 0")
    (folder / "mine.py").write_text(MINE)
    command = [sys.executable, "-m", "klip", "run", str(plan), "--out", str(out), "--ray",
               address, "--checkpoint-every", "0"]  # fmt: skip
    cluster.wait_for_both()
    klips = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
    )

    def saved():
        return [read_run(path).iteration for path in run_paths(out)] if out.is_dir() else []

    until = time.monotonic() + 300
    while klips.poll() is None and not (
        cluster.processes(second, b"train_group") and len(saved()) == 4 and min(saved()) > 2
    ):
        assert time.monotonic() < until, "nothing was trained on the second node"
        time.sleep(0.1)
    assert min(saved()) < 60, "it was over before the node could be killed"
    cluster.kill(second)
    text, _ = klips.communicate(timeout=400)
    assert klips.returncode == 0, text
    results = klip.train(
        "CartPole-v1", ["clip", "adaptive-kl"], 2, out=tmp_path / "local", **FIELDS
    )
    here = {r.path.name: read_run(r.path).digest() for r in results}
    there = {path.name: read_run(path).digest() for path in run_paths(out)}
    assert there == here
    tokens(address, tmp_path)
    assert not (tmp_path / "ran").exists(), "a stranger's file in the working folder was imported"


def tokens(address, tmp_path):
    """On what is left of the cluster: the warm-up first, then the runs, to the same bytes.

    One arm's shape lies in the working folder, which the cluster's processes look in for it.
    """
    plan, outs = tmp_path / "tokens.toml", [tmp_path / "tokens-ray", tmp_path / "tokens-here"]
    plan.write_text(TOKENS)
    command = [sys.executable, "-m", "klip", "run", str(plan), "--out"]
    for out, more in zip(outs, (["--ray", address], ["--workers", "1"]), strict=True):
        done = subprocess.run(
            [*command, str(out), *more], capture_output=True, text=True, cwd=tmp_path / "folder"
        )
        assert done.returncode == 0, done.stdout + done.stderr
    there, here = ({p.name: read_run(p).digest() for p in run_paths(out)} for out in outs)
    assert len(there) == 3
    assert there == here


def test_no_cluster(capsys, tmp_path):
    port = ray_cluster.free_port()
    assert main(["run", "paper", "--task", "CartPole-v1", "--ray", f"127.0.0.1:{port}",
                 "--out", str(tmp_path)]) == 2  # fmt: skip
    err = capsys.readouterr().err
    assert "ray start --head" in err
    assert err.count("\n") == 1


def test_the_last_row_of_a_growing_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path, Config("CartPole-v1"))
    assert tail.latest() == {}
    row = {"iteration": 1, "step": 128, "return_mean": None, "other": 5}
    path.write_text(json.dumps(row) + "\n")
    found = tail.latest()
    assert found.pop("speed") > 0
    assert found == {"iteration": 1, "step": 128, "return_mean": None}
    assert tail.latest() == {}
    with path.open("a") as file:
        file.write(json.dumps({**row, "iteration": 2}) + "\n" + '{"iteration": 3, "st')
    assert tail.latest()["iteration"] == 2


def test_a_file_asks_to_stop(tmp_path):
    halt = Halt(tmp_path / ".stop")
    assert not halt()
    (tmp_path / ".stop").touch()
    halt.next = 0.0
    assert halt()
    (tmp_path / ".stop").unlink()
    assert halt()


@pytest.mark.parametrize(
    "line",
    ["", "x", "5", "[]", '"step"', "{}", "null", '{"step": []}', '{"step": null}', '{"step": "9"}',
     '{"step": 1, "kl": [0]}', '{"step": NaN}', '{"step": 1, "return_mean": Infinity}',
     '{"step": 1' + "0" * 400 + "}", "[" * 9999],
)  # fmt: skip
def test_a_line_that_is_no_row_is_passed_over(tmp_path, line):
    """Its trainer mends the file; who only looks goes on looking."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(line + "\n")
    tail = Tail(path, Config("CartPole-v1"))
    assert tail.latest() == {}
    path.write_text('{"iteration": 1, "step": 128, "return_mean": 1.5}\n')
    assert tail.latest()["step"] == 128
