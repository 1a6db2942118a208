"""The folder of one run: `<out>/<task>/<shape>/seed-<n>-<id>/`."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from klip.errors import KlipError

VERSIONED = ("klip", "jax", "jaxlib", "numpy", "optax", "gymnasium", "mujoco")


def slug(text: str) -> str:
    """A name that is safe as a folder's: letters, digits and a few signs, not too long."""
    return re.sub(r"[^A-Za-z0-9=.,_-]+", "_", text).strip("._")[:80] or "_"


def folder_of(out: Path, task: str, shape: str, seed: int, id: str) -> Path:
    """Where a run lives below `out`."""
    return out / slug(task) / slug(shape) / f"seed-{seed}-{id}"


class RunFolder:
    """Writes one run; every file is whole or not there, but for the metrics, which grow."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._write("config.json", {**config, "versions": _versions()})
            self._metrics = (path / "metrics.jsonl").open("w", encoding="utf-8")
        except OSError as error:
            raise KlipError(f"cannot write the run to {path}: {error.strerror}") from None

    def append(self, row: Mapping[str, Any]) -> None:
        """One more line of metrics."""
        self._metrics.write(json.dumps(row, allow_nan=False) + "\n")
        self._metrics.flush()

    def close(self) -> None:
        """Let go of the metrics file."""
        self._metrics.close()

    def finish(
        self, arrays: Mapping[str, NDArray[Any]], status: str, reason: str, iterations: int
    ) -> None:
        """Parameters, statistics and optimiser state, and how it ended."""
        self.close()
        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        aside = self.path / ".final.safetensors"
        save_file(whole, aside)
        os.replace(aside, self.path / "final.safetensors")
        self._write("status.json", {"status": status, "reason": reason, "iterations": iterations})

    def _write(self, name: str, data: Mapping[str, Any]) -> None:
        aside = self.path / f".{name}"
        aside.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(aside, self.path / name)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics."""
    with (path / "metrics.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_status(path: Path) -> dict[str, Any] | None:
    """How a run ended, or None if it has not."""
    file = path / "status.json"
    found: dict[str, Any] | None = json.loads(file.read_text("utf-8")) if file.exists() else None
    return found


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Parameters, statistics and optimiser state of a finished run."""
    arrays: dict[str, NDArray[Any]] = load_file(path / "final.safetensors")
    return arrays


def final_return(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The paper's: the mean over the iterations in the last tenth of the steps.

    Those whose step is at or above the 0.9 quantile of all steps; an iteration in which no
    episode ended has no return and does not count.
    """
    if not rows:
        return None
    start = float(np.quantile([row["step"] for row in rows], 0.9))
    late = [row["return_mean"] for row in rows if row["step"] >= start]
    known = [value for value in late if value is not None]
    return float(np.mean(known)) if known else None


def _versions() -> dict[str, str]:
    found = {name: version(name) for name in VERSIONED}
    return {**found, "python": platform.python_version(), "machine": platform.machine()}
