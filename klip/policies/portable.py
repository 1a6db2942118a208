"""A policy as one portable folder: parameters, config, model card, and an ONNX graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from klip.disk import operations
from klip.errors import KlipError
from klip.policies.card import model_card
from klip.policies.evaluation import Evaluation, evaluate
from klip.policies.graph import MISSING, NoOnnx, check_graph, encode_graph
from klip.policies.loading import EXPORTED, TrainedPolicy, read
from klip.policies.policy import policy_arrays
from klip.runs.checkpoint import Checkpoint, Damaged, encode
from klip.runs.checkpoint import read as read_checkpoint
from klip.runs.files import disk, folder_aside, put_folder, write_whole

CONFIG, CARD, GRAPH = "config.json", "README.md", "policy.onnx"
FILES = (EXPORTED, CONFIG, CARD, GRAPH)
_OBSERVATIONS = 4096  # that the graph is checked on, of those seen in the evaluation


@dataclass(frozen=True)
class Exported:
    """The folder that was written, and what is not in it."""

    path: Path
    files: tuple[str, ...]
    not_written: tuple[str, ...]
    """files that are left out, each with the reason"""
    result: Evaluation | None
    """the evaluation in the model card; None if there was none"""
    onnx_difference: float | None
    """largest difference of the graph's outputs from ours, as `klip.policies.graph` measures it"""


def export(
    run: TrainedPolicy | str | Path,
    output: str | Path = "policy",
    *,
    onnx: bool = True,
    episodes: int = 20,
    seed: int = 0,
    trust_task: bool = False,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda episodes, steps: None,
) -> Exported:
    """Write a policy as one portable folder: aside first, then checked, then put in place.

    >>> written = export("runs/CartPole-v1/...", "policy", onnx=False)  # doctest: +SKIP
    >>> [path.name for path in written.files]  # doctest: +SKIP

    Args:
        run: the path of a run's folder or of a checkpoint file, or what `read` gives for one
        output: folder to write; files in it that are no export are never touched
        onnx: write policy.onnx, too, whose outputs are checked against ours
        episodes: of the evaluation in the model card; with 0 there is none, and the graph is
            checked on random observations alone
        seed: of the evaluation
        trust_task: import the policy's own task where it is a `module:Id`, which runs its code
        force: replace an export that is there
        progress: is called with the episodes ended and the steps taken so far

    Returns:
        the files that were written, those that were not, and the evaluation

    """
    trained = run if isinstance(run, TrainedPolicy) else read(run)
    path = Path(output)
    if trained.path.name == EXPORTED:
        raise KlipError(f"{trained.path.parent} is an export already: copy the folder")
    _check_place(path, force)
    result, seen = None, np.empty((0, trained.policy.observation_size))
    if episodes:
        result, seen = _evaluated(trained, episodes, seed, trust_task, progress)
    with disk(path):
        operations.make_folders(path.parent)
    with folder_aside(path) as aside:
        difference, missing = _write_graph(aside / GRAPH, trained, seen, onnx)
        write_whole(aside / EXPORTED, encode(_portable(trained)))
        config = json.dumps(dict(trained.policy.config), indent=2, sort_keys=True) + "\n"
        write_whole(aside / CONFIG, config.encode())
        card = model_card(trained, result, difference, missing)
        write_whole(aside / CARD, card.encode())
        _check_place(path, force)
        put_folder(aside, path)
    files = tuple(name for name in FILES if (path / name).exists())
    return Exported(path, files, missing, result, difference)


def _evaluated(
    trained: TrainedPolicy,
    episodes: int,
    seed: int,
    trust_task: bool,
    progress: Callable[[int, int], None],
) -> tuple[Evaluation, NDArray[np.float64]]:
    """The evaluation, and some of its observations: fewer of each episode as they become many."""
    kept: list[NDArray[np.float64]] = []
    every, step = 1, 0

    def see(observation: NDArray[np.float64]) -> None:
        nonlocal kept, every, step
        if step % every == 0:
            kept.append(observation)
            if sum(map(len, kept)) > _OBSERVATIONS:
                kept, every = kept[::2], 2 * every
        step += 1

    try:
        result = evaluate(
            trained.policy, episodes, seed, trust_task=trust_task, progress=progress, see=see
        )
    except KlipError as error:
        raise KlipError(f"{error}; or export without evaluating: --episodes 0") from error
    return result, np.concatenate(kept)


def _write_graph(
    path: Path, trained: TrainedPolicy, seen: NDArray[np.float64], wanted: bool
) -> tuple[float | None, tuple[str, ...]]:
    """The graph's difference from ours if it was written, and the files that were not, with why."""
    if not wanted:
        return None, (f"{GRAPH}: it was not asked for",)
    try:
        write_whole(path, encode_graph(trained.policy))
        return check_graph(path, trained.policy, seen), ()
    except NoOnnx:
        operations.remove(path)
        return None, (f"{GRAPH}: {MISSING}",)


def _portable(trained: TrainedPolicy) -> Checkpoint:
    """The checkpoint without what only further training needs, and without local paths."""
    return Checkpoint(
        config=dict(trained.policy.config),
        iteration=trained.iteration,
        arrays=policy_arrays(trained.arrays),
        status="running" if trained.status == "stopped" else trained.status,
        machines=tuple(trained.machines),
    )


def _check_place(path: Path, force: bool) -> None:
    """Raise if a folder cannot be put there without losing what is."""
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_dir() or path.is_symlink():
        raise KlipError(f"{path} is there and is not a folder: give another one with -o")
    names = sorted(entry.name for entry in path.iterdir())
    if not names:
        return
    foreign = [name for name in names if name not in FILES]
    if foreign or not _is_export(path):
        raise KlipError(
            f"{path} holds files that are no export's ({', '.join((foreign or names)[:3])}), and "
            "those are never overwritten: give another folder with -o"
        )
    if not force:
        raise KlipError(f"{path} is an export already: replace it with --force, or give another -o")


def _is_export(path: Path) -> bool:
    try:
        read_checkpoint(path / EXPORTED)
    except Damaged:
        return False
    return True
