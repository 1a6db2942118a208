"""Kept tokens on disk: what is written is what is read, and damage is named."""

import polars as pl
import pytest

from klip.errors import KlipError
from klip.runs.kept import FOLDER, SCHEMA, kept_paths, read_kept, write_kept


def columns(step=1, **changes):
    """Two tokens of one completion, one shape."""
    usual = dict(
        step=[step] * 2, sequence=[0, 0], place=[0, 1], prompt=["ask"] * 2, text=["a", "b"],
        shape=["clip"] * 2, trained=[True] * 2, ratio=[1.0, 1.5], advantage=[1.0] * 2,
        multiplier=[1.0, 0.0], fate=["kept", "zeroed"], part=["inside", "kill"],
        span=[None, "answer"], age=[0.0] * 2, entropy=[0.5, None], reward=[1.0] * 2,
    )  # fmt: skip
    return usual | changes


def test_steps_are_read_back_in_order(tmp_path):
    for step in (20, 3):
        write_kept(tmp_path, step, columns(step))
    assert [path.name for path in kept_paths(tmp_path)] == [
        "step-00000003.parquet",
        "step-00000020.parquet",
    ]
    frame = read_kept(tmp_path)
    assert frame.schema == pl.Schema(SCHEMA)
    assert frame["step"].to_list() == [3, 3, 20, 20]
    assert frame.filter(pl.col("step") == 3).to_dict(as_series=False) == columns(3)
    assert read_kept(tmp_path / FOLDER).equals(frame)  # the folder itself will do


def test_a_step_that_is_written_again_replaces_the_old(tmp_path):
    write_kept(tmp_path, 1, columns())
    write_kept(tmp_path, 1, columns(text=["x", "y"]))
    assert read_kept(tmp_path)["text"].to_list() == ["x", "y"]


def test_nothing_kept_is_said(tmp_path):
    assert kept_paths(tmp_path) == []
    with pytest.raises(KlipError, match="keep_tokens"):
        read_kept(tmp_path)


@pytest.mark.parametrize("damage", ["no parquet", "other columns", "no ratio"])
def test_a_file_of_another_kind_is_named(tmp_path, damage):
    path = write_kept(tmp_path, 1, columns(ratio=[1.0, None]))
    if damage == "no parquet":
        path.write_bytes(b"PAR1 no")
    elif damage == "other columns":
        pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(KlipError, match=r"step-00000001.parquet is not a file of kept tokens"):
        read_kept(tmp_path)


def test_columns_are_whole(tmp_path):
    some = columns()
    del some["fate"]
    with pytest.raises(KlipError, match="fate"):
        write_kept(tmp_path, 1, some)


def test_a_few_bytes_that_claim_many_rows_are_not_believed(tmp_path):
    path = write_kept(tmp_path, 1, columns())
    pl.select(step=pl.repeat(0, 4_000_000, dtype=pl.Int64)).write_parquet(path, statistics=False)
    assert path.stat().st_size < 200_000
    with pytest.raises(KlipError, match=r"bytes claim 4,000,000 rows of 1 columns.*remove it"):
        read_kept(tmp_path)
