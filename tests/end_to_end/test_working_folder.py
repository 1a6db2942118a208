"""A stranger's files in the working folder: nothing of them runs unless the user names it."""

import subprocess
import sys

import pytest

from klip.ppo.config import Config
from klip.runs import RunFolder, read_run, run_paths
from klip.shapes.code import digest_of_code
from klip.studies.reading import MANY, read_study
from tests.runs.folders import fields, make, where

HOSTILE = (
    *("pickle", "json", "multiprocessing", "subprocess", "socket", "typing", "re", "pathlib"),
    *("numpy", "jax", "polars", "rich", "tyro", "matplotlib", "gymnasium", "optax", "mujoco"),
    *("jax_plugins", "pandas", "cupy", "orjson"),
)
ABSENT = HOSTILE[-4:]  # others look whether these are there
MINE = """
from klip.shapes import Shape
from beside import factor

class Mine(Shape):
    def multiplier(self, s):
        return factor * s.w * s.advantage
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files that leave a mark and raise when they are imported, and a shape of the user's own."""
    code = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + ' ')\nraise ImportError\n"
    made = tmp_path / "folder"
    made.mkdir()
    for name in HOSTILE:
        (made / f"{name}.py").write_text(code)
    (made / "mine.py").write_text(MINE)
    (made / "beside.py").write_text("factor = 0.5\n")
    monkeypatch.chdir(made)
    return made


def klip(*words):
    command = [sys.executable, "-m", "klip", *words]
    return subprocess.run(command, capture_output=True, text=True)


def ran(folder):
    mark = folder.with_name("ran")
    return mark.read_text() if mark.exists() else ""


def test_many_runs(folder):
    """So many that several processes read them, for `klip pack` as for `klip report`."""
    for seed in range(MANY):
        make(folder / "runs", fields(seed), 2, (2,), "done")
    done = klip("pack", "runs")
    assert ran(folder) == ""
    assert done.returncode == 0, done.stderr
    assert len(read_study(folder / "packed").runs) == MANY


def test_resume(folder):
    """In workers, too; a shape that the user named is found there, and what lies beside it."""
    small = {"steps": 64, "envs": 2, "rollout": 16, "minibatch": 16, "epochs": 1, "hidden": (8,)}
    for shape in ("clip(eps=0.2)", "mine:Mine", "mine.py:Mine"):
        code = digest_of_code("mine.py:Mine") if "Mine" in shape else ""
        config = Config("CartPole-v1", shape, code=code, **small).stored | {"hidden": [8]}
        RunFolder(where(folder / "runs", config), config).close()
    done = klip("resume", "runs", "--run-code", "--workers", "1")
    assert ran(folder) == ""
    assert done.returncode == 0, done.stderr + done.stdout
    assert [read_run(path).status for path in run_paths(folder / "runs")] == ["done"] * 3


def test_named_code_does_not_take_the_place_of_a_library(folder):
    """The folder of named code comes last: the stranger's numpy beside it stays asleep."""
    for name in ABSENT:
        (folder / f"{name}.py").unlink()
    for name in ("mine:Mine", "mine.py:Mine"):
        done = klip("profile", name)
        assert done.returncode == 0, done.stderr
        assert ran(folder) == ""
