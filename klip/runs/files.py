"""Files that are whole or not there, and errors of the disk in words."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from klip.disk import operations
from klip.errors import KlipError

LARGEST_TEXT = 32_000_000
"""Bytes of JSON that are read; the index of a study of 5,000 runs has a fifth of that."""
MOST_PARTS = 1_000_000
"""Lists and tables in one JSON file, which take some 60 bytes each."""

_WAY_OUT = {
    errno.ENOSPC: "the disk is full: free some space, then give the same command again",
    errno.EDQUOT: "the quota is used up: free some space, then give the same command again",
    errno.ELOOP: "there is a link in its place, which is not followed: remove it",
    errno.EROFS: "the file system is read-only: give another folder with --out",
    errno.EACCES: "there is no permission to write there: give another folder with --out",
    errno.EPERM: "there is no permission to write there: give another folder with --out",
}


class DiskTrouble(KlipError):
    """A file could not be written; what was there before still is."""


def shown(text: str) -> str:
    r"""Text that is safe in a terminal: what is not printable is escaped.

    >>> shown("a\x1b[2J")
    'a\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def read_file(path: Path, most: int | None = None) -> bytes:
    """A file's content; anything else of that name, such as a pipe, is refused: it may block.

    So is a file of more than `most` bytes, before any of it is read.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file")
    if most is None:
        return path.read_bytes()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"its {size:,} bytes are more than the {most:,} it may have")
        return file.read(most)


def digest_of(path: Path) -> str:
    """The sha256 of a file, however large it is; "" where there is none that can be read."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def read_json(path: Path, most: int = LARGEST_TEXT) -> Any:
    """What a JSON file says; one that would take far more memory than its bytes is refused.

    Raises OSError where it cannot be read, and ValueError where it is not JSON or too large.
    """
    return of_json(read_file(path, most))


def of_json(data: bytes) -> Any:
    """What JSON says, unless it is so nested, or of so many parts, that nobody can have written it.

    >>> of_json(b'{"seed": 0}')
    {'seed': 0}
    """
    if data.count(b"[") + data.count(b"{") > MOST_PARTS:
        raise ValueError(f"it has more than {MOST_PARTS:,} lists and tables")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None


def own_folder(folder: Path, *below: str) -> Path:
    """Make a folder for output, and folders below it by their names; return the last.

    None of them may be a link: what is written stays where it was asked for.
    """
    for name in ("", *below):
        folder = folder / name
        if folder.is_symlink():
            raise KlipError(
                f"{shown(str(folder))} is a link to {shown(os.readlink(folder))}, and output does "
                "not follow links: give the folder itself, or remove the link"
            )
        with disk(folder):
            operations.make_folders(folder)
    return folder


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn what the operating system says about `path` into a sentence with a way out."""
    try:
        yield
    except OSError as error:
        hint = _WAY_OUT.get(error.errno or 0, "mend that, then give the same command again")
        raise DiskTrouble(f"cannot write {shown(str(path))} ({error.strerror}); {hint}") from None


def write_whole(path: Path, data: bytes, keep: Path | None = None) -> None:
    """Write a file aside, sync it, and put it in place in one step; the old one goes to `keep`.

    Whoever reads `path`, and whenever the machine stops, finds the old content or the new.
    """
    with disk(path):
        part, handle = _aside(path)
        try:
            operations.write(handle, data)
            operations.sync(handle)
            if keep is not None and path.exists():
                operations.replace(path, keep)
            operations.replace(part, path)
        except OSError:
            operations.remove(part)
            raise
        finally:
            operations.close(handle)
        operations.sync_folder(path.parent)


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, to be filled and put in its place; what is left of it is removed.

    What others have left there when they were killed is removed, too.
    """
    with disk(path):
        _sweep(path)
        part = path.with_name(_part_of(path.name))
        operations.make_folder(part)
        handle = os.open(part, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield part
    finally:
        try:
            with disk(part):
                if part.is_dir():
                    operations.remove_tree(part)
        finally:
            os.close(handle)


def put_folder(part: Path, path: Path) -> None:
    """Put a folder in place of another, or where none is, in one step; the old one is then `part`.

    Where the system cannot do that in one step, the old one is moved away first.
    """
    with disk(path):
        operations.sync_folder(part)
        if not path.exists() or not any(path.iterdir()):
            operations.replace(part, path)
        elif not operations.exchange(part, path):
            old = path.with_name(_part_of(path.name))
            operations.replace(path, old)
            try:
                operations.replace(part, path)
            except OSError:
                operations.replace(old, path)
                raise
            operations.replace(old, part)
        operations.sync_folder(path.parent)


def _aside(path: Path) -> tuple[Path, int]:
    """A new file beside `path`, and its handle, under a name of its own; a lock on it says so.

    Files that others left when they were killed have no lock any more, and are removed.
    """
    _sweep(path)
    while True:
        part = path.with_name(_part_of(path.name))
        handle = operations.create(part, os.O_WRONLY | os.O_EXCL)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(part).st_ino == os.fstat(handle).st_ino:
                return part, handle
        except (BlockingIOError, FileNotFoundError):  # somebody took it for one that was left
            pass
        except BaseException:
            operations.close(handle)
            raise
        operations.close(handle)


def _part_of(name: str) -> str:
    return f".{name[:200]}.{secrets.token_hex(4)}.part"


def sweep(folder: Path) -> None:
    """Remove what writers of any file left in a folder of ours when they were killed."""
    with disk(folder):
        _sweep(folder / "", r".+")


def _sweep(path: Path, name: str = "") -> None:
    """Remove what writers of `path` left beside it when they were killed."""
    own = re.compile(rf"\.{name or re.escape(path.name[:200])}\.[0-9a-f]{{8}}\.part")
    folder = path if name else path.parent
    for part in [Path(each) for each in os.scandir(folder) if own.fullmatch(each.name)]:
        with contextlib.suppress(OSError):  # it is a link, or gone, or in use
            handle = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if part.is_dir():
                    operations.remove_tree(part)
                else:
                    operations.remove(part)
            finally:
                os.close(handle)
