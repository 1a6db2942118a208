"""Compiled programs, kept between processes, so that a second training starts at once.

JAX can keep what it compiles in a folder, but it trusts every file there and writes them in place.
So each process has a folder of its own, an *annex*: it finds links to the programs of the store
there, each checked by the checksum in its name, and what it adds is moved into the store whole.

    ~/.cache/klip/<machine>/jit_update-5c1f...-cache.1b2ff309     the store
                            annex-4711-x8a7/jit_update-5c1f...-cache

The environment variable KLIP_CACHE names another folder than the user's cache, or says `off`.
Results do not depend on it: the same machine code is loaded that would be compiled.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from klip.errors import KlipError
from klip.runs.files import shown
from klip.runs.machine import this_machine

BOUND = 200_000_000  # bytes that the store may hold; the oldest programs go first
QUICK = 0.05  # seconds; what compiles faster is not worth a file
PATIENCE = 5.0  # seconds to wait for another process that looks through the store
_ENDING = "-cache"  # of JAX's file names

_nested = False  # the outermost `kept_programs` of a process is the one that counts


def cache_folder() -> Path | None:
    """The folder of the store, as KLIP_CACHE or the system's custom has it; None if it is off."""
    asked = os.environ.get("KLIP_CACHE", "")
    if asked:
        return None if asked == "off" else Path(asked).absolute()
    custom = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home
        return None
    usual = home / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return (Path(custom) if os.path.isabs(custom) else usual) / "klip"


@contextmanager
def kept_programs(libraries: Collection[str] = ("jax",)) -> Iterator[Callable[[], None]]:
    """Let JAX, if it is among `libraries`, use the store; yields a function that exchanges.

    It adds to the store what was compiled since, and takes what others have added; so does the end
    of this. Where the folder cannot be written, every
    process compiles for itself.
    """
    global _nested
    folder = cache_folder() if "jax" in libraries else None
    annex = None if _nested or folder is None else _annex(folder)
    if annex is None:
        yield lambda: None
        return
    _nested = True
    try:
        with _used_by_jax(annex.folder):
            yield annex.exchange
    finally:
        _nested = False
        annex.close()


@contextmanager
def _used_by_jax(folder: Path) -> Iterator[None]:
    import jax
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    options = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": QUICK,
        "jax_persistent_cache_enable_xla_caches": "none",  # or the folder's name is in every key
    }
    before = {name: getattr(jax.config, name) for name in options}
    try:
        for name, value in options.items():
            jax.config.update(name, value)  # type: ignore[no-untyped-call]
        reset_cache()  # JAX looks for a folder once
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)  # type: ignore[no-untyped-call]
        reset_cache()


def _annex(folder: Path) -> Annex | None:
    machine = {**this_machine(("jax", "jaxlib")), "flags": os.environ.get("XLA_FLAGS", "")}
    name = hashlib.sha256(repr(sorted(machine.items())).encode()).hexdigest()[:16]
    store = folder / name
    try:
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        _only_mine(folder)
        _only_mine(store)
        with _looking_through(folder):
            _tidy(folder)
            return Annex(store)
    except OSError:  # read-only, full, or somebody holds the lock: it is only a cache
        return None


def _only_mine(folder: Path) -> None:
    """Refuse a folder that others can write: what lies there is run as machine code."""
    about = folder.stat()
    if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise KlipError(
            f"others can write {shown(str(folder))}, and compiled programs are loaded from there: "
            f"chmod 700 it, give a folder of your own with KLIP_CACHE, or KLIP_CACHE=off"
        )


@contextmanager
def _looking_through(folder: Path) -> Iterator[None]:
    """Hold the store's lock: one process at a time tidies, and makes its annex."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        until = time.monotonic() + PATIENCE
        while not _locked(handle):
            if time.monotonic() > until:
                raise TimeoutError(f"{folder} stays locked")
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Take the lock of an open file or folder; False if somebody else holds it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tidy(folder: Path) -> None:
    """Remove the annexes of processes that were killed, and the oldest programs beyond `BOUND`."""
    for annex in folder.glob("*/annex-*"):
        try:
            handle = os.open(annex, os.O_RDONLY)
        except FileNotFoundError:  # its process has just ended
            continue
        try:
            if _locked(handle):
                shutil.rmtree(annex, ignore_errors=True)
        finally:
            os.close(handle)
    programs = []
    for path in folder.glob(f"*/*{_ENDING}.*"):
        with contextlib.suppress(FileNotFoundError):  # it was damaged, and another process saw it
            about = path.stat()
            programs.append((about.st_mtime, about.st_size, path))
    room = BOUND
    for _, size, path in sorted(programs, reverse=True):
        room -= size
        if room < 0:
            path.unlink(missing_ok=True)


class Annex:
    """A folder of this process, with links to the whole programs of the store."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.folder = Path(tempfile.mkdtemp(prefix=f"annex-{os.getpid()}-", dir=store))
        self._handle = os.open(self.folder, os.O_RDONLY)
        _locked(self._handle)
        self.known: set[str] = set()
        self.exchange()

    def exchange(self) -> None:
        """Put programs that are new here into the store, each in one step; take those of others."""
        with contextlib.suppress(OSError):  # a full disk, say: what is not kept is compiled again
            for path in self.folder.glob(f"*{_ENDING}"):
                if path.name not in self.known:
                    self.known.add(path.name)
                    _link(path, self.store / f"{path.name}.{_checksum(path)}")
            for path in self.store.glob(f"*{_ENDING}.*"):
                name, _, checksum = path.name.rpartition(".")
                if name in self.known:
                    continue
                if _checksum(path) == checksum:
                    self.known.add(name)
                    _link(path, self.folder / name)
                else:
                    path.unlink(missing_ok=True)  # it is damaged

    def close(self) -> None:
        """Put what is new into the store, and leave nothing else behind."""
        self.exchange()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._handle)


def _link(path: Path, to: Path) -> None:
    with contextlib.suppress(FileNotFoundError, FileExistsError):  # another process was quicker
        os.link(path, to)


def _checksum(path: Path) -> str:
    try:
        return f"{zlib.crc32(path.read_bytes()):08x}"
    except FileNotFoundError:  # another process made room
        return ""
