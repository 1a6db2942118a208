"""The operations on files, and that there are no others."""

import ast
import os
from pathlib import Path

import pytest

from klip.disk import operations

PACKAGE = Path(__file__).parents[2] / "klip"
CHANGES = {"write_text", "write_bytes", "unlink", "mkdir", "rename", "rmdir", "touch", "symlink_to",
           "rmtree", "copytree", "mkdtemp", "makedirs", "removedirs", "fsync", "ftruncate",
           "truncate", "savez", "tofile"}  # fmt: skip
OF_OS = {"replace", "remove", "write", "open"}
ELSEWHERE = {
    "adapters/doctor.py", "adapters/trl_record.py", "adapters/trl.py",  # in others' trainers
    "engine/programs.py",  # compiled programs, which anybody may delete at any time
    "runs/sink_wandb.py",  # its scratch folder, which is W&B's
}  # fmt: skip


def changes(path):
    """Lines that change a file by themselves, or open one to write it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        owner = getattr(getattr(node.func, "value", None), "id", "")
        if owner == "operations" or "os.devnull" in ast.unparse(node):
            continue
        mode = [a.value for a in node.args[:2] if isinstance(a, ast.Constant)]
        mode += [ast.unparse(k.value)[1:-1] for k in node.keywords if k.arg == "mode"]
        writes = name == "open" and any(set("wax+") & set(str(m)) for m in mode if len(str(m)) < 4)
        flags = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        makes = owner == "os" and name == "open" and flags & {"O_CREAT", "O_WRONLY", "O_RDWR"}
        by_os = owner == "os" and name in OF_OS - {"open"}
        if name in CHANGES or writes or makes or by_os:
            yield f"{path.relative_to(PACKAGE)}:{node.lineno} {name}"


def test_files_are_changed_here_and_nowhere_else():
    """So what a test records of these operations is all that happens to the disk."""
    files = [p for p in PACKAGE.rglob("*.py") if "disk" not in p.relative_to(PACKAGE).parts]
    found = [line for path in files for line in changes(path)]
    assert [line for line in found if line.partition(":")[0] not in ELSEWHERE] == []


def test_that_test_sees_what_it_should():
    text = "open(p, 'wb')\nos.open(p, os.O_WRONLY)\np.unlink()\nos.replace(a, b)\np.open('a')\n"
    fine = "text.replace(a, b)\nos.open(p, os.O_RDONLY)\noperations.remove(p)\nopen(p)\n"

    class Text:
        def __init__(self, text):
            self.text = text

        def read_text(self, _):
            return self.text

        def relative_to(self, _):
            return "x.py"

    assert len(list(changes(Text(text)))) == 5
    assert list(changes(Text(fine))) == []


def test_folders_are_made_with_those_above(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(operations, "sync_folder", synced.append)
    operations.make_folders(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]  # each name lasts
    operations.make_folders(tmp_path / "a" / "b")
    assert len(synced) == 3
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(NotADirectoryError):
            operations.make_folders(wrong)


def test_a_tree_is_removed_and_links_are_not_followed(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    tree = tmp_path / "tree"
    operations.make_folders(tree / "a" / "b")
    (tree / "a" / "file").touch()
    (tree / "link").symlink_to(tmp_path / "precious")
    operations.remove_tree(tree)
    assert sorted(os.listdir(tmp_path)) == ["precious"]
    assert os.listdir(tmp_path / "precious") == ["file"]


def test_two_change_places(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.write_text("a file")
    if operations.exchange(one, other):
        assert (one.read_text(), other.is_dir()) == ("a file", True)
    with pytest.raises(FileNotFoundError):
        operations.exchange(one, tmp_path / "none")


def test_all_is_written_where_the_disk_takes_it_in_parts(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:3]))
    handle = operations.create(tmp_path / "file")
    operations.write(handle, b"0123456789")
    operations.truncate(handle, 8)
    operations.sync(handle)
    operations.close(handle)
    assert (tmp_path / "file").read_bytes() == b"01234567"
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="symbolic links"):
        operations.create(tmp_path / "link")
