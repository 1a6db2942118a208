"""A study in a few small files: `runs.json`, and the metrics of each task as Parquet.

    runs.json           all that is known of each run but its metrics; the sha256 of each file, and
                        of itself
    Hopper-v4.parquet   a row per iteration; `run` is the run's place in the list; float64, exact
    samples.json        of a token experiment: the completions that its page shows
    shapes.json         how the shapes look, sampled when runs began: each once
    frozen.json         of a league: the choices that its tests rest on, as they were frozen

A report made from it has the same bytes as one made from the runs' folders; only the checkpoints
are not in it. A plan may go on from it (`klip.studies.gathering`).
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from klip.disk import operations
from klip.errors import KlipError
from klip.runs.checkpoint import config_id, known_config
from klip.runs.completions import Completion
from klip.runs.files import (
    LARGEST_TEXT,
    digest_of,
    disk,
    of_json,
    own_folder,
    read_file,
    read_json,
    write_whole,
)
from klip.runs.lock import held
from klip.runs.portraits import Portrait, of_fields, to_fields
from klip.runs.store import slug
from klip.runs.tables import read_table
from klip.studies.arms import is_tokens, shown_runs
from klip.studies.sound import odd_setting, sound_columns
from klip.studies.study import Column, Run, Study, ordered

FORMAT: Final = "klip study 2"
INDEX: Final = "runs.json"
SAMPLES: Final = "samples.json"
SAMPLES_FORMAT: Final = "klip token samples 1"
SHAPES: Final = "shapes.json"
SHAPES_FORMAT: Final = "klip shapes 1"
_FIELDS: Final = ("path", "id", "config", "status", "reason", "machines", "history", "notes",
                  "digest")  # fmt: skip
_COUNTS: Final = ("iteration", "step", "episodes")
LOOKS: Final = 5
"""Times that a study is read again because it was packed anew meanwhile."""
CHOICES: Final = re.compile(r"frozen(-[0-9a-f]{8})?\.json")
"""Names of the files in which leagues freeze their choices."""
LARGEST_TABLE: Final = 1_000_000_000
"""Bytes of a task's metrics: some 9,000 runs of 488 iterations."""


@dataclass(frozen=True)
class Packed:
    """What was written."""

    files: tuple[Path, ...]
    size: int
    """In bytes."""
    runs: int
    """How many there are in the study."""


def is_packed(folder: Path) -> bool:
    """Whether a folder holds a packed study."""
    return (folder / INDEX).is_file()


def pack(study: Study, folder: Path) -> Packed:
    """Write a study; it replaces a packed study that is there."""
    if folder.is_dir() and not is_packed(folder) and any(map(_is_foreign, folder.iterdir())):
        raise KlipError(f"{folder} is not empty and not a packed study: choose another folder")
    own_folder(folder)
    with held(folder):
        written = _pack(study, folder)
    size = sum(path.stat().st_size for path in written)
    return Packed(tuple(written), size, len(study.runs))


def _pack(study: Study, folder: Path) -> list[Path]:
    """Write the files of a study into a folder that nobody else packs into meanwhile.

    The index is the study: files that differ from those that are there wait beside them until it
    is written, so that whoever reads finds the old study or the new, also after a crash.
    """
    before = _names_in(folder)
    about: dict[str, str] = {}
    beside: dict[str, str] = {}
    for task in study.tasks:
        name = _file_name(task, about)
        data = _parquet([(i, run) for i, run in enumerate(study.runs) if run.task == task])
        about[name] = _laid(folder, name, data)
    for name, data in {
        SAMPLES: _samples(study), SHAPES: _shapes(study), **study.choices
    }.items():  # fmt: skip
        if data:
            beside[name] = _laid(folder, name, data)
    index: dict[str, Any] = {
        "format": FORMAT,
        "files": about,
        "beside": beside,
        "runs": [{name: getattr(run, name) for name in _FIELDS} for run in study.runs],
        "trouble": study.trouble,
    }
    left = sorted(before - {*about, *beside})  # of a study that was there before
    former = [n for n in left if (folder / n).exists() or _next(folder, n).exists()]
    if former:
        index["former"] = former  # if we are killed now, the next `pack` removes them
    write_whole(folder / INDEX, as_index(index))
    with disk(folder):
        for name in (*about, *beside):
            if _next(folder, name).exists():
                operations.replace(_next(folder, name), folder / name)
        for name in former:
            operations.remove(folder / name)
            operations.remove(_next(folder, name))
        operations.sync_folder(folder)
    return [folder / name for name in (*about, INDEX, *beside)]


def as_index(index: Mapping[str, Any]) -> bytes:
    """The content of an index file, with a checksum of all that it says."""
    seal = hashlib.sha256(_spelled(index).encode()).hexdigest()
    return (_spelled({**index, "sha256": seal}) + "\n").encode()


def _read_index(path: Path) -> dict[str, Any]:
    """What an index says; raises unless it is as it was written."""
    index: dict[str, Any] = read_json(path)
    if index["format"] != FORMAT:
        raise KlipError(f"{path} is not a study that this version of Klip reads: pack it again")
    if index.pop("sha256") != hashlib.sha256(_spelled(index).encode()).hexdigest():
        raise ValueError(f"{path.name} is not what its checksum says")
    return index


def _spelled(index: Mapping[str, Any]) -> str:
    return json.dumps(index, indent=1, sort_keys=True)


def _is_foreign(path: Path) -> bool:
    """Whether a file in a folder without an index is none that a killed `pack` left there."""
    return not (path.name.startswith(".") and path.suffix in (".next", ".part"))


def _laid(folder: Path, name: str, data: bytes) -> str:
    """Lay a file beside its place, unless it is there already; its checksum."""
    sha256 = hashlib.sha256(data).hexdigest()
    if digest_of(folder / name) != sha256:
        write_whole(_next(folder, name), data)
    return sha256


def _next(folder: Path, name: str) -> Path:
    """Where a file waits until the index names it."""
    return folder / f".{name}.next"


def _names_in(folder: Path) -> set[str]:
    """The files that the index of a packed study names, and those that wait for one that does."""
    waiting = {path.name[1 : -len(".next")] for path in folder.glob(".*.next")}
    try:
        index = read_json(folder / INDEX)
        named = {*index["files"], *index["beside"], *index.get("former", ())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        named = set()
    return {name for name in named | waiting if _is_ours(name)}


def _is_ours(name: Any) -> bool:
    """Whether a study has files of this name, which may come from a stranger's index."""
    plain = isinstance(name, str) and Path(name).name == name and not name.startswith(".")
    if not plain:
        return False
    beside = name in (SAMPLES, SHAPES) or CHOICES.fullmatch(name) is not None
    return beside or name.endswith(".parquet")


def unpack(folder: Path) -> Study:
    """The study that was packed into a folder; if it is packed again meanwhile, the new one."""
    for _ in range(LOOKS):
        began = digest_of(folder / INDEX)
        try:
            return _unpacked(folder)
        except KlipError:
            if digest_of(folder / INDEX) == began:
                raise
    raise KlipError(f"{folder} is being packed again and again: try once more when that is over")


def _unpacked(folder: Path) -> Study:
    try:
        index = _read_index(folder / INDEX)
        metrics: dict[int, dict[str, Column]] = {}
        for name, sha256 in index["files"].items():
            metrics |= _columns(_table(_checked(folder, name, sha256)))
        runs = [_run(entry, metrics.get(i, {})) for i, entry in enumerate(index["runs"])]
        if len({run.id for run in runs}) < len(runs):
            raise ValueError("a run is there twice")
        study = Study(ordered(runs), tuple(map(str, index["trouble"])))
        beside: dict[str, str] = index["beside"]
        if is_tokens(study):
            samples = _read_samples(folder, beside)
            runs = [replace(run, samples=samples.get(run.id, ())) for run in study.runs]
            study = replace(study, runs=tuple(runs))
        if SHAPES in beside:
            shapes = _read_shapes(folder, beside)
            runs = [replace(run, portrait=shapes.get(_look(run))) for run in study.runs]
            study = replace(study, runs=tuple(runs))
        frozen = {n: sha for n, sha in beside.items() if CHOICES.fullmatch(n)}
        return replace(study, choices={n: _checked(folder, n, s) for n, s in frozen.items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError,
            pl.exceptions.PolarsError, RecursionError) as error:  # fmt: skip
        raise KlipError(
            f"{folder} holds a damaged study ({type(error).__name__}: {error}): pack it again"
        ) from None


def _samples(study: Study) -> bytes:
    """The samples of the runs that a page shows, by run, and a checksum of them; or nothing."""
    if not is_tokens(study):
        return b""
    by_run = {run.id: [sample.fields for sample in run.samples] for run in shown_runs(study)}
    return _sealed(SAMPLES_FORMAT, "samples", by_run)


def _read_samples(folder: Path, beside: Mapping[str, str]) -> dict[str, tuple[Completion, ...]]:
    kept = _unsealed(folder, SAMPLES, beside, SAMPLES_FORMAT, "samples")
    return {str(run): tuple(map(Completion.read, samples)) for run, samples in kept.items()}


def _look(run: Run) -> tuple[str, str, int]:
    """What a portrait depends on: the shape, its code, and how long training is."""
    return run.shape, run.code, int(run.config.get("steps", 0))


def _shapes(study: Study) -> bytes:
    """The portraits of all shapes, each once, and a checksum of them; or nothing."""
    looks = {_look(run): run.portrait for run in study.runs if run.portrait is not None}
    kept = [[*look, to_fields(portrait)] for look, portrait in sorted(looks.items(), key=str)]
    return _sealed(SHAPES_FORMAT, "shapes", kept) if kept else b""


def _read_shapes(folder: Path, beside: Mapping[str, str]) -> dict[tuple[str, str, int], Portrait]:
    kept = _unsealed(folder, SHAPES, beside, SHAPES_FORMAT, "shapes")
    shapes = {(shape, code, steps): of_fields(about) for shape, code, steps, about in kept}
    if any(look[0] != portrait.spelling for look, portrait in shapes.items()):
        raise ValueError(f"{SHAPES} has a picture of another shape")
    return shapes


def _sealed(format: str, name: str, data: Any) -> bytes:
    """Plain data as a file with a checksum of it."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return (json.dumps({"format": format, "sha256": sha256, name: text}, indent=1) + "\n").encode()


def _unsealed(folder: Path, file: str, beside: Mapping[str, str], format: str, name: str) -> Any:
    """The plain data in a file; `beside` has the files' checksums."""
    about = of_json(_checked(folder, file, beside[file]))
    text = about[name].encode()
    if about["format"] != format or hashlib.sha256(text).hexdigest() != about["sha256"]:
        raise ValueError(f"{file} is not what its checksum says")
    return of_json(text)


def _file_name(task: str, taken: dict[str, str]) -> str:
    stem, k = slug(task), 1
    while (name := f"{stem}{f'-{k}' if k > 1 else ''}.parquet") in taken:
        k += 1
    return name


def frame_of(run: Run) -> pl.DataFrame:
    """The metrics of a run, a row per iteration; quantiles have a column each: `beta[0]`."""
    table: dict[str, Any] = {}
    for name, column in run.metrics.items():
        if column.ndim == 1:
            whole = name in _COUNTS and not np.isnan(column).any()
            table[name] = column.astype(np.int64) if whole else column
        else:
            table |= {f"{name}[{k}]": column[:, k].copy() for k in range(column.shape[1])}
    return pl.DataFrame(table)


def _parquet(runs: list[tuple[int, Run]]) -> bytes:
    """The metrics of runs as a Parquet file; `run` is the run's place in the list.

    Columns stand in the order of their names, wherever the runs come from.
    """
    frames = [
        frame_of(run).insert_column(0, pl.Series("run", np.full(run.rows, i, np.int64)))
        for i, run in runs
    ]
    together = pl.concat(frames, how="diagonal_relaxed")
    whole_task = together.select("run", *sorted(set(together.columns) - {"run"}))
    file = io.BytesIO()
    whole_task.write_parquet(file, compression="zstd", compression_level=9, statistics=False)
    return file.getvalue()


def _checked(folder: Path, name: str, sha256: str) -> bytes:
    """A file of the study; it may still wait beside its place."""
    if not _is_ours(name):
        raise ValueError(f"{name!r} is not the name of a file of metrics")
    for path in (folder / name, _next(folder, name)):
        if digest_of(path) == sha256:  # so garbage is never in memory whole
            return read_file(path, LARGEST_TABLE if name.endswith(".parquet") else LARGEST_TEXT)
    raise ValueError(f"{name} is not what its checksum says")


def _table(data: bytes) -> pl.DataFrame:
    """The table in a Parquet file; one of numbers alone."""
    table = read_table(data)
    odd = [name for name, kind in table.schema.items() if kind not in (pl.Int64, pl.Float64)]
    if odd or table.schema.get("run") != pl.Int64:
        raise ValueError(f"{', '.join(odd)[:80] or 'run'} is not a column of metrics")
    return table


def _columns(table: pl.DataFrame) -> dict[int, dict[str, Column]]:
    """The columns of each run, by its place; a column of nulls alone is left out."""
    runs = {}
    for part in table.partition_by("run", maintain_order=True):
        own: dict[str, Column] = {}
        wide: dict[str, list[Column]] = {}
        for column in part.drop("run"):
            if column.null_count() == len(part):
                continue
            values = column.cast(pl.Float64).to_numpy(writable=True)
            values[~np.isfinite(values)] = np.nan
            if place := re.fullmatch(r"(.+)\[(\d+)\]", column.name):
                wide.setdefault(place[1], []).append(values)
            else:
                own[column.name] = values
        own |= {name: np.stack(parts, axis=1) for name, parts in wide.items()}
        _check_counts(own)
        runs[int(part["run"][0])] = own
    return runs


def _check_counts(metrics: dict[str, Column]) -> None:
    """Raise unless iterations are counted from 1, and steps grow with them."""
    iteration, step = metrics["iteration"], metrics["step"]
    counted = iteration.ndim == step.ndim == 1
    counted = counted and np.array_equal(iteration, np.arange(1, len(iteration) + 1))
    if not counted or not (step[0] >= 0 and step[-1] < 2.0**63 and np.all(np.diff(step) > 0)):
        raise ValueError("its iterations or its steps are not counted as a trainer does")


def _run(about: dict[str, Any], metrics: dict[str, Column]) -> Run:
    config = known_config(about["config"])
    if config_id(config) != about["id"]:
        raise ValueError(f"{about['path']} is not of the config that its id says")
    if "shape" not in config:
        raise ValueError(f"{about['path']} has no shape")
    if odd := odd_setting(config):
        raise ValueError(f"{about['path']}: {odd}")
    metrics, left_out = sound_columns(metrics)
    return Run(
        str(about["path"]), str(about["id"]), config, str(about["status"]), str(about["reason"]),
        tuple({str(k): v for k, v in machine.items()} for machine in about["machines"]),
        tuple(map(str, about["history"])),
        (*map(str, about["notes"]), *left_out), str(about["digest"]), metrics,
    )  # fmt: skip
