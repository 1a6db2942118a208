"""From a path to a policy: a run's folder, a checkpoint file, or an exported folder."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from klip.errors import KlipError
from klip.policies.policy import Policy, policy_of
from klip.runs import Damaged, final_return, read_run
from klip.runs.checkpoint import Checkpoint
from klip.runs.checkpoint import read as read_checkpoint

EXPORTED = "policy.safetensors"


@dataclass(frozen=True)
class Trained:
    """A policy, and what its file says about how it came to be."""

    path: Path
    policy: Policy
    arrays: Mapping[str, NDArray[Any]]
    iteration: int
    status: str
    rows: Sequence[Mapping[str, Any]]
    """metrics, an iteration each; none in an exported folder"""
    machines: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    """what was damaged and what was used instead"""

    @property
    def final_return(self) -> float | None:
        """In the paper's definition: the mean over the last tenth of the steps."""
        return final_return(self.rows)


def load(path: str | Path) -> Policy:
    """The policy in a run's folder, a checkpoint file, or a folder that `klip export` wrote.

    The file is read as numbers and JSON; nothing in it is executed, and neither JAX nor a
    simulator is loaded. If the newest checkpoint is damaged, the one before it is used, with a
    warning that says so.
    """
    found = read(path)
    for note in found.notes:
        warnings.warn(note, RuntimeWarning, stacklevel=2)
    return found.policy


def read(path: str | Path) -> Trained:
    """As `load`, with all that is known about the policy."""
    path = Path(path)
    if path.is_file():
        return _from_file(path)
    if (path / EXPORTED).is_file():
        return _from_file(path / EXPORTED)
    if not path.is_dir():
        raise KlipError(f"there is no {path}: give a run's folder; `klip train` writes them")
    if below := _runs_below(path):
        raise KlipError(f"{path} is a folder of runs: give one of them, such as {below[0]}")
    found = read_run(path)
    _check_rows(path, found.rows)
    if found.status == "damaged":
        raise Damaged(f"{path} has no checkpoint that can be used: {found.reason}")
    with _named(path):
        policy = policy_of(found.config, found.arrays)
    notes = list(found.notes)
    if notes:
        notes.append(f"the policy is that of iteration {found.iteration}")
    return Trained(
        path, policy, found.arrays, found.iteration, found.status, found.rows, found.machines, notes
    )


def _from_file(path: Path) -> Trained:
    point = read_checkpoint(path)
    with _named(path):
        policy = policy_of(point.config, point.arrays)
    return Trained(
        path, policy, point.arrays, point.iteration, point.status, _rows(path, point),
        point.machines, (),
    )  # fmt: skip


def _rows(path: Path, point: Checkpoint) -> list[dict[str, Any]]:
    try:
        rows = [json.loads(line) for line in point.metrics_text().splitlines()]
    except (ValueError, RecursionError):
        rows = [None]
    _check_rows(path, rows)
    return rows


def _check_rows(path: Path, rows: Sequence[Any]) -> None:
    """Raise unless every row says at which step it is, and a return or none."""
    for row in rows:
        step = row.get("step") if isinstance(row, dict) else None
        value = row.get("return_mean", "") if isinstance(row, dict) else ""
        known = value is None or (isinstance(value, float) and math.isfinite(value))
        if type(step) is not int or not 0 <= step < 2**63 or not known:
            raise Damaged(f"{path} cannot be used: its metrics are not what `klip train` writes")


def _runs_below(path: Path) -> list[Path]:
    """A run in a folder of runs, or in one of a task or a shape; it looks no further down."""
    for pattern in ("seed-*", "*/seed-*", "*/*/seed-*"):
        if found := sorted(path.glob(pattern)):
            return found
    return []


class _named:
    """Put the path before what is wrong with the policy in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KlipError):
            raise KlipError(f"{self.path}: {error}") from None
