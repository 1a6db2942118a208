"""All that a report is made of: runs with their metrics, as one value.

    folder of runs ── read_study ──┐
                                   ├─> Study ──> tables, figures, page
    packed folder ─── unpack ──────┘

Everything downstream reads a `Study` and nothing else, so it cannot tell where one came from.
Nothing of a run is executed: a shape or task that is somebody's code is only named.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from klip.errors import KlipError
from klip.runs import Record, final_return, read_run, run_paths
from klip.runs.store import METRICS, NEWEST
from klip.shapes import Controller, Shape, parse
from klip.studies.published import PAPER, default_settings, settings_differ

Column = NDArray[np.float64]
"""`[rows]`, or `[rows, K]` for quantiles; NaN where a row has no value."""

ENDED = ("done", "diverged", "failed", "damaged")


@dataclass(frozen=True, eq=False)
class Run:
    """One run: its config, how it went, and its metrics as columns."""

    path: str
    """Relative to the folder that was read."""
    id: str
    config: Mapping[str, Any]
    status: str
    """running, stopped, done, diverged, failed or damaged"""
    reason: str
    machines: tuple[Mapping[str, Any], ...]
    history: tuple[str, ...]
    notes: tuple[str, ...]
    digest: str
    """Of all arrays and metrics: equal where two runs trained to the same bytes."""
    metrics: Mapping[str, Column] = field(repr=False)

    @property
    def task(self) -> str:
        """Its Gymnasium id."""
        return str(self.config["task"])

    @property
    def shape(self) -> str:
        """Its trust region, spelled in full."""
        return str(self.config["shape"])

    @property
    def seed(self) -> int:
        """What it was seeded with."""
        return int(self.config["seed"])

    @property
    def settings(self) -> dict[str, Any]:
        """The rest of its config; what it does not name is at its default."""
        own = ("task", "shape", "seed", "code")
        whole = {**default_settings(), **self.config}
        return {key: value for key, value in whole.items() if key not in own}

    @property
    def code(self) -> str:
        """A digest of the file that defines its shape, where that is somebody's."""
        return str(self.config.get("code", ""))

    @property
    def rows(self) -> int:
        """Iterations with metrics."""
        return len(self.metrics["step"]) if "step" in self.metrics else 0

    @property
    def iterations(self) -> int:
        """How many it will have in all."""
        return int(self.config["steps"] // (self.config["envs"] * self.config["rollout"]))

    @cached_property
    def final(self) -> float | None:
        """The final return in the paper's definition; None unless it is done."""
        if self.status != "done" or not {"step", "return_mean"} <= self.metrics.keys():
            return None
        pairs = zip(self.metrics["step"], self.metrics["return_mean"], strict=True)
        return final_return(
            [{"step": s, "return_mean": None if np.isnan(r) else r} for s, r in pairs]
        )


@dataclass(frozen=True, eq=False)
class Variant:
    """The runs of one task that differ in nothing but their seed."""

    task: str
    shape: str
    settings: Mapping[str, Any]
    label: str
    """The shape in brief, with the settings in which variants of its task differ."""
    runs: tuple[Run, ...]
    """By seed."""

    @property
    def scored(self) -> tuple[Run, ...]:
        """Those that have a final return."""
        return tuple(run for run in self.runs if run.final is not None)

    @property
    def scores(self) -> dict[int, float | None]:
        """From seed to final return, None where it diverged; those not done are not there."""
        ended = (run for run in self.runs if run.final is not None or run.status == "diverged")
        return {run.seed: run.final for run in ended}

    def count(self, *status: str) -> int:
        """How many runs have one of these statuses."""
        return sum(run.status in status for run in self.runs)


@dataclass(frozen=True, eq=False)
class Study:
    """Runs in order of task, shape and seed, and what could not be read."""

    runs: tuple[Run, ...]
    trouble: tuple[str, ...] = ()
    """Folders that are runs by their names and could not be read, and why."""

    @property
    def tasks(self) -> list[str]:
        """Their names, in order."""
        return list(dict.fromkeys(run.task for run in self.runs))

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """All runs, grouped; tasks in order, the paper's shapes before others."""
        groups: dict[tuple[str, str, str, str], list[Run]] = defaultdict(list)
        for run in self.runs:
            groups[run.task, run.shape, run.code, repr(sorted(run.settings.items()))].append(run)
        made = []
        for task in self.tasks:
            members = [runs for key, runs in groups.items() if key[0] == task]
            differing = _differing([runs[0].settings for runs in members])
            edited = _edited([runs[0] for runs in members])
            made += [_variant(runs, differing, edited) for runs in members]
        return tuple(sorted(made, key=lambda v: (v.task, _rank(v.shape), v.label)))

    def of(self, task: str) -> list[Variant]:
        """The variants of one task."""
        return [v for v in self.variants if v.task == task]

    @property
    def ended(self) -> bool:
        """Whether no run will change by itself any more."""
        return all(run.status in ENDED for run in self.runs)


def shape_of(spelling: str) -> Shape | Controller | None:
    """The shape that a run's config names; None for somebody's code, which is not executed."""
    if ":" in spelling:
        return None
    try:
        return parse(spelling)
    except KlipError:  # of another version of Klip
        return None


def label_of(spelling: str) -> str:
    """A shape in brief.

    >>> label_of("clip(eps=0.2)"), label_of("my.py:Mine(a=1)")
    ('clip', 'my.py:Mine(a=1)')
    """
    shape = shape_of(spelling)
    return spelling if shape is None else shape.brief


def plain(value: Any) -> str:
    """A setting's value as a person writes it.

    >>> plain(1000000), plain(0.0003), plain([64, 64])
    ('1,000,000', '0.0003', '64-64')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    return "-".join(map(plain, value)) if isinstance(value, (list, tuple)) else str(value)


def _variant(runs: Sequence[Run], differing: Sequence[str], edited: set[str]) -> Variant:
    first = runs[0]
    own = [f"{name} {plain(first.settings.get(name))}" for name in differing]
    # What the others share with the paper need not be said of them.
    usual = settings_differ(first.task, first.settings)
    said = [text for name, text in zip(differing, own, strict=True) if name in usual]
    if first.shape in edited:
        said.append(f"code {first.code}")
    label = ", ".join([label_of(first.shape), *said])
    return Variant(first.task, first.shape, first.settings, label, tuple(runs))


def _edited(runs: Sequence[Run]) -> set[str]:
    """Shapes whose file was changed between runs."""
    codes = {(run.shape, run.code) for run in runs}
    return {shape for shape, code in codes if any(s == shape and c != code for s, c in codes)}


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for one in settings for name in one)
    return [n for n in names if len({repr(one.get(n)) for one in settings}) > 1]


def _rank(shape: str) -> tuple[int, str]:
    known = [*PAPER.values()]
    return (known.index(shape) if shape in known else len(known), label_of(shape))


# -- from folders of runs -------------------------------------------------------------------------

MANY: Final = 60
"""Runs from which on it pays to read them in several processes."""

Stamp = tuple[tuple[int, int], ...]
Known = dict[Path, tuple[Stamp, Run]]
"""Runs as read before, and what their files looked like then."""


def read_study(folder: Path, known: Known | None = None, workers: int = 1) -> Study:
    """Every run in or below a folder, whatever its state; or a packed folder.

    With `known`, runs whose files have not changed since are not read again. With `workers`, many
    runs are read by as many processes.
    """
    from klip.studies.packing import is_packed, unpack

    if is_packed(folder):
        return unpack(folder)
    found: dict[str, Run] = {}
    trouble = []
    for run in _read_all(run_paths(folder), folder, {} if known is None else known, workers):
        if isinstance(run, str):
            trouble.append(run)
            continue
        twin = found.get(run.id)
        if twin is not None:  # a copy: counted twice it would make intervals too narrow
            run, other = (run, twin) if run.rows > twin.rows else (twin, run)
            trouble.append(f"{other.path} is the same run as {run.path}, and was left out")
        found[run.id] = run
    return Study(ordered(found.values()), tuple(sorted(trouble)))


def _read_all(paths: list[Path], folder: Path, known: Known, workers: int) -> list[Run | str]:
    stamps = {path: stamp(path) for path in paths}
    old = {path for path in paths if path in known and known[path][0] == stamps[path]}
    # A run that is trained may stop being so without a file of it changing.
    fresh = [path for path in paths if path not in old or known[path][1].status == "running"]
    read = functools.partial(_read, folder=folder)
    if workers > 1 and len(fresh) >= MANY:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            made = dict(zip(fresh, pool.map(read, fresh, chunksize=10), strict=True))
    else:
        made = {path: read(path) for path in fresh}
    for path, run in made.items():
        if isinstance(run, Run):
            known[path] = (stamps[path], run)
    return [made[path] if path in made else known[path][1] for path in paths]


def ordered(runs: Any) -> tuple[Run, ...]:
    """By task, shape and seed."""
    return tuple(sorted(runs, key=lambda run: (run.task, run.shape, run.seed, run.id)))


def stamp(path: Path) -> Stamp:
    """What tells whether a run's files have changed."""
    found = []
    for name in (METRICS, NEWEST, "lock"):
        try:
            about = (path / name).stat()
            found.append((about.st_mtime_ns, about.st_size))
        except OSError:
            found.append((0, 0))
    return tuple(found)


def _read(path: Path, folder: Path) -> Run | str:
    """A run, or why it could not be read."""
    try:
        record = read_run(path)
    except KlipError as error:
        return _relative(str(error), folder)
    inside = path.relative_to(folder).as_posix()
    return Run(
        path.resolve().name if inside == "." else inside,
        record.id,
        record.config,
        record.status,
        _relative(record.reason, folder),
        tuple(record.machines),
        tuple(_relative(line, folder) for line in record.history),
        tuple(_relative(line, folder) for line in record.notes),
        _digest(record) if record.arrays else "",
        columns(record.rows),
    )


def _digest(record: Record) -> str:
    """`Record.digest`, without spelling out again what lies there spelled out.

    The trainer writes each row as `json.dumps` does, so the file's lines are the text that the
    digest is of. Where the file is damaged, or is not what the rows are from, the rows are.
    """
    try:
        lines = (record.path / METRICS).read_bytes().split(b"\n")[: len(record.rows)]
    except OSError:
        lines = []
    if record.notes or len(lines) != len(record.rows):
        return record.digest()
    sha256 = hashlib.sha256(b"[" + b", ".join(lines) + b"]")
    for name, array in sorted(record.arrays.items()):
        sha256.update(f"{name} {array.dtype} {array.shape}".encode())
        sha256.update(np.ascontiguousarray(array).tobytes())
    return sha256.hexdigest()


def _relative(text: str, folder: Path) -> str:
    """The same wherever the folder lies."""
    return text.replace(f"{folder}/", "").replace(f"{folder.resolve()}/", "")


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Rows of metrics as columns; what is not a number, or not finite, is NaN.

    >>> columns([{"step": 1, "kl": None, "b": [1, 2]}, {"step": 2, "kl": 0.5, "b": None}])["b"]
    array([[ 1.,  2.],
           [nan, nan]])
    """
    if not rows:
        return {}
    names = list(rows[0])
    if all(list(row) == names for row in rows):
        by_name = zip(names, zip(*(row.values() for row in rows), strict=True), strict=True)
        return {name: _column(values) for name, values in by_name}
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: Sequence[Any]) -> Column:
    first = next((v for v in values if v is not None), None)
    if not isinstance(first, list):
        return _numbers(values)
    width = max(len(v) for v in values if isinstance(v, list))
    empty = [None] * width
    fits = (v if isinstance(v, list) and len(v) == width else empty for v in values)
    return _numbers([number for v in fits for number in v]).reshape(len(values), width)


def _numbers(values: Sequence[Any]) -> Column:
    try:
        made = np.array(values, dtype=np.float64)
        if made.shape != (len(values),):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        made = np.array([v if isinstance(v, (int, float)) else np.nan for v in values], np.float64)
    made[~np.isfinite(made)] = np.nan
    return made
