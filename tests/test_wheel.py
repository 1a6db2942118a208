"""The wheel in an environment of its own, away from the checkout: every command works there.

`make test` builds the wheel and the environment, which holds the core and nothing else.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

BIN = Path(__file__).parents[1] / ".venv-wheel" / "bin"
NEEDS_MORE = {
    "bench": "checkout",
    "sync": 'pip install "klip-rl[tensorboard]"',
    "tune": 'pip install "klip-rl[tune]"',
    "video": 'pip install "klip-rl[video]"',
    "doctor": "pip install 'klip-rl[verl]'",
}
"""Commands that need what the core has not, and what their one line says."""

pytestmark = pytest.mark.skipif(not (BIN / "klip").exists(), reason="make .venv-wheel/.ready")


def call(folder, *words):
    """A command of the installed package, in a folder, without this checkout's environment."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KLIP", "VIRTUAL"))}
    return subprocess.run(
        [BIN / words[0], *words[1:]], cwd=folder, env=clean, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which a short training has been run."""
    folder = tmp_path_factory.mktemp("elsewhere")
    done = call(
        folder, "klip", "train", "CartPole-v1", "--seeds", "1", "--steps", "4096", "--out", "runs"
    )
    assert done.returncode == 0, done.stderr
    return folder


def commands():
    """What each command is tried with; `{run}` is a trained run's folder."""
    return {
        "shapes": [],
        "show": ["clip", "-o", "show.png"],
        "profile": ["clip"],
        "guarantee": ["clip"],
        "probe": ["loss.py:ppo"],
        "verify": ["--samples", "8192"],
        "figures": ["-o", "figures"],
        "train": ["CartPole-v1", "--steps", "4096", "--out", "runs"],
        "compare": [
            "clip",
            "per-sample",
            "--task",
            "CartPole-v1",
            "--steps",
            "1024",
            "--out",
            "compared",
        ],
        "league": [],
        "tune": ["CartPole-v1", "--over", "lr", "--steps", "1024"],
        "run": ["plan.toml", "--out", "planned"],
        "plans": [],
        "resume": ["runs"],
        "runs": ["runs", "--json"],
        "report": ["runs", "-o", "page.html"],
        "pack": ["runs", "-o", "packed"],
        "eval": ["{run}", "--episodes", "2"],
        "export": ["{run}", "-o", "policy"],
        "bench": [],
        "sync": ["runs", "--to", "tensorboard"],
        "video": ["{run}", "-o", "film.gif"],
        "doctor": ["verl"],
    }


def test_every_command_is_tried():
    usage = call(BIN, "klip", "--help").stdout
    listed = re.search(r"\{([^}]*)\}", usage).group(1).split(",")
    assert set(listed) == commands().keys()


@pytest.mark.parametrize("name", [name for name in commands() if name != "train"])
def test_a_command_works_without_a_checkout(name, trained):
    (trained / "loss.py").write_text(
        "import jax.numpy as jnp\n"
        "def ppo(new, old, a):\n"
        "    w = jnp.exp(new - old)\n"
        "    return -jnp.minimum(w * a, jnp.clip(w, 0.8, 1.2) * a).mean()\n"
    )
    (trained / "plan.toml").write_text(
        '[[runs]]\ntasks = ["CartPole-v1"]\nshapes = ["clip"]\nseeds = 1\nconfig.steps = 2048\n'
    )
    run = min(path.parent for path in (trained / "runs").rglob("config.json"))
    words = [str(run) if word == "{run}" else word for word in commands()[name]]
    done = call(trained, "klip", name, *words)
    if name in NEEDS_MORE:
        assert done.returncode not in (0, None)
        assert NEEDS_MORE[name] in done.stderr + done.stdout
        assert "Traceback" not in done.stderr
    else:
        assert done.returncode == 0, done.stderr


def test_its_name_and_its_import(tmp_path):
    code = (
        "import json, klip, importlib.metadata as m; "
        "print(json.dumps([m.version('klip-rl'), klip.__version__, klip.__file__]))"
    )
    version, own, file = json.loads(call(tmp_path, "python", "-c", code).stdout)
    assert version == own
    assert Path(file).is_relative_to(BIN.parent)
    assert "usage: klip" in call(tmp_path, "python", "-m", "klip", "--help").stdout
