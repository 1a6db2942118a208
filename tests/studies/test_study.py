"""Studies: from folders in any state, and packed to the last bit."""

import json

import numpy as np
import pytest

from klip.errors import KlipError
from klip.runs import RunFolder, read_run, run_paths
from klip.studies.packing import pack, unpack
from klip.studies.reading import MANY, columns, read_study
from klip.studies.study import Study, label_of, plain, shape_of
from tests.studies.folders import config, make_run, make_study, small


def same(a, b):
    """Whether two studies are the same in every bit."""
    assert len(a.runs) == len(b.runs)
    assert a.trouble == b.trouble
    for x, y in zip(a.runs, b.runs, strict=True):
        for name in ("path", "id", "config", "status", "reason", "history", "notes", "digest"):
            assert getattr(x, name) == getattr(y, name)
        assert [dict(m) for m in x.machines] == [dict(m) for m in y.machines]
        assert x.metrics.keys() == y.metrics.keys()
        for name, column in x.metrics.items():
            assert column.shape == y.metrics[name].shape
            assert column.tobytes() == y.metrics[name].tobytes()
    return True


def test_runs_come_in_order_with_their_final_returns(tmp_path):
    make_study(tmp_path, ["Hopper-v4", "CartPole-v1"], ["spo(eps=0.2)", "clip(eps=0.2)"], 2,
               **small())  # fmt: skip
    study = read_study(tmp_path)
    assert study.tasks == ["CartPole-v1", "Hopper-v4"]
    assert [(v.task, v.label, len(v.runs)) for v in study.variants] == [
        ("CartPole-v1", "clip", 2), ("CartPole-v1", "spo", 2),
        ("Hopper-v4", "clip", 2), ("Hopper-v4", "spo", 2),
    ]  # fmt: skip
    for run in study.runs:
        record = read_run(tmp_path / run.path)
        assert run.final == record.final_return
        assert run.digest == record.digest()
        assert run.rows == run.iterations == 20


def test_labels_say_in_what_variants_differ(tmp_path):
    for lr in (3e-4, 1e-3):
        make_run(tmp_path, config(**small(lr=lr)))
    make_run(tmp_path, config(shape="my.py:Mine(a=1.0)", **small(), code="aa"))
    make_run(tmp_path, config(shape="my.py:Mine(a=1.0)", **small(), code="bb"))
    assert sorted(v.label for v in read_study(tmp_path).variants) == [
        "clip", "clip, lr 0.001", "my.py:Mine(a=1.0), code aa", "my.py:Mine(a=1.0), code bb",
    ]  # fmt: skip


def test_a_config_from_before_a_field_is_at_its_default(tmp_path):
    old = config(seed=1, **small())
    del old["code"], old["per_epoch"]
    make_run(tmp_path, old)
    make_run(tmp_path, config(seed=0, **small()))
    (variant,) = read_study(tmp_path).variants
    assert [run.seed for run in variant.runs] == [0, 1]


def test_somebodys_code_is_not_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('executed', 'w')\n")
    assert shape_of("evil.py:Mine") is None
    assert label_of("evil.py:Mine") == "evil.py:Mine"
    assert label_of("no-such-shape(a=1)") == "no-such-shape(a=1)"
    assert not (tmp_path / "executed").exists()


def test_every_state_is_read(tmp_path):
    make_run(tmp_path, config(seed=0, **small()))
    make_run(tmp_path, config(seed=1, **small()), 5, "running")
    make_run(tmp_path, config(seed=2, **small()), 3, "diverged", "the loss is not finite")
    make_run(tmp_path, config(seed=3, **small()), 0, "running")
    live = RunFolder(make_run(tmp_path, config(seed=4, **small()), 2, "running"),
                     config(seed=4, **small()))  # fmt: skip
    broken = make_run(tmp_path, config(seed=5, **small()))
    (broken / "checkpoint.safetensors").write_bytes(b"x")
    lost = make_run(tmp_path, config(seed=6, **small()))
    for path in lost.iterdir():
        path.write_bytes(b"")
    study = read_study(tmp_path)
    live.close()
    assert [run.status for run in study.runs] == [
        "done", "stopped", "diverged", "stopped", "running", "damaged",
    ]  # fmt: skip
    assert [run.final is None for run in study.runs] == [False, True, True, True, True, True]
    assert study.variants[0].scores.keys() == {0, 2}
    (trouble,) = study.trouble
    assert "seed-6" in trouble
    assert not study.ended
    for text in (*study.trouble, *(run.reason for run in study.runs)):
        assert str(tmp_path) not in text
    assert same(study, unpacked(study, tmp_path / "packed"))


def test_digests_are_those_of_the_records(tmp_path):
    paths = [
        make_run(tmp_path, config(seed=0, **small())),
        make_run(tmp_path, config(seed=1, **small()), 5, "running"),
        make_run(tmp_path, config(seed=2, **small()), 0, "running"),
        make_run(tmp_path, config(seed=3, **small())),
        make_run(tmp_path, config(seed=4, **small())),
    ]
    (paths[3] / "metrics.jsonl").write_text("damaged\n")
    with (paths[4] / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 21, "step": 1, "return_mean": 1}\n')
    found = {run.path: run.digest for run in read_study(tmp_path).runs}
    assert found == {str(p.relative_to(tmp_path)): read_run(p).digest() for p in paths}


def test_many_runs_are_read_by_several_processes(tmp_path):
    for seed in range(MANY):
        make_run(tmp_path, config(seed=seed, **small(steps=128)))
    (broken,) = tmp_path.glob("*/*/seed-7-*")
    for path in broken.iterdir():
        path.write_bytes(b"")
    study = read_study(tmp_path, workers=2)
    assert len(study.runs) == MANY - 1
    assert same(study, read_study(tmp_path))


def unpacked(study, folder):
    pack(study, folder)
    return read_study(folder)


def test_a_copy_of_a_run_is_not_another_seed(tmp_path):
    make_run(tmp_path / "a", config(**small()), 5, "running")
    make_run(tmp_path / "b", config(**small()))
    study = read_study(tmp_path)
    assert [run.rows for run in study.runs] == [20]
    assert "left out" in study.trouble[0]


def test_nothing_is_read_twice_unless_it_changed(tmp_path):
    make_run(tmp_path, config(seed=0, **small()))
    make_run(tmp_path, config(seed=1, **small()), 5, "running")
    known = {}
    before = read_study(tmp_path, known)
    after = read_study(tmp_path, known)
    assert all(a is b for a, b in zip(before.runs, after.runs, strict=True))
    (path,) = (p for p in run_paths(tmp_path) if "seed-1" in p.name)
    folder = RunFolder(path, config(seed=1, **small()))
    folder.save(5, {"w": np.zeros(2)}, "done")
    folder.close()
    assert [run.status for run in read_study(tmp_path, known).runs] == ["done", "done"]


def test_columns_take_whatever_is_there():
    found = columns([
        {"step": 1, "a": 1.5, "text": "x", "ragged": [1.0, 2.0], "big": float("inf"), "yes": True},
        {"step": 2, "a": None, "text": 3, "ragged": [1.0], "new": 7},
    ])  # fmt: skip
    assert found["a"].tolist()[0] == 1.5
    assert np.isnan([found["a"][1], found["text"][0], found["big"][0], found["new"][0]]).all()
    assert found["text"][1] == 3
    assert found["ragged"].shape == (2, 2)
    assert np.isnan(found["ragged"][1]).all()
    assert found["yes"][0] == 1
    assert columns([]) == {}


def test_packed_to_the_last_bit(tmp_path):
    make_study(tmp_path / "runs", ["CartPole-v1", "a/b", "a b", "Ünï"], seeds=2, **small())
    make_run(tmp_path / "runs", config(seed=7, **small()), without=("kill", "beta"))
    make_run(tmp_path / "runs", config(task="empty", **small()), 0, "running")
    study = read_study(tmp_path / "runs")
    assert same(study, unpacked(study, tmp_path / "packed"))
    first = {p.name: p.read_bytes() for p in (tmp_path / "packed").iterdir()}
    assert {"runs.json", "CartPole-v1.parquet", "a_b.parquet", "a_b-2.parquet"} <= first.keys()
    pack(study, tmp_path / "packed")
    assert first == {p.name: p.read_bytes() for p in (tmp_path / "packed").iterdir()}


def test_awkward_numbers_are_packed(tmp_path):
    study = read_study(make_study(tmp_path / "runs", seeds=1, **small()))
    run = study.runs[0]
    odd = np.array([0.1, -0.0, 5e-324, 1.7976931348623157e308, np.nan] * 4)
    run.metrics["odd"] = odd
    assert unpacked(study, tmp_path / "packed").runs[0].metrics["odd"].tobytes() == odd.tobytes()


def test_an_empty_study_is_packed(tmp_path):
    pack(Study(()), tmp_path / "packed")
    assert unpack(tmp_path / "packed").runs == ()


@pytest.mark.parametrize("damage", ["flip", "gone", "json", "path", "id", "format"])
def test_a_damaged_pack_is_noticed(tmp_path, damage):
    pack(read_study(make_study(tmp_path / "runs", seeds=1, **small())), tmp_path / "packed")
    metrics, index = tmp_path / "packed/CartPole-v1.parquet", tmp_path / "packed/runs.json"
    text = index.read_text()
    if damage == "flip":
        data = bytearray(metrics.read_bytes())
        data[len(data) // 2] ^= 1
        metrics.write_bytes(data)
    elif damage == "gone":
        metrics.unlink()
    elif damage == "json":
        index.write_text(text[: len(text) // 2])
    elif damage == "path":
        index.write_text(text.replace('"CartPole-v1.parquet"', '"../packed/CartPole-v1.parquet"'))
    elif damage == "id":
        index.write_text(text.replace('"seed": 0', '"seed": 1'))
    else:
        about = json.loads(text)
        about["format"] = "klip study 99"
        index.write_text(json.dumps(about))
    with pytest.raises(KlipError, match="packed") as error:
        read_study(tmp_path / "packed")
    assert "\n" not in str(error.value)


def test_a_folder_of_something_else_is_not_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(KlipError, match="not empty"):
        pack(Study(()), tmp_path)


def test_missing_folders_are_a_mistake(tmp_path):
    with pytest.raises(KlipError, match="there is no folder"):
        read_study(tmp_path / "nothing")


def test_plain_values():
    assert [plain(v) for v in (True, None, 2048, 0.99, [64, 64], "x")] == [
        "yes", "none", "2,048", "0.99", "64-64", "x",
    ]  # fmt: skip
