"""The product after every crash, by `benchmarks/crashes.py`: the lives that take seconds."""

import sys
import tempfile
from pathlib import Path

import pytest

from klip.disk import operations

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import crash_states
    import crashes
finally:
    sys.path.remove(str(BENCHMARKS))

CHEAP = [name for name, life in crashes.LIVES.items() if life.cheap]


@pytest.fixture
def memory():
    """A folder in memory where there is one: thousands of syncs are then for nothing."""
    with tempfile.TemporaryDirectory(dir=crashes.lives.fast_folder()) as folder:
        yield Path(folder)


@pytest.mark.parametrize("name", CHEAP)
def test_every_state_is_gone_on_from(name, memory):
    done = crashes.tried(crashes.LIVES[name], memory)
    assert done["wrong"] == []
    assert done["states"] > 10


@pytest.mark.parametrize("fault", crashes.FAULTS)
def test_planted_faults_are_found(fault, memory):
    assert crashes.found_out(fault, memory)


PARTS = {b"", b"12", b"123", b"\0\0\0\0", b"1234"}
"""What may be there of 1234: nothing, a half, all but the last byte, its length alone, all."""


def trees(tmp_path, do, **before):
    """The states of a crash while something is done, as text by name."""
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)
    with crash_states.recorded(tmp_path) as recorder:
        do(tmp_path)
    return [tree for _, tree in crash_states.states(recorder)]


def wrote(path, data, sync):
    handle = operations.create(path)
    operations.write(handle, data)
    if sync:
        operations.sync(handle)
    operations.close(handle)


def test_what_is_not_synced_may_be_there_in_any_part(tmp_path):
    found = trees(tmp_path, lambda root: wrote(root / "a", b"1234", sync=False))
    assert found[:2] == [{}, {"a": b""}]
    assert {tree["a"] for tree in found if tree} == PARTS


def test_a_name_may_last_before_its_content(tmp_path):
    """Unless the content was synced first; and the other way round."""

    def renamed(root, sync):
        wrote(root / "b", b"1234", sync)
        operations.replace(root / "b", root / "a")

    for sync in (False, True):
        folder = tmp_path / str(sync)
        folder.mkdir()
        found = trees(folder, lambda root, sync=sync: renamed(root, sync), a=b"old")
        seen = {tree["a"] for tree in found}
        assert seen == {b"old", *({b"1234"} if sync else PARTS)}


def test_what_a_sync_of_the_folder_forces_is_there(tmp_path):
    def made(root):
        wrote(root / "a", b"1", sync=True)
        operations.sync_folder(root)
        operations.remove(root / "b")

    found = trees(tmp_path, made, b=b"2")
    assert {"a": b"1"} in found
    assert {"b": b"2"} in found
    assert {"a": b"1", "b": b"2"} in found
    assert {} not in found  # `b` went after `a` was there to stay


def test_renamings_that_nothing_orders_come_in_any_order(tmp_path):
    def moved(root):
        operations.replace(root / "a", root / "c")
        operations.replace(root / "b", root / "a")

    found = trees(tmp_path, moved, a=b"1", b=b"2")
    assert {"a": b"2"} in found  # the second has lasted, and the first has not
    assert {"a": b"2", "c": b"1"} in found
    assert {"c": b"1", "b": b"2"} in found


def test_appended_rows_may_be_there_without_those_before(tmp_path):
    def rows(root):
        handle = operations.create(root / "a", crash_states.os.O_WRONLY | crash_states.os.O_APPEND)
        for row in (b"1\n", b"2\n", b"3\n"):
            operations.write(handle, row)
        operations.close(handle)

    found = {tree["a"] for tree in trees(tmp_path, rows) if tree}
    assert {b"\0\0" + b"2\n", b"\0\0" * 2 + b"3\n", b"\0\0" + b"2\n" + b"\0\0"} <= found
    assert b"1\n2" in found  # a whole row, and no end of its line
    assert len(found) == 1 + 2 + 4 + 8 + 3  # each prefix with any of it as zeros; a torn end each


def test_operations_are_as_they_were_afterwards(tmp_path):
    before = dict(vars(operations))
    with pytest.raises(ZeroDivisionError), crash_states.recorded(tmp_path):
        raise ZeroDivisionError
    assert dict(vars(operations)) == before
