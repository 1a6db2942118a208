"""Reading: folders of runs in any state, and nothing twice."""

import numpy as np
import pytest

from klip.errors import KlipError
from klip.runs import RunFolder, read_run, run_paths
from klip.runs.store import METRICS
from klip.studies.packing import pack
from klip.studies.reading import MANY, columns, read_study
from tests.runs.test_checkpoint import little_memory
from tests.studies.folders import config, keep, make_run, make_study, same, small


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
    pack(study, tmp_path / "packed")
    assert same(study, read_study(tmp_path / "packed"))


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


def test_a_folder_may_be_a_string(tmp_path):
    make_study(tmp_path, seeds=1, **small())
    assert [run.id for run in read_study(str(tmp_path)).runs] == [
        run.id for run in read_study(tmp_path).runs
    ]


def test_a_damaged_picture_is_told_and_the_run_stays(tmp_path):
    made = config(shape="my.py:Mine(a=1.0)", **small())
    path = keep(make_run(tmp_path, made), made, a=1.0)
    (run,) = read_study(tmp_path).runs
    assert (run.portrait.parameters, run.notes) == ({"a": 1.0}, ())
    (path / "shape.json").write_bytes(b"{}")
    (same,) = read_study(tmp_path).runs
    assert (same.portrait, same.status, same.digest) == (None, "done", run.digest)
    assert same.notes[0].startswith("shape.json is damaged")


def test_missing_folders_are_a_mistake(tmp_path):
    with pytest.raises(KlipError, match="there is no folder"):
        read_study(tmp_path / "nothing")


@pytest.mark.parametrize("status", ["running", "done"])
def test_a_metrics_file_of_three_gigabytes_is_not_read(tmp_path, status):
    """It is sparse; rows that no checkpoint covers are nobody's, and their bytes no page's."""
    path = make_run(tmp_path, config(**small()), 4, status)
    whole = read_study(tmp_path).runs[0]
    with (path / METRICS).open("r+b") as file:
        file.truncate(3 << 30)
    with little_memory():
        (run,) = read_study(tmp_path).runs
    assert (run.digest, run.rows) == (whole.digest, whole.rows)
