"""Every state in which a crash could leave the disk, and the product started on each of them.

    python benchmarks/crashes.py [--only run page ...] [--json]

With --json each life is kept when it is done, and the same command goes on with those that are not.

The operations of whole lives are recorded (made, trained, saved, retained, stopped, gone on with,
ended; packed and exported over what is there; a page, events for TensorBoard, a league's frozen
choices), and `crash_states` builds every state that a crash could leave. From each the product goes
on: nothing that it promised is lost, nothing is called damaged, and it ends with the bytes of a
life without a crash. Planted faults show that this finds what it should. Ends with status 1
otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crash_lives as lives
from crash_states import lay, recorded, states
from records import Record

from klip.disk import operations
from klip.runs import store

RESULT = Path(__file__).parent / "results" / "crashes.json"
Promise = Callable[[Any], None]


@dataclass(frozen=True)
class Life:
    """Something that is done to files, and what must come of it after a crash."""

    prepare: Callable[[Path], None]
    """makes what is there before, all of it durable"""
    act: Callable[[Path, Promise], None]
    """what is recorded; it says what it promises"""
    recover: Callable[[Path, list[Any]], None]
    """goes on from a state, and raises `Wrong` unless all is as it should be"""
    cheap: bool = True
    """whether all states take seconds"""


LIVES = {
    "run": Life(lives.nothing, lives.toy_life, lives.toy_recovers),
    "run gone on with": Life(lives.toy_torn, lives.toy_goes_on, lives.toy_recovers),
    "run with a damaged checkpoint": Life(
        lives.toy_damaged, lives.toy_goes_on, lives.toy_recovers_in_the_end
    ),
    "page": Life(lives.page_before, lives.page, lives.page_recovers),
    "pack": Life(lives.nothing, lives.pack, lives.pack_recovers),
    "pack over another": Life(lives.pack_before, lives.pack, lives.pack_recovers),
    "folder in place of another": Life(lives.folder_before, lives.folder, lives.folder_recovers),
    "events": Life(lives.events_before, lives.events, lives.events_recover),
    "league": Life(lives.league_before, lives.league, lives.league_recovers),
    "PPO": Life(lives.nothing, lives.trains("ppo"), lives.trains_on("ppo"), cheap=False),
    "replay": Life(lives.nothing, lives.trains("replay"), lives.trains_on("replay"), cheap=False),
    "warm-up": Life(
        lives.nothing, lives.trains("warm-up"), lives.trains_on("warm-up"), cheap=False
    ),
    "tokens": Life(lives.warmed, lives.trains("tokens"), lives.trains_on("tokens"), cheap=False),
    "export over another": Life(
        lives.export_before, lives.export_anew, lives.export_recovers, cheap=False
    ),
}


def tried(life: Life, folder: Path, most_wrong: int = 5) -> dict[str, Any]:
    """Record a life, and start the product on every state; how many there were, and what failed."""
    began = time.perf_counter()
    root, trial = folder / "life", folder / "trial"
    root.mkdir(parents=True)
    life.prepare(root)
    with recorded(root) as recorder:
        life.act(root, recorder.mark)
    found = states(recorder)
    wrong: list[str] = []
    for number, (promised, tree) in enumerate(found):
        lay(tree, trial)
        try:
            life.recover(trial, promised)
        except Exception as error:
            wrong.append(f"state {number}: {type(error).__name__}: {error}"[:500])
            if len(wrong) >= most_wrong:
                break
    return {
        "operations": len(recorder.log),
        "states": len(found),
        "wrong": wrong,
        "seconds": round(time.perf_counter() - began, 1),
    }


# -- faults that must be found --------------------------------------------------------------------


def _named_before_synced(path: Path, data: bytes, keep: Path | None = None) -> None:
    part = path.with_name(f".{path.name}.00000000.part")
    handle = operations.create(part)
    operations.write(handle, data)
    if keep is not None and path.exists():
        operations.replace(path, keep)
    operations.replace(part, path)
    operations.sync_folder(path.parent)
    operations.sync(handle)
    operations.close(handle)


def _retained_too_early(path: Path, data: bytes, keep: Path | None = None) -> None:
    if keep is not None:
        operations.remove(keep)
        if path.exists():
            operations.replace(path, keep)
        operations.remove(keep)
    _whole(path, data)


def _not_cut_back(self: Any) -> int:
    path = self.path / store.METRICS
    point, kept = self.checkpoint, b""
    if point is not None:
        kept = store.metrics_in(path, point)[0]
    self._deflate, self._sha256, self._size = store.Deflate(), store.hashlib.sha256(), 0
    self._take_in(kept)
    return operations.create(path, store.os.O_WRONLY | store.os.O_APPEND)


_whole = store.write_whole
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "a file gets its name before it is synced": (store, "write_whole", _named_before_synced),
    "rows are added without a look at the last line": (
        store.RunFolder, "_open_metrics", _not_cut_back,
    ),
    "the old checkpoint goes before the new one lasts": (store, "write_whole", _retained_too_early),
}  # fmt: skip


@contextlib.contextmanager
def planted(fault: str) -> Iterator[None]:
    """The product with a fault in it."""
    home, name, function = FAULTS[fault]
    real = getattr(home, name)
    setattr(home, name, function)
    try:
        yield
    finally:
        setattr(home, name, real)


def found_out(fault: str, folder: Path) -> bool:
    """Whether a planted fault is found."""
    with planted(fault):
        return bool(tried(LIVES["run"], folder, most_wrong=1)["wrong"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(LIVES), choices=list(LIVES))
    parser.add_argument("--json", action="store_true", help=f"write {RESULT.name}")
    given = parser.parse_args()
    record = Record(RESULT if given.json else None)
    done, found = record.part("lives"), record.part("planted faults found")
    with tempfile.TemporaryDirectory(dir=lives.fast_folder()) as folder:
        for name in given.only:
            if name not in done:
                done[name] = tried(LIVES[name], Path(folder, name))
                record.keep()
            print(f"{name}: {json.dumps(done[name])}", flush=True)
        for fault in FAULTS:
            found[fault] = found.get(fault) or found_out(fault, Path(folder, fault))
            print(f"{fault}: {'found' if found[fault] else 'NOT FOUND'}", flush=True)
    wrong = [line for each in done.values() for line in each["wrong"]]
    record.data |= {"states": sum(each["states"] for each in done.values()), "wrong": len(wrong)}
    record.keep()
    print(f"{record.data['states']:,} states, {len(wrong)} of them went wrong")
    return 1 if wrong or not all(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
