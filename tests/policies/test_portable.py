"""An exported folder: whole or not there, and never at the cost of somebody's files."""

import json
import sys

import numpy as np
import pytest

from klip.disk import operations
from klip.errors import KlipError
from klip.policies import evaluate, export, load, read
from klip.policies.graph import WrongOutputs
from klip.runs import DiskTrouble
from klip.runs.checkpoint import read as read_checkpoint

ALL = ["README.md", "config.json", "policy.onnx", "policy.safetensors"]


def names(path):
    return sorted(p.name for p in path.iterdir())


def test_the_folder_holds_all_that_a_policy_is(runs, tmp_path):
    trained = read(runs["Hopper-v4"])
    made = export(trained, tmp_path / "deep" / "out", episodes=3)
    assert names(made.path) == sorted(made.files) == ALL
    assert names(tmp_path / "deep") == ["out"]
    assert made.not_written == ()
    assert made.result == evaluate(trained.policy, 3)
    assert 0 < made.onnx_difference < 1e-5
    assert json.loads((made.path / "config.json").read_text()) == dict(trained.policy.config)
    kept = read_checkpoint(made.path / "policy.safetensors")
    assert {name.split(".")[0] for name in kept.arrays} == {
        "policy", "value", "observation", "action",
    }  # fmt: skip
    assert kept.iteration == 3
    assert kept.status == "done"
    rows = np.random.default_rng(0).standard_normal((9, 11))
    ours, theirs = trained.policy, load(made.path)
    assert ours.act(rows).tobytes() == theirs.act(rows).tobytes()
    assert ours.value(rows).tobytes() == theirs.value(rows).tobytes()
    assert evaluate(theirs, 3) == made.result


def test_no_local_path_leaves_the_machine(runs, tmp_path):
    made = export(read(runs["CartPole-v1"]), tmp_path / "out", episodes=2)
    for file in made.path.iterdir():
        assert str(tmp_path.parent).encode() not in file.read_bytes()


@pytest.mark.parametrize("absent", ["onnx", "onnxruntime"])
def test_without_the_extra_it_says_so(runs, tmp_path, monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)
    made = export(read(runs["CartPole-v1"]), tmp_path / "out", episodes=1)
    assert names(made.path) == ["README.md", "config.json", "policy.safetensors"]
    assert made.onnx_difference is None
    (line,) = made.not_written
    assert 'pip install "klip-rl[onnx]"' in line
    assert "Not in this folder: policy.onnx" in (made.path / "README.md").read_text()


def test_a_graph_that_is_wrong_is_not_left(runs, tmp_path, monkeypatch):
    trained = read(runs["Hopper-v4"])
    from klip.policies import portable
    from klip.policies.graph import encode_graph

    other = load(runs["Hopper-v5"])
    bias = {**other.arrays, "policy.2.bias": other.arrays["policy.2.bias"] + np.float32(1e-3)}
    object.__setattr__(other, "arrays", bias)
    monkeypatch.setattr(portable, "encode_graph", lambda policy: encode_graph(other))
    with pytest.raises(WrongOutputs, match=r"differ from ours by .* export with --no-onnx"):
        export(trained, tmp_path / "out", episodes=0)
    assert names(tmp_path) == []


def test_somebodys_files_are_never_touched(runs, tmp_path):
    trained = read(runs["CartPole-v1"])
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("mine")
    for force in (False, True):
        with pytest.raises(KlipError, match=r"no export's \(thesis\.tex\), .*never overwritten"):
            export(trained, out, episodes=0, force=force)
    assert (out / "thesis.tex").read_text() == "mine"
    (out / "thesis.tex").rename(out / "README.md")
    with pytest.raises(KlipError, match=r"no export's \(README\.md\)"):
        export(trained, out, episodes=0, force=True)
    (out / "README.md").unlink()
    export(trained, out, episodes=0)  # an empty folder may be filled
    (tmp_path / "file").write_text("mine")
    with pytest.raises(KlipError, match="is not a folder"):
        export(trained, tmp_path / "file", episodes=0, force=True)
    (tmp_path / "link").symlink_to(out)
    with pytest.raises(KlipError, match="is not a folder"):
        export(trained, tmp_path / "link", episodes=0, force=True)


def test_an_export_is_replaced_only_when_asked(runs, tmp_path):
    out = tmp_path / "out"
    export(read(runs["CartPole-v1"]), out, episodes=0)
    with pytest.raises(KlipError, match="is an export already: replace it with --force"):
        export(read(runs["Hopper-v4"]), out, episodes=0)
    assert load(out).task == "CartPole-v1"
    export(read(runs["Hopper-v4"]), out, episodes=0, onnx=False, force=True)
    assert load(out).task == "Hopper-v4"
    assert names(out) == ["README.md", "config.json", "policy.safetensors"], "a stale graph"
    assert names(tmp_path) == ["out"]
    with pytest.raises(KlipError, match="is an export already: copy the folder"):
        export(read(out), tmp_path / "again", episodes=0)


def test_a_full_disk_leaves_nothing(runs, tmp_path, monkeypatch):
    import errno
    import os

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskTrouble, match="the disk is full"):
        export(read(runs["CartPole-v1"]), tmp_path / "out", episodes=0)
    assert names(tmp_path) == []


def test_what_cannot_be_evaluated_can_be_exported_without(runs, tmp_path):
    trained = read(runs["CartPole-v1"])
    strange = dict(trained.policy.config) | {"task": "NoSuch-v0"}
    object.__setattr__(trained.policy, "config", strange)
    with pytest.raises(KlipError, match=r"no environment NoSuch-v0.*--episodes 0"):
        export(trained, tmp_path / "out", onnx=False)
    assert names(tmp_path) == []
    made = export(trained, tmp_path / "out", onnx=False, episodes=0)
    assert "not evaluated" in (made.path / "README.md").read_text()


def test_an_export_is_replaced_in_one_step(runs, tmp_path, monkeypatch):
    """Killed at any moment, the old one is there or the new one; and nothing is left of either."""
    out, old, new = tmp_path / "out", read(runs["CartPole-v1"]), read(runs["Hopper-v4"])
    steps = ("create", "write", "sync", "sync_folder", "replace", "exchange", "remove",
             "make_folder", "remove_folder")  # fmt: skip
    export(old, out, episodes=0, onnx=False)
    counted = count(monkeypatch, steps, 10**9, lambda: export(
        new, out, episodes=0, onnx=False, force=True))  # fmt: skip
    seen = set()
    for last in range(counted):
        export(old, out, episodes=0, onnx=False, force=True)
        with pytest.raises(Killed):
            count(monkeypatch, steps, last, lambda: export(
                new, out, episodes=0, onnx=False, force=True))  # fmt: skip
        seen.add(load(out).task)
    assert seen == {"CartPole-v1", "Hopper-v4"}
    export(old, out, episodes=0, onnx=False, force=True)
    assert names(tmp_path) == ["out"]


class Killed(BaseException):
    """At once, so that nothing is tidied up."""


def count(monkeypatch, steps, last, do):
    """Do something, and be killed after so many operations on the disk; or how many there were."""
    done = 0

    def counted(real):
        def operation(*args):
            nonlocal done
            if done >= last:
                raise Killed
            done += 1
            return real(*args)

        return operation

    with monkeypatch.context() as patch:
        for name in steps:
            patch.setattr(operations, name, counted(getattr(operations, name)))
        do()
    return done
