"""A study in a few small files: `runs.json`, and the metrics of each task as Parquet.

    runs.json           all that is known of each run but its metrics; the files, with their sha256
    Hopper-v4.parquet   a row per iteration; `run` is the run's place in the list; float64, exact
    samples.json        of a token experiment: the completions that its page shows
    shapes.json         how the shapes look, sampled when runs began: each once

A report made from it has the same bytes as one made from the runs' folders; only the checkpoints
are not in it.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from klip.errors import KlipError
from klip.runs.checkpoint import config_id, known_config
from klip.runs.completions import Completion
from klip.runs.files import own_folder, write_whole
from klip.runs.portraits import Portrait, of_fields, to_fields
from klip.runs.store import slug
from klip.studies.arms import is_tokens, shown_runs
from klip.studies.study import Column, Run, Study, ordered

FORMAT: Final = "klip study 1"
INDEX: Final = "runs.json"
SAMPLES: Final = "samples.json"
SAMPLES_FORMAT: Final = "klip token samples 1"
SHAPES: Final = "shapes.json"
SHAPES_FORMAT: Final = "klip shapes 1"
_FIELDS: Final = ("path", "id", "config", "status", "reason", "machines", "history", "notes",
                  "digest")  # fmt: skip
_COUNTS: Final = ("iteration", "step", "episodes")


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
    if folder.is_dir() and any(folder.iterdir()) and not is_packed(folder):
        raise KlipError(f"{folder} is not empty and not a packed study: choose another folder")
    own_folder(folder)
    written: list[Path] = []
    about: dict[str, str] = {}
    for task in study.tasks:
        name = _file_name(task, about)
        data = _parquet([(i, run) for i, run in enumerate(study.runs) if run.task == task])
        write_whole(folder / name, data)
        about[name] = hashlib.sha256(data).hexdigest()
        written.append(folder / name)
    index = {
        "format": FORMAT,
        "files": about,
        "runs": [{name: getattr(run, name) for name in _FIELDS} for run in study.runs],
        "trouble": study.trouble,
    }
    write_whole(folder / INDEX, (json.dumps(index, indent=1, sort_keys=True) + "\n").encode())
    written.append(folder / INDEX)
    for name, data in ((SAMPLES, _samples(study)), (SHAPES, _shapes(study))):
        if data:
            write_whole(folder / name, data)
            written.append(folder / name)
        else:  # of a study that was there before
            (folder / name).unlink(missing_ok=True)
    size = sum(path.stat().st_size for path in written)
    return Packed(tuple(written), size, len(study.runs))


def unpack(folder: Path) -> Study:
    """The study that was packed into a folder."""
    try:
        index = json.loads((folder / INDEX).read_bytes())
        if index["format"] != FORMAT:
            raise KlipError(f"{folder / INDEX} is not a study that this version of Klip reads")
        metrics: dict[int, dict[str, Column]] = {}
        for name, sha256 in index["files"].items():
            metrics |= _columns(_checked(folder, name, sha256))
        runs = [_run(entry, metrics.get(i, {})) for i, entry in enumerate(index["runs"])]
        study = Study(ordered(runs), tuple(map(str, index["trouble"])))
        if is_tokens(study):
            samples = _read_samples(folder)
            runs = [replace(run, samples=samples.get(run.id, ())) for run in study.runs]
            study = Study(tuple(runs), study.trouble)
        if (folder / SHAPES).exists():
            shapes = _read_shapes(folder)
            runs = [replace(run, portrait=shapes.get(_look(run))) for run in study.runs]
            study = Study(tuple(runs), study.trouble)
        return study
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError,
            RecursionError) as error:  # fmt: skip
        raise KlipError(
            f"{folder} holds a damaged study ({type(error).__name__}: {error}): pack it again"
        ) from None


def _samples(study: Study) -> bytes:
    """The samples of the runs that a page shows, by run, and a checksum of them; or nothing."""
    if not is_tokens(study):
        return b""
    by_run = {run.id: [asdict(sample) for sample in run.samples] for run in shown_runs(study)}
    return _sealed(SAMPLES_FORMAT, "samples", by_run)


def _read_samples(folder: Path) -> dict[str, tuple[Completion, ...]]:
    kept = _unsealed(folder / SAMPLES, SAMPLES_FORMAT, "samples")
    return {str(run): tuple(map(Completion.read, samples)) for run, samples in kept.items()}


def _look(run: Run) -> tuple[str, str, int]:
    """What a portrait depends on: the shape, its code, and how long training is."""
    return run.shape, run.code, int(run.config.get("steps", 0))


def _shapes(study: Study) -> bytes:
    """The portraits of all shapes, each once, and a checksum of them; or nothing."""
    looks = {_look(run): run.portrait for run in study.runs if run.portrait is not None}
    kept = [[*look, to_fields(portrait)] for look, portrait in sorted(looks.items(), key=str)]
    return _sealed(SHAPES_FORMAT, "shapes", kept) if kept else b""


def _read_shapes(folder: Path) -> dict[tuple[str, str, int], Portrait]:
    kept = _unsealed(folder / SHAPES, SHAPES_FORMAT, "shapes")
    shapes = {(shape, code, steps): of_fields(about) for shape, code, steps, about in kept}
    if any(look[0] != portrait.spelling for look, portrait in shapes.items()):
        raise ValueError(f"{SHAPES} has a picture of another shape")
    return shapes


def _sealed(format: str, name: str, data: Any) -> bytes:
    """Plain data as a file with a checksum of it."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return (json.dumps({"format": format, "sha256": sha256, name: text}, indent=1) + "\n").encode()


def _unsealed(path: Path, format: str, name: str) -> Any:
    about = json.loads(path.read_bytes())
    text = about[name]
    if about["format"] != format or hashlib.sha256(text.encode()).hexdigest() != about["sha256"]:
        raise ValueError(f"{path.name} is not what its checksum says")
    return json.loads(text)


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
    """The metrics of runs as a Parquet file; `run` is the run's place in the list."""
    frames = [
        frame_of(run).insert_column(0, pl.Series("run", np.full(run.rows, i, np.int64)))
        for i, run in runs
    ]
    whole_task = pl.concat(frames, how="diagonal_relaxed")
    file = io.BytesIO()
    whole_task.write_parquet(file, compression="zstd", compression_level=9, statistics=False)
    return file.getvalue()


def _checked(folder: Path, name: str, sha256: str) -> pl.DataFrame:
    if Path(name).name != name or not name.endswith(".parquet"):
        raise ValueError(f"{name!r} is not the name of a file of metrics")
    data = (folder / name).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError(f"{name} is not what its checksum says")
    return pl.read_parquet(io.BytesIO(data))


def _columns(table: pl.DataFrame) -> dict[int, dict[str, Column]]:
    """The columns of each run, by its place; a column of nulls alone is left out."""
    runs = {}
    for part in table.partition_by("run", maintain_order=True):
        own: dict[str, Column] = {}
        wide: dict[str, list[Column]] = {}
        for column in part.drop("run"):
            if column.null_count() == len(part):
                continue
            values = column.cast(pl.Float64).to_numpy()
            if place := re.fullmatch(r"(.+)\[(\d+)\]", column.name):
                wide.setdefault(place[1], []).append(values)
            else:
                own[column.name] = values
        own |= {name: np.stack(parts, axis=1) for name, parts in wide.items()}
        runs[int(part["run"][0])] = own
    return runs


def _run(about: dict[str, Any], metrics: dict[str, Column]) -> Run:
    config = known_config(about["config"])
    if config_id(config) != about["id"]:
        raise ValueError(f"{about['path']} is not of the config that its id says")
    return Run(
        str(about["path"]), str(about["id"]), config, str(about["status"]), str(about["reason"]),
        tuple(about["machines"]), tuple(map(str, about["history"])),
        tuple(map(str, about["notes"])), str(about["digest"]), metrics,
    )  # fmt: skip
