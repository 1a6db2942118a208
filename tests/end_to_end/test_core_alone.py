"""The core works where no extra is installed, and does not load what it does not need."""

import subprocess
import sys

EXTRAS = [
    "torch", "trl", "verl", "stable_baselines3", "ray", "wandb", "tensorboard", "Box2D", "pygame",
    "optuna",
]  # fmt: skip
BLOCK = f"""
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_without_any_extra(tmp_path):
    """Shapes, profile, probe of a JAX loss, and pictures, in a Python that has none of them."""
    loss = tmp_path / "loss.py"
    loss.write_text(
        "import jax.numpy as jnp\n"
        "def ppo(new, old, a):\n"
        "    w = jnp.exp(new - old)\n"
        "    return -jnp.minimum(w * a, jnp.clip(w, 0.8, 1.2) * a).mean()\n"
    )
    done = python(
        BLOCK
        + f"""
from klip.cli import main
assert main(["shapes"]) == 0
assert main(["profile", "spo"]) == 0
assert main(["verify", "--samples", "8192"]) == 0
assert main(["probe", "{loss}:ppo", "-o", "{tmp_path}/probe.png"]) == 0
assert main(["show", "clip", "-o", "{tmp_path}/show.png"]) == 0
assert "torch" not in sys.modules
"""
    )
    assert done.returncode == 0, done.stderr
    assert "is clip(eps=0.2)" in done.stdout


def test_only_what_is_run_needs_its_libraries(tmp_path):
    """Without Box2D: plans are listed, their other tasks run, and LunarLander is named."""
    done = python(
        BLOCK
        + f"""
from klip.cli import main
assert main(["plans"]) == 0
run = ["run", "paper", "--seeds", "1", "--shape", "clip", "--out", "{tmp_path}/runs"]
assert main([*run, "--task", "CartPole-v1", "--dry-run"]) == 0
assert main([*run, "--task", "CartPole-v1", "--steps", "512"]) == 0
assert main([*run, "--dry-run"]) == 2
assert main([*run]) == 2
"""
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.strip().splitlines()
    assert first == second
    assert first.startswith("klip: LunarLander-v3 needs what is not installed: pip install")
    assert "; leave that out with --task Humanoid-v4 Ant-v4 " in first
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"CartPole-v1"}


def test_shapes_load_no_framework():
    """A shape is a formula: importing the room loads neither JAX nor PyTorch nor matplotlib."""
    done = python(
        "import sys, klip.shapes\n"
        "assert not {'jax', 'torch', 'matplotlib'} & sys.modules.keys(), 'loaded'\n"
        "import numpy as np\n"
        "assert klip.shapes.Clip().multiplier(np.zeros(2), np.ones(2)).tolist() == [1, 1]\n"
    )
    assert done.returncode == 0, done.stderr
