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
class TrainedPolicy:
    """A policy, and what its file says about how it was trained."""

    path: Path
    """the run's folder, or the file that was read"""
    policy: Policy
    arrays: Mapping[str, NDArray[Any]]
    """everything in the checkpoint, by name"""
    iteration: int
    """how many iterations it was trained for"""
    status: str
    """of the run: running, stopped, done, diverged, ..."""
    rows: Sequence[Mapping[str, Any]]
    """metrics, one row an iteration; none in an exported folder"""
    machines: Sequence[Mapping[str, Any]]
    """versions and processors, each with the iteration since which the run used it"""
    notes: Sequence[str]
    """what was damaged, and what was used instead"""

    @property
    def final_return(self) -> float | None:
        """The mean return over the last tenth of the steps, which is the paper's definition."""
        return final_return(self.rows)


Source = Policy | TrainedPolicy | str | Path
"""A policy, or where one lies: a run's folder, a checkpoint file, or an exported folder."""


def load(path: str | Path) -> Policy:
    """Load a policy; nothing in its file is executed, and neither JAX nor a simulator is loaded.

    If the newest checkpoint is damaged, the one before it is used, and a warning says so.

    >>> int(load("examples/policy").act([0.0, 0.1, 0.0, -0.1]))  # of CartPole: push to the left
    0

    Args:
        path: a run's folder, a checkpoint file, or a folder that `klip export` wrote

    Returns:
        the policy, frozen as it was when it was saved

    """
    return policy_in(path)


def policy_in(source: Source) -> Policy:
    """The policy itself, whichever way it is given; what was damaged in its file is a warning."""
    if isinstance(source, Policy):
        return source
    if isinstance(source, TrainedPolicy):
        return source.policy
    trained = read(source)
    for note in trained.notes:
        warnings.warn(note, RuntimeWarning, stacklevel=3)
    return trained.policy


def read(path: str | Path) -> TrainedPolicy:
    """Load a policy as `load` does, with all that is known about it.

    Args:
        path: a run's folder, a checkpoint file, or a folder that `klip export` wrote

    """
    path = Path(path)
    if path.is_file():
        return _from_file(path)
    if (path / EXPORTED).is_file():
        return _from_file(path / EXPORTED)
    if not path.is_dir():
        raise KlipError(f"there is no {path}: give a run's folder; `klip train` writes them")
    if below := _runs_below(path):
        raise KlipError(f"{path} is a folder of runs: give one of them, such as {below[0]}")
    record = read_run(path)
    _check_rows(path, record.rows)
    if record.status == "damaged":
        raise Damaged(f"{path} has no checkpoint that can be used: {record.reason}")
    with _named(path):
        policy = policy_of(record.config, record.arrays)
    notes = list(record.notes)
    if notes:
        notes.append(f"the policy is that of iteration {record.iteration}")
    return TrainedPolicy(
        path=path,
        policy=policy,
        arrays=record.arrays,
        iteration=record.iteration,
        status=record.status,
        rows=record.rows,
        machines=record.machines,
        notes=notes,
    )


def _from_file(path: Path) -> TrainedPolicy:
    point = read_checkpoint(path)
    with _named(path):
        policy = policy_of(point.config, point.arrays)
    return TrainedPolicy(
        path=path,
        policy=policy,
        arrays=point.arrays,
        iteration=point.iteration,
        status=point.status,
        rows=_rows(path, point),
        machines=point.machines,
        notes=(),
    )


def _rows(path: Path, point: Checkpoint) -> list[dict[str, Any]]:
    try:
        rows = [json.loads(line) for line in point.metrics_text().splitlines()]
    except (ValueError, RecursionError):
        rows = [None]
    _check_rows(path, rows)
    return rows


def _check_rows(path: Path, rows: Sequence[Any]) -> None:
    """Raise unless every row names its step, and a return that is a number or null."""
    for row in rows:
        step = row.get("step") if isinstance(row, dict) else None
        value = row.get("return_mean", "") if isinstance(row, dict) else ""
        known = value is None or (isinstance(value, float) and math.isfinite(value))
        if type(step) is not int or not 0 <= step < 2**63 or not known:
            raise Damaged(f"{path} cannot be used: its metrics are not what `klip train` writes")


def _runs_below(path: Path) -> list[Path]:
    """The runs in a folder of runs, of a task or of a shape; it looks no further down."""
    for pattern in ("seed-*", "*/seed-*", "*/*/seed-*"):
        if runs := sorted(path.glob(pattern)):
            return runs
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
