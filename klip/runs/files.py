"""Files that are whole or not there, and errors of the disk in words."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klip.errors import KlipError

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


def read_file(path: Path) -> bytes:
    """A file's content; anything else of that name, such as a pipe, is refused: it may block."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file")
    return path.read_bytes()


def no_link(path: str, flags: int) -> int:
    """Open a file to write it; a link in its place is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


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
            folder.mkdir(parents=True, exist_ok=True)
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
    aside = path.with_name(f".{path.name}.part")
    with disk(path):
        try:
            with open(aside, "wb", opener=no_link) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if keep is not None and path.exists():
                os.replace(path, keep)
            os.replace(aside, path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names in it last too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
