"""A user's environment in a file of the current folder, from training to evaluation."""

import subprocess
import sys

import pytest

from klip.ppo.train import plan
from klip.runs import read_run

CODE = """
import gymnasium, numpy as np
from neighbour import GOAL

class Point(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    def __init__(self, goal=GOAL, breaks=False):
        self.goal, self.breaks = goal, breaks
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.normal()
        return np.array([self.at, self.goal]), {}
    def step(self, action):
        if self.breaks:
            raise RuntimeError("the wheel came off")
        self.at += float(action[0])
        return np.array([self.at, self.goal]), -abs(self.at - self.goal), False, False, {}

gymnasium.register("Point-v0", entry_point="myenvs:Point", max_episode_steps=20)
"""
SIZE = ["--seeds", "1", "--steps", "1.28e2", "--rollout", "32", "--envs", "2", "--minibatch", "32",
        "--epochs", "1", "--workers", "1"]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "neighbour.py").write_text("GOAL = 3.0\n")
    (tmp_path / "myenvs.py").write_text(CODE)
    return tmp_path


def klip(folder, *words):
    """As the installed command runs: the current folder is not on Python's path."""
    line = [sys.executable, "-P", "-m", "klip", *words]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True)


def test_from_the_current_folder(folder):
    """By module in processes, and by file, with arguments: the same bytes; then it is evaluated."""
    for task, more in (("myenvs:Point-v0", ["--processes", "2"]), ("myenvs.py:Point-v0", [])):
        done = klip(folder, "train", task, "--task-args", "goal=5", *SIZE, *more)
        assert done.returncode == 0, done.stderr
    one, other = (read_run(path) for path in sorted(folder.glob("runs/*/*/seed-0-*")))
    assert one.config["task_args"] == other.config["task_args"] == "goal=5"
    assert one.config["task_code"] == other.config["task_code"] != ""
    assert one.digest() == other.digest()
    assert klip(folder, "eval", str(one.path)).returncode == 2  # it runs somebody's code
    seen = klip(folder, "eval", str(one.path), "--trust-task", "--episodes", "2")
    assert seen.returncode == 0, seen.stderr
    assert "2 episodes" in seen.stdout


def test_one_that_raises(folder):
    done = klip(folder, "train", "myenvs.py:Point", "--task-args", "breaks=true", *SIZE)
    assert done.returncode == 1
    assert "RuntimeError: the wheel came off" in " ".join(done.stdout.split())
    (path,) = folder.rglob("traceback.txt")
    assert 'raise RuntimeError("the wheel came off")' in path.read_text()
    assert "Traceback" not in done.stdout + done.stderr


def test_a_class_from_python(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    import myenvs

    try:
        (c,) = plan(myenvs.Point, seeds=1.0, task_args={"goal": 1})
    finally:
        for name in ("myenvs", "neighbour"):
            sys.modules.pop(name)
    assert (c.task, c.arguments) == ("myenvs.py:Point", {"goal": 1})
    assert c.task_code
