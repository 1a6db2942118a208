"""Every state in which a crash could leave the disk, from a record of what was done to it.

What is written lasts once it is synced: the content of a file by a sync of the file, the names in a
folder by a sync of the folder. What was not synced when the machine stopped may be there, in any
part and any order. `Recorder` writes down the operations of `klip.disk.operations`, and `states`
builds every state that follows from each prefix of them:

    names       any subset of the makings, renamings and removals that no sync forces
    content     each prefix of the writes that no sync forces, the last one torn in the middle or
                before its last byte; and any subset of the prefix in its length alone, as zeros
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klip.disk import operations

MOST_NAMES = 9  # changes of names that are open at a time: 2^9 subsets of them
MOST_WRITES = 8  # writes to a file that are open at a time
Tree = dict[str, bytes | None]
"""Files by their paths below the root, with their content; None for a folder."""


@dataclass(frozen=True)
class Write:
    """Bytes at a place in a file; `data` None: the file is cut there."""

    inode: int
    place: int
    data: bytes | None


@dataclass(frozen=True)
class Names:
    """What names stand for after one operation: ((folder, name), inode), an inode None: nothing."""

    now: tuple[tuple[tuple[int, str], int | None], ...]


@dataclass(frozen=True)
class Synced:
    """A file's content lasts, or the names in a folder."""

    inode: int
    folder: bool


@dataclass(frozen=True)
class Mark:
    """Something that the product has promised by now."""

    said: Any


@dataclass
class Recorder:
    """The operations on files below `root`, and what lay there before."""

    root: Path
    before: Tree = field(default_factory=dict)
    log: list[Write | Names | Synced | Mark] = field(default_factory=list)
    names: dict[tuple[int, str], int] = field(default_factory=dict)
    content: dict[int, bytes] = field(default_factory=dict)
    folders: set[int] = field(default_factory=lambda: {0})
    handles: dict[int, tuple[int, bool, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.count = itertools.count(1)
        self.before = tree_of(self.root)
        for path, data in sorted(self.before.items()):
            inode = next(self.count)
            self.names[self.key(self.root / path)] = inode
            if data is None:
                self.folders.add(inode)
            else:
                self.content[inode] = data
        self.first_names, self.first_content = dict(self.names), dict(self.content)

    def mark(self, said: Any) -> None:
        """Note what has been promised."""
        self.log.append(Mark(said))

    def has(self, path: Path) -> bool:
        """Whether a path is the root or below it."""
        return path.absolute().is_relative_to(self.root.absolute())

    def key(self, path: Path) -> tuple[int, str]:
        inode = 0
        parts = path.absolute().relative_to(self.root.absolute()).parts
        for part in parts[:-1]:
            inode = self.names[inode, part]
        return inode, parts[-1] if parts else ""

    def inode(self, path: Path) -> int:
        return 0 if path.absolute() == self.root.absolute() else self.names[self.key(path)]

    def change(self, *now: tuple[tuple[int, str], int | None]) -> None:
        self.log.append(Names(now))
        for key, inode in now:
            if inode is None:
                self.names.pop(key, None)
            else:
                self.names[key] = inode

    # -- the operations, after they have been done ---------------------------------------------

    def create(self, handle: int, path: Path, flags: int = os.O_WRONLY | os.O_TRUNC) -> None:
        key = self.key(path)
        if key not in self.names:
            inode = next(self.count)
            self.content[inode] = b""
            self.change((key, inode))
        inode = self.names[key]
        self.handles[handle] = (inode, bool(flags & os.O_APPEND), 0)
        if flags & os.O_TRUNC and self.content[inode]:
            self.cut(inode, 0)

    def cut(self, inode: int, size: int) -> None:
        if len(self.content[inode]) != size:
            self.log.append(Write(inode, size, None))
            self.content[inode] = self.content[inode][:size].ljust(size, b"\0")

    def write(self, _: None, handle: int, data: bytes) -> None:
        inode, append, place = self.handles[handle]
        place = len(self.content[inode]) if append else place
        self.handles[handle] = (inode, append, place + len(data))
        self.log.append(Write(inode, place, bytes(data)))
        self.content[inode] = put(self.content[inode], place, data)

    def truncate(self, _: None, handle: int, size: int) -> None:
        self.cut(self.handles[handle][0], size)

    def sync(self, _: None, handle: int) -> None:
        self.log.append(Synced(self.handles[handle][0], False))

    def sync_folder(self, _: None, folder: Path) -> None:
        self.log.append(Synced(self.inode(folder), True))

    def close(self, _: None, handle: int) -> None:
        self.handles.pop(handle, None)

    def replace(self, _: None, path: Path, new: Path) -> None:
        inode = self.names[self.key(path)]
        self.change((self.key(path), None), (self.key(new), inode))

    def exchange(self, done: bool, one: Path, other: Path) -> None:
        if done:
            a, b = self.key(one), self.key(other)
            self.change((a, self.names[b]), (b, self.names[a]))

    def remove(self, _: None, path: Path) -> None:
        if self.key(path) in self.names:
            self.change((self.key(path), None))

    def make_folder(self, _: None, path: Path) -> None:
        inode = next(self.count)
        self.folders.add(inode)
        self.change((self.key(path), inode))

    def remove_folder(self, _: None, path: Path) -> None:
        self.change((self.key(path), None))


RECORDED = ("create", "write", "truncate", "sync", "sync_folder", "close", "replace", "exchange",
            "remove", "make_folder", "remove_folder")  # fmt: skip


@contextlib.contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    """Record all operations on files below a folder."""
    recorder = Recorder(root)
    real = {name: getattr(operations, name) for name in RECORDED}

    def followed(name: str) -> Any:
        def operation(*args: Any) -> Any:
            done = real[name](*args)
            by_handle = name in ("write", "truncate", "sync", "close")
            if args[0] in recorder.handles if by_handle else recorder.has(args[0]):
                getattr(recorder, name)(done, *args)
            return done

        return operation

    try:
        for name in RECORDED:
            setattr(operations, name, followed(name))
        yield recorder
    finally:
        for name, function in real.items():
            setattr(operations, name, function)


def put(content: bytes, place: int, data: bytes | None) -> bytes:
    """A file's content after a write."""
    if data is None:
        return content[:place].ljust(place, b"\0")
    return content[:place].ljust(place, b"\0") + data + content[place + len(data) :]


def contents(base: bytes, writes: list[Write]) -> set[bytes]:
    """What may be in a file after some writes that nothing forces, on top of what lasts."""
    if len(writes) > MOST_WRITES:
        raise ValueError(f"{len(writes)} writes are open: more than can be enumerated")
    found = {base}
    for end in range(1, len(writes) + 1):
        *before, last = writes[:end]
        for size in (len(last.data or b"") // 2, len(last.data or b"") - 1):
            if size > 0:
                torn = Write(last.inode, last.place, (last.data or b"")[:size])
                found.add(_written(base, [*before, torn], ()))
        for count in range(end + 1):
            for lost in itertools.combinations(range(end), count):
                found.add(_written(base, [*before, last], lost))
    return found


def _written(base: bytes, writes: list[Write], lost: tuple[int, ...]) -> bytes:
    """A file after some writes, of which those that are lost left their length alone, as zeros."""
    now = base
    for number, each in enumerate(writes):
        data = bytes(len(each.data)) if each.data is not None and number in lost else each.data
        now = put(now, each.place, data)
    return now


def states(recorder: Recorder) -> list[tuple[list[Any], Tree]]:
    """Each state once: the most that was promised by then, and what is on the disk."""
    found: dict[tuple[Any, ...], tuple[list[Any], Tree]] = {}
    for end in range(len(recorder.log) + 1):
        promised = [each.said for each in recorder.log[:end] if isinstance(each, Mark)]
        for tree in after(recorder, end):
            found[tuple(sorted(tree.items(), key=lambda item: item[0]))] = promised, tree
    return list(found.values())


def after(recorder: Recorder, end: int) -> Iterator[Tree]:
    """The states of a crash after so many operations."""
    log = recorder.log[:end]
    files: dict[int, int] = {}  # when each was synced last
    folders: dict[int, int] = {}
    for number, each in enumerate(log):
        if isinstance(each, Synced):
            (folders if each.folder else files)[each.inode] = number
    bases, open_writes = dict(recorder.first_content), dict[int, list[Write]]()
    for number, each in enumerate(log):
        if isinstance(each, Write):
            if number < files.get(each.inode, -1):
                bases[each.inode] = put(bases.get(each.inode, b""), each.place, each.data)
            else:
                open_writes.setdefault(each.inode, []).append(each)
    changes = [(number, each) for number, each in enumerate(log) if isinstance(each, Names)]
    forced = {
        number
        for number, each in changes
        if any(number < folders.get(folder, -1) for (folder, _), _ in each.now)
    }
    free = [number for number, _ in changes if number not in forced]
    if len(free) > MOST_NAMES:
        raise ValueError(f"{len(free)} changes of names are open: more than can be enumerated")
    choices = {
        inode: sorted(contents(bases.get(inode, b""), writes))
        for inode, writes in open_writes.items()
    }
    for size in range(len(free) + 1):
        for chosen in itertools.combinations(free, size):
            kept = forced | set(chosen)
            names = dict(recorder.first_names)
            for number, each in changes:
                if number in kept:
                    for key, inode in each.now:
                        names[key] = inode  # type: ignore[assignment]
            paths = dict(reached(recorder, names))
            varied = [inode for inode in dict.fromkeys(paths.values()) if inode in choices]
            for contents_now in itertools.product(*(choices[inode] for inode in varied)):
                given = {**bases, **dict(zip(varied, contents_now, strict=True))}
                yield {
                    path: None if inode in recorder.folders else given.get(inode, b"")
                    for path, inode in paths.items()
                }


def reached(recorder: Recorder, names: dict[tuple[int, str], int]) -> Iterator[tuple[str, int]]:
    """The paths that lead somewhere from the root, each with its inode."""
    below: dict[int, list[tuple[str, int]]] = {}
    for (folder, name), inode in names.items():
        if inode is not None:
            below.setdefault(folder, []).append((name, inode))
    open_folders = [("", 0)]
    while open_folders:
        prefix, folder = open_folders.pop()
        for name, inode in sorted(below.get(folder, ())):
            yield prefix + name, inode
            if inode in recorder.folders:
                open_folders.append((f"{prefix}{name}/", inode))


def tree_of(root: Path) -> Tree:
    """What lies below a folder."""
    return {
        path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def lay(tree: Tree, root: Path) -> None:
    """Put a state on the disk, in place of what is there."""
    if root.exists():
        shutil.rmtree(root)
    root.mkdir(parents=True)
    for path, data in sorted(tree.items()):
        if data is None:
            (root / path).mkdir(parents=True, exist_ok=True)
        else:
            (root / path).write_bytes(data)
