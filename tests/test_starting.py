"""The arithmetic of `benchmarks/starting.py`; nothing here is timed."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def starting(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import starting

    return starting


def starts(starting, kept=2.0, runs=({"a": 1}, {"a": 1})):
    first, second = runs
    return {
        "none kept": [starting.Start(9.0, first)],
        "kept": [starting.Start(1.0, first), starting.Start(kept, second)],
    }


def test_the_slowest_start_counts(starting):
    found = starting.summary(starts(starting))
    assert found["seconds"] == {"none kept": 9.0, "kept": 2.0}
    assert found["met"]
    assert not starting.summary(starts(starting, kept=3.1))["met"]


def test_bytes_that_differ_anywhere_are_seen(starting):
    assert starting.summary(starts(starting))["same_bytes"]
    assert not starting.summary(starts(starting, runs=({"a": 1}, {"a": 2})))["same_bytes"]
    assert not starting.summary(starts(starting, runs=({}, {})))["same_bytes"], "nothing ran"


def test_a_row_is_there_once_its_line_is_whole(starting, tmp_path):
    assert not starting.has_row(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"iteration": 1')
    assert not starting.has_row(tmp_path)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"iteration": 1}\n')
    assert starting.has_row(tmp_path)


def test_every_program_is_damaged(starting, tmp_path):
    program = tmp_path / "machine" / "jit_update-cache.00000000"
    program.parent.mkdir()
    program.write_bytes(b"code")
    starting.damage(tmp_path)
    assert program.read_bytes() == b"co\x65e"
