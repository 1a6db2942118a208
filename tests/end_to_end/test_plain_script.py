"""`klip.train` wherever Python runs: a script without ceremony, a notebook.

Under pytest, tests/ppo/test_train.py calls it.
"""

import subprocess
import sys

import pytest

CODE = """
import multiprocessing
multiprocessing.set_start_method("spawn")  # a script may have its own processes
with open("executed", "a") as file:
    file.write("once ")
import klip
small = {"steps": 64, "envs": 2, "rollout": 16, "minibatch": 16, "epochs": 1, "hidden": (8,)}
results = klip.train("CartPole-v1", "clip", 1, workers=1, **small)
assert [r.status for r in results] == ["done"]
print("trained", len(results))
"""


@pytest.mark.parametrize("name", ["script.py", "-"])
def test_without_ceremony(name, tmp_path):
    """The user's code is executed once; a notebook's `__main__` has no file, like that of stdin."""
    (tmp_path / "script.py").write_text(CODE)
    done = subprocess.run(
        [sys.executable, name], cwd=tmp_path, input=CODE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "trained 1" in done.stdout
    assert done.stderr == ""
    assert (tmp_path / "executed").read_text() == "once "
