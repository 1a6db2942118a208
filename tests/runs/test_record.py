"""Reading a run: what is there and can be believed, without touching it."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import klip.runs.record
from klip.errors import KlipError
from klip.runs import Damaged, RunFolder, config_id, final_return, read_run, run_paths
from klip.runs.store import METRICS, NEWEST, PREVIOUS
from tests.runs.folders import arrays, fields, go_on, make, row, same_arrays, where
from tests.runs.test_checkpoint import little_memory


def rows(until, config=None):
    return [row(config or fields(), k) for k in range(1, until + 1)]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_finished_run(tmp_path):
    path = make(tmp_path, until=10, saves=(5, 10), status="done")
    record = read_run(path)
    assert (record.status, record.iteration) == ("done", 10)
    assert record.rows == rows(10)
    assert same_arrays(record.arrays, fields(), 10)
    assert record.config == fields()
    assert record.final_return == final_return(rows(10))
    assert (list(record.notes), list(record.history)) == ([], [])
    assert path.name.endswith(record.id)


def test_stopped_or_running_is_a_question_of_the_lock(tmp_path):
    path = make(tmp_path, until=5, saves=(2, 4))
    assert read_run(path).status == "stopped"
    folder = RunFolder(path, fields())
    go_on(folder, 5)
    assert read_run(path).status == "running"
    folder.close()
    assert read_run(path).status == "stopped"


def test_rows_after_the_checkpoint_are_shown_only_while_it_is_trained(tmp_path):
    """Nothing vouches for them, and they will be trained again."""
    path = make(tmp_path, until=5, saves=(2, 4))
    assert read_run(path).rows == rows(4)
    folder = RunFolder(path, fields())
    go_on(folder, 7)
    record = read_run(path)
    assert record.rows == rows(7)
    assert record.iteration == 4
    with (path / METRICS).open("ab") as file:
        file.write(b'{"iteration": 8, "st')
    record = read_run(path)
    assert record.rows == rows(7)
    assert record.notes == []
    folder.close()


def test_rows_appended_to_a_finished_run_are_not_believed(tmp_path):
    path = make(tmp_path, until=4, status="done")
    before = read_run(path)
    better = {"iteration": 5, "step": 5 * 64, "return_mean": 9999.0}
    with (path / METRICS).open("a") as file:
        file.write(json.dumps(better) + "\n")
    assert read_run(path).rows == before.rows
    assert read_run(path).final_return == before.final_return
    (note,) = read_run(path).notes
    assert METRICS in note
    folder = RunFolder(path, fields())
    assert len(folder.notes) == 1
    folder.close()
    assert read_run(path).notes == []


def test_a_run_before_its_first_checkpoint(tmp_path):
    folder = RunFolder(where(tmp_path, fields()), fields())
    record = read_run(folder.path)
    assert (record.status, record.rows, record.iteration) == ("running", [], 0)
    assert record.final_return is None
    go_on(folder, 2)
    assert read_run(folder.path).rows == rows(2)
    folder.close()
    record = read_run(folder.path)
    assert (record.status, record.rows, record.notes) == ("stopped", [], [])
    assert record.config == fields()


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"5\n" * 4,
        b"[]\n" * 4,
        b'{"iteration": 1}\n' * 4,
        b'{"iteration": 1, "step": NaN, "return_mean": 1}\n',
        b'{"iteration": 1, "step": "1", "return_mean": 1}\n',
        b'{"iteration": 1, "step": 1, "return_mean": "1"}\n',
        b'{"iteration": 1, "step": 1, "return_mean": Infinity}\n',
        b'{"iteration": 1, "step": 1, "return_mean": 1' + b"0" * 400 + b"}\n",
        b'{"iteration": 1, "step": 1' + b"0" * 400 + b', "return_mean": 1}\n',
        b'{"iteration": 2, "step": 1, "return_mean": 1}\n',
        b"[" * 9999 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_rows_that_are_none_while_it_is_trained(tmp_path, bad):
    """No checksum covers these yet: what is not a row ends them."""
    folder = RunFolder(where(tmp_path, fields()), fields())
    (folder.path / METRICS).write_bytes(bad)
    assert read_run(folder.path).rows == []
    folder.save(0, {})
    assert read_run(folder.path).rows == []
    folder.close()


@pytest.mark.parametrize("status", ["running", "done"])
def test_damaged_metrics(tmp_path, status):
    """Its rows come from the checkpoint, and that is said."""
    path = make(tmp_path, until=4, status=status)
    flip(path / METRICS)
    record = read_run(path)
    assert record.rows == rows(4)
    (note,) = record.notes
    assert METRICS in note


def test_the_previous_checkpoint_is_read(tmp_path):
    path = make(tmp_path, until=4, status="done")
    flip(path / NEWEST)
    record = read_run(path)
    assert (record.status, record.iteration) == ("stopped", 2)
    assert record.rows == rows(2)
    assert same_arrays(record.arrays, fields(), 2)
    (note,) = record.notes
    assert str(path / NEWEST) in note
    assert (path / NEWEST).exists()


def test_no_checkpoint_can_be_used(tmp_path):
    path = make(tmp_path, until=4, status="done")
    for name in (NEWEST, PREVIOUS):
        flip(path / name)
    record = read_run(path)
    assert (record.status, record.iteration, record.rows) == ("damaged", 0, [])
    assert record.config == fields()
    assert NEWEST in record.reason
    assert PREVIOUS in record.reason
    assert record.final_return is None


@pytest.mark.parametrize("config", [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 9999])
def test_nothing_is_known(tmp_path, config):
    path = make(tmp_path, until=4)
    for name in (NEWEST, PREVIOUS):
        flip(path / name)
    (path / "config.json").write_bytes(config)
    with pytest.raises(Damaged, match=r"config\.json is damaged"):
        read_run(path)


@pytest.mark.parametrize(
    "config",
    [{"a": 1}, fields(task="\x1b[2J"), fields(seed=-1), {**fields(), "seed": "2"}],
)
def test_a_hostile_config_with_the_right_id(tmp_path, config):
    """Its folder bears the hash of what it says, which is nothing that can be shown."""
    path = tmp_path / f"seed-0-{config_id(config)}"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Damaged, match=r"config\.json is damaged"):
        read_run(path)


def test_a_checkpoint_that_vanishes_while_it_is_read(tmp_path, monkeypatch):
    """Its trainer has just renamed it: that is no damage."""
    path = make(tmp_path, until=4)
    real = klip.runs.record.read_own

    def late(file, id):
        if file.name == NEWEST:
            os.replace(file, path / PREVIOUS)
        return real(file, id)

    monkeypatch.setattr(klip.runs.record, "read_own", late)
    record = read_run(path)
    assert (record.iteration, record.notes) == (4, [])


def test_texts_are_shown_safely(tmp_path):
    config = fields()
    folder = RunFolder(where(tmp_path, config), config)
    folder.history = ("moved\x1b[2J",)
    go_on(folder, 1)
    folder.save(1, arrays(config, 1), "failed", "line\nother\x07\udcff line")
    folder.close()
    record = read_run(folder.path)
    assert record.reason == r"line\nother\x07\udcff line"
    assert record.history == [r"moved\x1b[2J"]


def test_digests_are_of_all_that_was_trained(tmp_path):
    path = make(tmp_path / "a", until=4, saves=(2, 4))
    same = make(tmp_path / "b", until=4, saves=(1, 4))
    shorter = make(tmp_path / "c", until=4, saves=(1, 2))
    assert read_run(path).digest() == read_run(same).digest()
    assert read_run(path).digest() != read_run(shorter).digest()
    folder = RunFolder(same, fields())
    for name in arrays(fields(), 4):
        changed = arrays(fields(), 4)
        changed[name] = changed[name].astype(np.complex64)
        folder.save(4, changed)
        assert read_run(path).digest() != read_run(same).digest()
    folder.close()


# -- which folders are runs -----------------------------------------------------------------------


def test_runs_are_found_at_any_depth(tmp_path):
    paths = [make(tmp_path, fields(seed=seed), 1, (1,)) for seed in (2, 0, 1)]
    assert run_paths(tmp_path) == sorted(paths)
    assert run_paths(paths[0]) == [paths[0]]
    assert run_paths(paths[0].parent) == sorted(paths)


def test_other_folders_are_none(tmp_path):
    """By their names or for want of any file of a run."""
    real = make(tmp_path, until=1, saves=(1,))
    for name in ("seed-0-abc", "seed-x-0123456789", "seed-0-0123456789", "seed-0-0123456789-x",
                 "seed-0-012345678\n", "seed-0-01234567zz"):  # fmt: skip
        (tmp_path / name).mkdir()
    for name in ("seed-0-abc", "seed-x-0123456789", "seed-0-012345678\n"):
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "seed-1-0123456789").write_text("a file")
    assert run_paths(tmp_path) == [real]


def test_folders_are_not_followed_out(tmp_path):
    """A loop of links ends."""
    real = make(tmp_path / "in", until=1, saves=(1,))
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    assert run_paths(tmp_path / "in") == [real]


def test_what_is_no_run(tmp_path):
    (tmp_path / "seed-0-0123456789").write_text("a file")
    for name in ("none", "seed-0-0123456789", "."):
        with pytest.raises(KlipError, match="not the folder of a run"):
            read_run(tmp_path / name)
    with pytest.raises(KlipError, match="there is no folder"):
        run_paths(tmp_path / "none")


def test_a_run_is_read_from_within(tmp_path, monkeypatch):
    path = make(tmp_path, until=1, saves=(1,))
    monkeypatch.chdir(path)
    (here,) = run_paths(Path("."))
    assert read_run(here).iteration == 1


def test_the_papers_final_return():
    """Rows at or above the 0.9 quantile of steps; iterations without an episode do not count."""
    made = [{"step": k * 2048, "return_mean": float(k)} for k in range(1, 489)]
    late = [r["return_mean"] for r in made if r["step"] >= 901_120]
    assert len(late) == 49
    assert final_return(made) == np.mean(late)
    made[-1]["return_mean"] = None
    assert final_return(made) == np.mean(late[:-1])
    assert final_return([]) is None
    assert final_return([{"step": 1, "return_mean": None}]) is None


def test_a_metrics_file_of_three_gigabytes_is_not_read(tmp_path):
    """It is sparse, and so costs nobody anything but whoever reads all of it."""
    path = make(tmp_path, until=5, saves=(2, 4))
    with (path / METRICS).open("r+b") as file:
        file.truncate(3 << 30)
    with little_memory():
        record = read_run(path)
        assert len(record.rows) == 4
        folder = RunFolder(path, fields())
        assert (path / METRICS).stat().st_size == len((path / METRICS).read_bytes()) < 1000
    go_on(folder, 5)
    folder.close()


@pytest.mark.parametrize("name", [NEWEST, "config.json"])
def test_other_files_of_three_gigabytes(tmp_path, name):
    path = make(tmp_path, until=5, saves=(2, 4))
    with (path / name).open("r+b") as file:
        file.truncate(3 << 30)
    with little_memory():
        assert read_run(path).iteration == (2 if name == NEWEST else 4)
