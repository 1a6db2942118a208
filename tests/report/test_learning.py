"""Learning curves and identities, from files."""

import json

import numpy as np
import pytest

from klip.report.learning import curve, find_runs, identities, learning_curves
from klip.runs import RunFolder, folder_of


@pytest.fixture
def runs(tmp_path):
    """Two shapes that are the same and one that is not, two seeds each, of two iterations."""
    for shape, shift in (
        ("clip(eps=0.2)", 0.0),
        ("per-sample(eps=0.2)", 0.0),
        ("spo(eps=0.2)", 1.0),
    ):
        for seed in range(2):
            config = {"task": "CartPole-v1", "shape": shape, "seed": seed}
            folder = RunFolder(folder_of(tmp_path, "CartPole-v1", shape, seed, "id"), config)
            folder.append({"step": 10, "return_mean": None if seed else 2.0 + shift})
            folder.append({"step": 20, "return_mean": 4.0 + 2 * seed + shift})
            folder.finish({"w": np.full(3, shift + seed)}, "done", "", 2)
    return tmp_path


def test_identities_are_read_from_bytes(runs):
    assert identities(find_runs(runs)) == [("CartPole-v1", "clip", "per-sample", 2, 2)]


@pytest.mark.parametrize("name", ["final.safetensors", "metrics.jsonl"])
def test_one_changed_byte_is_noticed(runs, name):
    (path,) = runs.glob(f"*/per-sample*/seed-1-*/{name}")
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    if name.endswith("jsonl"):
        content = bytearray(path.read_bytes().replace(b"6.0", b"7.0"))
    path.write_bytes(content)
    assert identities(find_runs(runs)) == [("CartPole-v1", "clip", "per-sample", 1, 2)]


def test_a_curve_averages_the_seeds_that_had_an_episode(runs):
    clip = [run for run in find_runs(runs) if run.shape == "clip"]
    steps, mean, deviation = curve(clip)
    assert steps.tolist() == [10, 20]
    assert mean.tolist() == [2.0, 5.0]
    assert deviation.tolist() == [0.0, 1.0]


def test_every_shape_has_a_line(runs):
    figure = learning_curves(find_runs(runs))
    (axes,) = figure.axes
    labels = [line.get_label() for line in axes.get_lines()]
    assert [label.split(":")[0] for label in labels] == ["clip", "per-sample", "spo"]
    assert "5 ± 1" in labels[0]
    dashed = [line.get_linestyle() for line in axes.get_lines()]
    assert dashed == ["-", "--", "-"]


def test_unfinished_runs_are_left_out(runs):
    (path,) = runs.glob("*/spo*/seed-1-*")
    (path / "status.json").unlink()
    assert len(find_runs(runs)) == 5
    assert json.loads((path / "config.json").read_text())["seed"] == 1
