"""Parquet files that may be anybody's: a table that its bytes may hold, or a line why not."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import polars as pl

DENSEST: Final = 40
"""Bytes of numbers in a byte of a Parquet file; metrics of real runs have some 2."""


def read_table(file: Path | bytes) -> pl.DataFrame:
    """The table in a Parquet file; raises ValueError, on one line, where it cannot be read.

    >>> read_table(b"PAR1 no")
    Traceback (most recent call last):
    ...
    ValueError: it is not a whole Parquet file

    Args:
        file: its path, or its content

    """
    size = file.stat().st_size if isinstance(file, Path) else len(file)

    def opened() -> Path | io.BytesIO:
        return file if isinstance(file, Path) else io.BytesIO(file)

    try:
        with _quiet():
            columns = len(pl.read_parquet_schema(opened()))
            rows = pl.scan_parquet(opened()).select(pl.len()).collect().item()
            fits = rows * columns * 8 <= DENSEST * size + 2**24
            table = pl.read_parquet(opened()) if fits else pl.DataFrame()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, OverflowError):
        raise ValueError("it is not a whole Parquet file") from None
    if not fits:
        raise ValueError(f"{size:,} bytes claim {rows:,} rows of {columns} columns")
    return table


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing on standard error within: there the library below tells its own programmers."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
