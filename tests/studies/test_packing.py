"""Packing: to the last bit, small, and damage is noticed."""

import hashlib
import json

import numpy as np
import polars as pl
import pytest

from klip.errors import KlipError
from klip.studies.packing import as_index, pack, unpack
from klip.studies.reading import read_study
from klip.studies.study import Study
from klip.theory.portrait import to_json
from tests.runs.test_checkpoint import little_memory
from tests.studies.folders import config, keep, make_run, make_study, same, small


def unpacked(study, folder):
    pack(study, folder)
    return read_study(folder)


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


def test_no_field_of_the_index_can_be_another(tmp_path):
    """Also those that nothing else would tell: a status, a digest, what is said of a machine."""
    pack(read_study(make_study(tmp_path / "runs", seeds=1, **small())), tmp_path / "packed")
    index = tmp_path / "packed" / "runs.json"
    whole = index.read_bytes()
    for number in range(0, len(whole), 97):
        data = bytearray(whole)
        data[number] ^= 1
        if not data[number : number + 1].isspace() or not whole[number : number + 1].isspace():
            index.write_bytes(data)
            with pytest.raises(KlipError, match="packed"):
                unpack(tmp_path / "packed")


def test_packed_again_a_study_keeps_its_bytes_and_names_nothing_that_is_gone(tmp_path):
    """Also from a pack, where metrics stand in another order than in the folders of runs."""
    pack(read_study(make_study(tmp_path / "runs", seeds=1, **small())), tmp_path / "packed")
    before = {path.name: path.read_bytes() for path in (tmp_path / "packed").iterdir()}
    pack(unpack(tmp_path / "packed"), tmp_path / "again")
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == before
    (tmp_path / "again" / "samples.json").write_text("of a study that was there before")
    pack(unpack(tmp_path / "again"), tmp_path / "again")
    pack(unpack(tmp_path / "again"), tmp_path / "again")
    assert "former" not in json.loads((tmp_path / "again" / "runs.json").read_text())


def test_pictures_of_shapes_are_packed_once_each(tmp_path):
    for seed in (0, 1):
        made = config(shape="my.py:Mine(a=1.0)", code="abc", seed=seed, **small())
        keep(make_run(tmp_path / "runs", made), made, a=1.0)
    study = read_study(tmp_path / "runs")
    packed = pack(study, tmp_path / "packed")
    assert (tmp_path / "packed" / "shapes.json") in packed.files
    again = read_study(tmp_path / "packed")
    for run, other in zip(study.runs, again.runs, strict=True):
        assert to_json(run.portrait) == to_json(other.portrait)
    text = (tmp_path / "packed" / "shapes.json").read_text()
    assert text.count("spelling") == 1
    (tmp_path / "packed" / "shapes.json").write_text(text.replace("mine", "nime"))
    with pytest.raises(KlipError, match="checksum"):
        read_study(tmp_path / "packed")
    pack(read_study(make_study(tmp_path / "other", seeds=1, **small())), tmp_path / "packed")
    assert not (tmp_path / "packed" / "shapes.json").exists()


def test_a_folder_of_something_else_is_not_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(KlipError, match="not empty"):
        pack(Study(()), tmp_path)


def test_a_few_bytes_that_claim_many_rows_are_not_believed(tmp_path):
    study = read_study(make_study(tmp_path / "runs", seeds=1, **small()))
    pack(study, tmp_path / "packed")
    bomb = tmp_path / "packed" / "CartPole-v1.parquet"
    rows = pl.select(run=pl.repeat(0, 4_000_000, dtype=pl.Int64))
    rows.write_parquet(bomb, compression="zstd", statistics=False)
    assert bomb.stat().st_size < 200_000
    reseal(tmp_path / "packed", bomb)
    with pytest.raises(KlipError, match="bytes claim 4,000,000 rows of 1 columns"):
        unpack(tmp_path / "packed")


def reseal(folder, file):
    """Put the right checksum of a forged file into the index."""
    index = json.loads((folder / "runs.json").read_text())
    index["files"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    del index["sha256"]
    (folder / "runs.json").write_bytes(as_index(index))


@pytest.mark.parametrize(
    "column",
    [
        pl.Series("step", [float("nan")] * 20),
        pl.Series("step", list(range(20, 0, -1))),
        pl.Series("iteration", [7] * 20),
        pl.Series("kl", ["x"] * 20),
        pl.Series("kl", [[1.0]] * 20),
        pl.Series("run", [0.5] * 20),
    ],
    ids=lambda column: f"{column.name} {column.dtype}",
)
def test_columns_that_no_trainer_writes(tmp_path, column):
    study = read_study(make_study(tmp_path / "runs", shapes=["clip(eps=0.2)"], seeds=1, **small()))
    pack(study, tmp_path / "packed")
    file = tmp_path / "packed" / "CartPole-v1.parquet"
    table = pl.read_parquet(file)
    table.with_columns(column).write_parquet(file)
    reseal(tmp_path / "packed", file)
    with pytest.raises(KlipError, match="holds a damaged study"):
        unpack(tmp_path / "packed")


@pytest.mark.parametrize("name", ["runs.json", "CartPole-v1.parquet"])
def test_a_sparse_file_is_not_in_memory_whole(tmp_path, name):
    pack(read_study(make_study(tmp_path / "runs", seeds=1, **small())), tmp_path / "packed")
    with (tmp_path / "packed" / name).open("r+b") as file:
        file.truncate(300 << 20)
    with little_memory(), pytest.raises(KlipError, match="holds a damaged study"):
        unpack(tmp_path / "packed")


def test_a_table_of_more_bytes_than_any_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("klip.studies.packing.LARGEST_TABLE", 100)
    pack(read_study(make_study(tmp_path / "runs", seeds=1, **small())), tmp_path / "packed")
    with pytest.raises(KlipError, match=r"bytes are more than the 100 it may have.*pack it again"):
        unpack(tmp_path / "packed")
