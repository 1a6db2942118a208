"""Runs for TensorBoard and W&B, read from their folders: while they are trained, or afterwards.

The metrics file stays the truth. `.sync.json`, beside a sink's output, says which rows the sink
has, so that rows are added once; where the metrics are no longer those that were sent, all is
written anew. The sinks themselves are in `sink_tensorboard` and `sink_wandb`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klip.errors import KlipError
from klip.runs.checkpoint import Damaged
from klip.runs.files import DiskTrouble, read_json, write_whole
from klip.runs.lock import is_locked
from klip.runs.record import Record, read_run, run_paths
from klip.runs.store import METRICS, NEWEST, slug
from klip.theory.diagnostics import QUANTILE_LABELS

SINKS = ("tensorboard", "wandb")
"""Each is a module `klip.runs.sink_<name>` with `opened(online)` and `way_on(outputs)`."""
ENDED = ("done", "diverged", "failed")
STATE = ".sync.json"
QUIET_LOOKS = 3
"""following ends after this many looks in a row at which nobody trains"""
_GROUPS = {
    "return": "return|length|episode",
    "samples": "kept|weakened|zeroed|reversed|strengthened|pull",
    "partition": "inside|kill|pass|changed_class",
    "ratio": "ratio",
    "beta": "beta",
    "kl": "kl|k1|k3|rollout_kl",
}
_FORMAT = 1


@dataclass(frozen=True)
class Sent:
    """What a sink has of a run."""

    rows: int
    size: int
    """bytes of those rows in the metrics file"""
    sha256: str
    """digest of those bytes"""
    status: str
    """the run's status when it was last sent"""
    output: str
    """the sink's file"""
    output_size: int

    @staticmethod
    def of(rows: Sequence[Mapping[str, Any]], status: str, output: str, output_size: int) -> Sent:
        """What a sink has after these rows were sent."""
        text = _text(rows)
        digest = hashlib.sha256(text).hexdigest()
        return Sent(len(rows), len(text), digest, status, output, output_size)

    def begins(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether rows begin with those that were sent."""
        text = _text(rows[: self.rows])
        return len(text) == self.size and hashlib.sha256(text).hexdigest() == self.sha256


@dataclass(frozen=True)
class Synced:
    """What became of one run."""

    run: Path
    id: str
    status: str
    rows: int
    """rows that the sink has now"""
    new: int
    """rows that it did not have before"""
    outcome: str
    """added, unchanged, written anew, no rows, left out, or cannot be read"""
    output: Path | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sink:
    """Where metrics go: `write(record, folder)` brings the sink up to date with a run."""

    write: Callable[[Record, Path], Synced]
    pause: float = 0.0
    """seconds between two writes of a run that is being trained"""
    folder: str = ""
    """name of its output folder, beside the runs'; empty where the sink makes one itself"""


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by their tags, `group/name`; None is left out.

    >>> scalars({"step": 64, "kl": 0.5, "return_mean": None, "controller.beta": 2.0})
    {'kl/kl': 0.5, 'controller/beta': 2.0}
    >>> scalars({"epoch.kill": [0.0, 0.25]})
    {'epoch/kill_01': 0.0, 'epoch/kill_02': 0.25}
    >>> scalars({"age.kill": [None, 0.25]})
    {'age/kill_01': 0.25}
    """
    numbers: dict[str, float] = {}
    for name, value in row.items():
        if name != "step":
            _spread(numbers, _tag(name), value)
    return numbers


def step_of(row: Mapping[str, Any]) -> int:
    """The environment steps that a row was written after."""
    step = row.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 2**63:
        raise Damaged(f"row {row.get('iteration')} of {METRICS} has no step")
    return step


def read_state(path: Path) -> tuple[Sent | None, list[str]]:
    """What a sink has of a run, None if that is not known; and a note if the file is damaged."""
    try:
        data = read_json(path, most=10_000)
        if data.pop("format") != _FORMAT:
            raise ValueError(path)
        sent = Sent(**data)
        kinds = {"int": int, "str": str}  # a field's type is text here
        if any(type(data[f.name]) is not kinds[str(f.type)] for f in dataclasses.fields(Sent)):
            raise ValueError(path)
        return sent, []
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None, [f"{path} is damaged, so all was written anew"]


def write_state(path: Path, sent: Sent) -> None:
    """Write down what a sink has; whoever reads it finds the old state or the new."""
    data = {"format": _FORMAT, **dataclasses.asdict(sent)}
    write_whole(path, (json.dumps(data, indent=2) + "\n").encode())


def open_sink(to: str, *, online: bool = False) -> AbstractContextManager[Sink]:
    """The sink of this name; its package is an extra."""
    sink: AbstractContextManager[Sink] = _module(to).opened(online)
    return sink


def way_on(to: str, outputs: Sequence[Path]) -> str:
    """How to look at what a sink wrote, for a person."""
    text: str = _module(to).way_on(outputs)
    return text


def _module(to: str) -> Any:
    if to not in SINKS:
        raise KlipError(f"--to {to} is not known; choose {' or '.join(SINKS)}")
    try:
        return importlib.import_module(f"klip.runs.sink_{to}")
    except ImportError as error:
        raise missing(to, error) from None


def missing(extra: str, error: ImportError) -> KlipError:
    """The error for an extra that is not installed."""
    return KlipError(f'--to {extra} needs `pip install "klip-rl[{extra}]"` ({error})')


def sync(
    path: str | Path,
    to: str,
    to_dir: str | Path | None = None,
    follow: bool = False,
    online: bool = False,
) -> list[Synced]:
    """Bring TensorBoard or W&B up to date with runs; return what became of each run.

    >>> [synced.rows for synced in sync("runs", "tensorboard")]  # doctest: +SKIP

    Args:
        path: a run, or a folder with runs below it
        to: tensorboard or wandb, each an extra of Klip
        to_dir: folder to write to; one beside the runs' folder unless given
        follow: go on until nobody trains these runs any more, or until Ctrl-C
        online: send to the W&B account of this machine, instead of keeping it in files

    Returns:
        for each run how many rows the sink has now, how many of them are new, and where they are

    """
    path, folder = Path(path), None if to_dir is None else Path(to_dir)
    if follow:
        return list(followed(path, to, folder, online=online))
    with open_sink(to, online=online) as sink:
        paths = run_paths(path)
        if not paths:
            raise KlipError(f"there are no runs in {path}; `klip train` makes them")
        taken: dict[str, Path] = {}
        return [_sync_one(sink, run, folder, taken) for run in paths]


def followed(
    path: Path,
    to: str,
    folder: Path | None = None,
    *,
    online: bool = False,
    every: float = 3.0,
) -> Iterator[Synced]:
    """Sync what changes, until nobody trains any more or an interrupt; runs may appear later."""
    synced: dict[Path, Any] = {}
    written: dict[Path, float] = {}
    taken: dict[str, Path] = {}
    quiet, began = 0, time.monotonic()
    with open_sink(to, online=online) as sink:
        while quiet < QUIET_LOOKS:
            paths = run_paths(path)
            marks = {run: _mark(run) for run in paths}
            trained = [run for run in paths if marks[run][0]]
            quiet = 0 if trained or not paths else quiet + 1
            try:
                for run in paths:
                    rested = time.monotonic() - written.get(run, began) >= sink.pause
                    if synced.get(run) == marks[run] or (run in trained and not rested):
                        continue
                    yield _sync_one(sink, run, folder, taken)
                    synced[run], written[run] = marks[run], time.monotonic()
                if quiet < QUIET_LOOKS:
                    time.sleep(every)
            except KeyboardInterrupt:
                quiet = QUIET_LOOKS
                for run in paths:
                    if synced.get(run) != _mark(run):
                        yield _sync_one(sink, run, folder, taken)


def _sync_one(sink: Sink, path: Path, folder: Path | None, taken: dict[str, Path]) -> Synced:
    """Sync one run; damage to it does not stop its neighbours."""
    id = path.resolve().name.rsplit("-", 1)[-1]
    first = taken.setdefault(id, path)
    if first != path:
        return Synced(path, id, "", 0, 0, "left out", None, (f"it is the same run as {first}",))
    try:
        record = read_run(path)
        if not record.rows:
            outcome = "cannot be read" if record.status == "damaged" else "no rows"
            return Synced(path, id, record.status, 0, 0, outcome, None, tuple(record.notes))
        for row in record.rows:
            step_of(row)
        done = sink.write(record, folder or default_folder(record, sink))
    except DiskTrouble as error:
        raise DiskTrouble(str(error).replace("--out", "--to-dir")) from None
    except Damaged as error:
        return Synced(path, id, "damaged", 0, 0, "cannot be read", None, (str(error),))
    return dataclasses.replace(done, notes=(*record.notes, *done.notes))


def default_folder(record: Record, sink: Sink) -> Path:
    """The sink's folder, next to that of the runs."""
    path = Path(os.path.abspath(record.path))  # beside what was named, wherever links lead
    usual = path.parts[-3] == slug(str(record.config["task"])) if len(path.parents) > 3 else False
    beside = path.parents[3] if usual else path.parent
    return beside / sink.folder


def title(record: Record) -> str:
    """A run in a few words."""
    names = (record.config.get(name) for name in ("arm", "shape", "kind"))
    return f"{next(filter(None, names), '')} seed {record.config.get('seed')}"


def _mark(path: Path) -> tuple[bool, tuple[Any, ...]]:
    """Whether a run is being trained, and what changes whenever its files do."""
    stamps = []
    for name in (METRICS, NEWEST):
        try:
            about = (path / name).stat()
            stamps.append((about.st_mtime_ns, about.st_size, about.st_ino))
        except OSError:
            stamps.append((0, 0, 0))
    return is_locked(path), tuple(stamps)


def _tag(name: str) -> str:
    group, dot, rest = name.partition(".")
    if dot:
        return f"{group}/{rest}"
    named = (group for group, pattern in _GROUPS.items() if re.match(pattern, name))
    return f"{next(named, 'update')}/{name}"


def _spread(numbers: dict[str, float], tag: str, value: Any) -> None:
    """Add a number under its tag, or those of a list, each under its quantile or place."""
    if isinstance(value, list):
        quantiles = tag.startswith("beta/") and len(value) == len(QUANTILE_LABELS)
        for place, part in enumerate(value):
            first = 0 if tag.startswith("age/") else 1  # ages begin with 0
            label = QUANTILE_LABELS[place] if quantiles else f"{place + first:02d}"
            _spread(numbers, f"{tag}_{label}", part)
    elif isinstance(value, int | float):
        try:
            numbers[tag] = float(value)
        except OverflowError:  # a whole number of hundreds of digits: not one of Klip's
            return


def _text(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as they stand in the metrics file."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
