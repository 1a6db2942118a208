"""From a path to a policy, and no further: nothing is run, little is loaded."""

import subprocess
import sys

import numpy as np
import pytest

import klip
from klip.errors import KlipError
from klip.policies import export, read
from klip.runs import RunFolder
from tests.policies.runs import config_of, write_run


def same(first, second):
    rows = np.random.default_rng(0).standard_normal((20, first.observation_size))
    return np.array_equal(first.act(rows), second.act(rows))


def test_a_run_a_file_and_an_export_are_the_same_policy(runs, tmp_path):
    path = runs["Hopper-v4"]
    run = klip.load(path)
    assert same(run, klip.load(str(path / "checkpoint.safetensors")))
    export(read(path), tmp_path / "out", onnx=False, episodes=0)
    assert same(run, klip.load(tmp_path / "out"))
    assert same(run, klip.load(tmp_path / "out" / "policy.safetensors"))
    assert klip.load(tmp_path / "out").config == run.config


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path):
    path = write_run(tmp_path, "CartPole-v1", saves=2)
    (path / "checkpoint.safetensors").write_bytes(b"half")
    with pytest.warns(RuntimeWarning) as said:
        klip.load(path)
    text = " ".join(str(warning.message) for warning in said)
    assert "checkpoint.safetensors cannot be used" in text
    assert "iteration 1" in text
    (path / "previous.safetensors").write_bytes(b"half")
    with pytest.raises(KlipError, match="no checkpoint that can be used"):
        klip.load(path)


def test_every_changed_byte_is_noticed(runs, tmp_path):
    data = bytearray((runs["CartPole-v1"] / "checkpoint.safetensors").read_bytes())
    file = tmp_path / "policy.safetensors"
    for place in (0, 9, 200, len(data) // 2, len(data) - 1):
        changed = data.copy()
        changed[place] ^= 1
        file.write_bytes(changed)
        with pytest.raises(KlipError, match=r"policy\.safetensors cannot be used"):
            klip.load(file)


def test_a_run_that_has_just_begun_has_no_policy(tmp_path):
    from klip.runs import config_id, folder_of

    config = config_of("CartPole-v1")
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in config.items()}
    path = folder_of(tmp_path, "CartPole-v1", "clip", 0, config_id(plain))
    RunFolder(path, config).close()
    with pytest.raises(KlipError, match="no parameters yet"):
        klip.load(path)


def test_other_paths_are_explained(runs, tmp_path):
    with pytest.raises(KlipError, match=r"there is no .*nowhere"):
        klip.load(tmp_path / "nowhere")
    with pytest.raises(KlipError, match=r"not the folder of a run"):
        klip.load(tmp_path)
    with pytest.raises(KlipError, match=r"folder of runs: give one of them, such as .*seed-0"):
        klip.load(runs["CartPole-v1"].parents[2])
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(KlipError, match=r"notes\.txt cannot be used"):
        klip.load(tmp_path / "notes.txt")


def test_metrics_that_are_none_are_refused(tmp_path):
    path = write_run(tmp_path, "CartPole-v1")
    run = RunFolder(path, config_of("CartPole-v1"))
    try:
        run.append({"iteration": 2, "step": "many", "return_mean": "<b>"})
        run.save(2, dict(read(path).arrays), "done")
    finally:
        run.close()
    with pytest.raises(KlipError, match="not what `klip train` writes"):
        read(path / "checkpoint.safetensors")
    found = read(path)
    assert [row["iteration"] for row in found.rows] == [1]
    assert "line 2 of metrics.jsonl is damaged" in found.notes[0]


def test_it_needs_neither_jax_nor_a_simulator(runs):
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "optax", "mujoco", "torch", "Box2D", "pygame"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import klip
policy = klip.load({str(runs["Hopper-v4"])!r})
print(policy.act([0.0] * 11).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(3,)\n"
