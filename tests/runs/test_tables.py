"""Tables of strangers: read as written, or refused on one line, with nothing else said."""

import io
import random

import numpy as np
import polars as pl
import pytest

from klip.runs.tables import read_table

TABLE = pl.DataFrame({
    "run": np.arange(40), "kl": np.linspace(0, 1, 40), "text": ["a", "bc"] * 20,
    "age": [None, 1.0] * 20,
})  # fmt: skip


def written():
    file = io.BytesIO()
    TABLE.write_parquet(file)
    return file.getvalue()


def test_there_and_back(tmp_path):
    (tmp_path / "a.parquet").write_bytes(written())
    for file in (written(), tmp_path / "a.parquet"):
        assert read_table(file).equals(TABLE)


def test_a_few_bytes_that_claim_many_rows_are_not_believed():
    file = io.BytesIO()
    pl.select(run=pl.repeat(0, 4_000_000, dtype=pl.Int64)).write_parquet(file, statistics=False)
    with pytest.raises(ValueError, match="bytes claim 4,000,000 rows of 1 columns"):
        read_table(file.getvalue())


def test_whatever_is_damaged_is_a_table_or_a_line(capfd):
    """Some damages make the library below give up in its own way, which is not ours."""
    whole, refused = written(), []
    for number in range(400):
        draw, data = random.Random(number), bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        try:
            read_table(bytes(data))
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert "\n" not in "".join(refused)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(8) + b"PAR1", b"x" * 1000])
def test_what_is_no_table(data, tmp_path):
    (tmp_path / "file").write_bytes(data)
    for file in (data, tmp_path / "file", tmp_path):
        with pytest.raises(ValueError, match="it is not a whole Parquet file"):
            read_table(file)
