"""All of a run up to an iteration in one safetensors file that knows whether it is whole.

It holds the config, every array that the next iteration depends on, and the metrics so far, so
any checkpoint by itself is enough to go on exactly. Nothing in it is ever executed: it is JSON
and raw numbers.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from klip.errors import KlipError
from klip.runs.files import of_json, read_file, shown

FORMAT = 1
STATUSES = ("running", "done", "diverged", "failed")
_METRICS = "metrics"
_BLANK = "0" * 64
_MARK = b'\\"sha256\\":\\"'  # as it stands in the header: JSON within JSON
LONGEST_NAME = 300
LARGEST_METRICS = 256_000_000
"""Bytes of a run's metrics: some 170,000 iterations."""
LARGEST_HEADER = 16_000_000
_DENSEST = 100  # bytes of metrics in one of the deflated ones; a real run has some 3
_LARGE = 64_000_000  # a file of more bytes is checked piece by piece before it is read
HOW = frozenset({"processes"})
"""Fields of a config that say how a run is computed. No byte of its results depends on them."""


class Damaged(KlipError):
    """A file of a run that is not what was written, or not of this run."""

    def __init__(self, text: str) -> None:
        super().__init__(shown(text))  # it may quote what the file says


def config_id(config: Mapping[str, Any]) -> str:
    """A hash of a config's fields, but for those in `HOW`: equal ids are equal runs.

    >>> config_id({"task": "CartPole-v1", "seed": 0})
    '54a3620d57'
    """
    text = json.dumps({k: v for k, v in config.items() if k not in HOW}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Checkpoint:
    """A run as it stood after `iteration` iterations."""

    config: Mapping[str, Any]
    iteration: int
    arrays: Mapping[str, NDArray[Any]]
    """parameters, optimiser, statistics, environments: what the next iteration depends on"""
    metrics: bytes = b""
    """the metrics file up to here, deflated"""
    metrics_size: int = 0
    metrics_sha256: str = hashlib.sha256().hexdigest()
    status: str = "running"
    reason: str = ""
    """why it stopped, where `status` is diverged or failed"""
    machines: tuple[Mapping[str, Any], ...] = ()
    """versions and processor, each with the iteration (`since`) from which it was used"""
    history: tuple[str, ...] = field(default=())
    """what happened to the run on its way that one should know"""

    @property
    def id(self) -> str:
        """The run's id."""
        return config_id(self.config)

    def metrics_text(self) -> bytes:
        """The metrics file up to here."""
        sha256, size = hashlib.sha256(), 0
        for part in _inflate(self.metrics, self.metrics_size):
            sha256.update(part)
            size += len(part)
        if size != self.metrics_size or sha256.hexdigest() != self.metrics_sha256:
            raise Damaged("its copy of the metrics is not what its checksum says")
        return b"".join(_inflate(self.metrics, size))

    def covers(self, text: bytes) -> bool:
        """Whether a metrics file begins with the rows that this checkpoint knows."""
        start = text[: self.metrics_size]
        return hashlib.sha256(start).hexdigest() == self.metrics_sha256


def encode(checkpoint: Checkpoint) -> bytes:
    """The file's content; its checksum covers every byte of it."""
    about = {
        "sha256": _BLANK,  # first, so that nothing in the rest can be taken for it
        "format": FORMAT,
        "id": checkpoint.id,
        "config": dict(checkpoint.config),
        "iteration": checkpoint.iteration,
        "status": checkpoint.status,
        "reason": checkpoint.reason,
        "metrics_size": checkpoint.metrics_size,
        "metrics_sha256": checkpoint.metrics_sha256,
        "machines": [dict(machine) for machine in checkpoint.machines],
        "history": list(checkpoint.history),
    }
    arrays = {name: np.asarray(array, order="C") for name, array in checkpoint.arrays.items()}
    arrays[_METRICS] = np.frombuffer(checkpoint.metrics, np.uint8)
    # one entry only: safetensors writes several in no particular order
    data = save_tensors(arrays, {"klip": json.dumps(about, separators=(",", ":"))})
    place = data.index(_MARK + _BLANK.encode()) + len(_MARK)
    digest = hashlib.sha256(data).hexdigest().encode()
    return data[:place] + digest + data[place + len(digest) :]


def decode(data: bytes) -> Checkpoint:
    """Read a file's content; raises `Damaged`, saying why, unless every byte is as written."""
    about = _header(data)
    try:
        arrays = load_tensors(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"it is not a safetensors file ({error})") from None
    try:
        checkpoint = Checkpoint(
            config=known_config(about["config"]),
            iteration=_count(about["iteration"]),
            metrics=arrays.pop(_METRICS).tobytes(),
            arrays=arrays,
            metrics_size=_count(about["metrics_size"]),
            metrics_sha256=str(about["metrics_sha256"]),
            status=str(about["status"]),
            reason=str(about["reason"]),
            machines=tuple({str(k): v for k, v in m.items()} for m in about["machines"]),
            history=tuple(str(line) for line in about["history"]),
        )
        own = about["id"] == checkpoint.id
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Damaged(f"its description is incomplete ({type(error).__name__}: {error})") from None
    if checkpoint.status not in STATUSES:
        raise Damaged(f"its status is {checkpoint.status!r}, and can be {', '.join(STATUSES)}")
    if not own:
        raise Damaged("its id is not that of its config")
    if checkpoint.metrics_size > min(LARGEST_METRICS, _DENSEST * len(checkpoint.metrics) + 2**20):
        raise Damaged(f"its copy of the metrics claims {checkpoint.metrics_size:,} bytes")
    return checkpoint


def read(path: Path) -> Checkpoint:
    """The checkpoint in a file."""
    try:
        if path.is_file() and path.stat().st_size > _LARGE:
            _check_piecewise(path)
        return decode(read_file(path))
    except Damaged as error:
        raise Damaged(f"{path} cannot be used: {error}") from None
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from None


def _check_piecewise(path: Path) -> None:
    """Raise unless a large file is what its checksum says; so garbage is never in memory whole."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        place, end = _place_of_checksum(size.to_bytes(8, "little") + file.read(_most(size)))
        file.seek(0)
        sha256 = hashlib.sha256(file.read(place))
        given = file.read(end - place)
        sha256.update(_BLANK.encode())
        while piece := file.read(1 << 20):
            sha256.update(piece)
    if sha256.hexdigest().encode() != given:
        raise Damaged("its content does not match its checksum")


def _most(size: int) -> int:
    return min(size, LARGEST_HEADER)


def _place_of_checksum(data: bytes) -> tuple[int, int]:
    """Where the checksum stands in a file, from its beginning: from and to."""
    if len(data) < 8:
        raise Damaged("it is empty or cut short")
    size = int.from_bytes(data[:8], "little")
    place = data[: 8 + size].find(_MARK, 8) if size <= min(len(data), LARGEST_HEADER) else -1
    if place < 0:
        raise Damaged("it is not one of Klip's, or its beginning is damaged")
    return place + len(_MARK), place + len(_MARK) + len(_BLANK)


def _header(data: bytes) -> dict[str, Any]:
    """What the file says about itself, once its checksum is found right."""
    place, end = _place_of_checksum(data)
    blank = hashlib.sha256(data[:place])
    blank.update(_BLANK.encode())
    blank.update(memoryview(data)[end:])
    if blank.hexdigest().encode() != data[place:end]:
        raise Damaged("its content does not match its checksum")
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    try:
        about = of_json(of_json(header)["__metadata__"]["klip"].encode())
        known = int(about["format"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise Damaged("it is not one of Klip's") from None
    if known != FORMAT:
        raise Damaged(f"it is of format {known}, and this version of Klip reads {FORMAT}")
    return dict(about)


def _inflate(data: bytes, most: int) -> Iterator[bytes]:
    """Deflated text in parts, until it ends, is damaged, or is more than it should be."""
    stream, size = zlib.decompressobj(), 0
    while size <= most and not stream.eof:
        try:
            part = stream.decompress(data, 1 << 16)
        except zlib.error:
            return
        if not part:
            return
        data, size = stream.unconsumed_tail, size + len(part)
        yield part


def known_config(config: Any) -> dict[str, Any]:
    """The config, checked to have a task, a seed, and perhaps a shape, as every run's does.

    Task and shape are a line of printable text each, and the names of all fields are Python's.
    Raises `Damaged`, or a KeyError and the like where a field is missing.
    """
    _check_names(config)
    for name in ("task", "shape"):
        text = config[name] if name == "task" else config.get(name, "")
        if not isinstance(text, str) or not text.isprintable() or len(text) > LONGEST_NAME:
            raise Damaged(f"its {name} is not a line of printable text")
    _count(config["seed"])
    return dict(config)


def _check_names(value: Any) -> None:
    """Raise `Damaged` unless the names of all fields, also within fields, are plain identifiers."""
    if isinstance(value, list):
        for part in value:
            _check_names(part)
    if isinstance(value, Mapping):
        for name, part in value.items():
            plain = isinstance(name, str) and name.isascii() and name.isidentifier()
            if not plain or len(name) > LONGEST_NAME:
                raise Damaged(f"its config has a field {str(name)[:80]!r}, which is no name")
            _check_names(part)


def _count(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 63:
        raise ValueError(f"{str(number)[:40]!r} is not a count")
    return number
