"""The operations themselves, each one step on the disk, thin over the operating system's.

A file is known by its handle while it is written. Nothing lasts before it is synced: what is in a
file by `sync`, the names in a folder by `sync_folder`.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_HERE = -100  # AT_FDCWD: paths are as they are given
_SWAP = 2  # RENAME_EXCHANGE
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def create(path: Path, flags: int = os.O_WRONLY | os.O_TRUNC) -> int:
    """Open a file to write it, and make it if it is not there; a link is not followed."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o666)


def write(handle: int, data: bytes) -> None:
    """Write all of it: a disk that is nearly full takes a part, and fails after that."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def truncate(handle: int, size: int) -> None:
    """Cut a file to a size."""
    os.ftruncate(handle, size)


def sync(handle: int) -> None:
    """Wait until what is in a file lasts."""
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def close(handle: int) -> None:
    """Let go of a file."""
    os.close(handle)


def replace(path: Path, new: Path) -> None:
    """Rename a file or a folder; what has the new name is gone."""
    os.replace(path, new)


def exchange(one: Path, other: Path) -> bool:
    """Let two paths change places in one step; False where the system cannot do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number))


def remove(path: Path) -> None:
    """Remove a file or a link; it need not be there."""
    path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder; the one above must be there."""
    os.mkdir(path)


def remove_folder(path: Path) -> None:
    """Remove an empty folder."""
    os.rmdir(path)


def make_folders(path: Path) -> None:
    """Make a folder and those above it that are not there, each so that its name lasts."""
    missing = [path, *path.parents]
    missing = missing[: next((i for i, each in enumerate(missing) if each.is_dir()), len(missing))]
    for folder in reversed(missing):
        try:
            make_folder(folder)
        except FileExistsError:
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            continue  # somebody else has just made it
        sync_folder(folder.parent)


def remove_tree(path: Path) -> None:
    """Remove a folder and all that is in it; links in it are not followed."""
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            remove_tree(Path(entry.path))
        else:
            remove(Path(entry.path))
    remove_folder(path)
