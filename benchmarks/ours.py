"""One worker of Klip as one process on one core: an iteration of its runs each time it is asked.

    python benchmarks/ours.py TASK [--core 0] [--runs 20] [--lanes 20] [--seed 0] [--physics]

`--runs` runs in cohorts of `--lanes`, one cohort after the other; every iteration writes its
metrics as training does. With `--physics` each answer also says how long the bare `mj_step` calls
take: every 16th step of the timed iteration keeps its states and controls, and right after it they
are stepped again, by `mj_step` alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lanes import bare
from peers import Answer, serve

EVERY = 16
SHARED: dict[str, Any] = {"envs": 1, "rollout": 2048, "epochs": 10, "minibatch": 64}


class Recorder:
    """Stands before `step` of lanes, and keeps the state and the action of every 16th step."""

    def __init__(self, lanes: Any) -> None:
        self._lanes, self._step, self._count = lanes, lanes.step, 0
        self.states: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []
        lanes.step = self

    def __call__(self, action: np.ndarray) -> Any:
        if self._count % EVERY == 0:
            self.states.append(self._lanes.state()["physics"])
            self.actions.append(action.copy())
        self._count += 1
        return self._step(action)

    def seconds(self) -> float:
        """Of `mj_step` alone, for all steps since the last time; forgets them."""
        spent = bare(self._lanes.task, np.array(self.actions), self.states)
        self.states.clear()
        self.actions.clear()
        return spent * EVERY


def peak_bytes() -> int:
    """The most memory that this process ever held.

    Not `ru_maxrss`, which a process inherits from the one that started it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def start(given: argparse.Namespace) -> Callable[[], Answer]:
    """Build the cohorts; the function that trains each for one iteration."""
    from klip.ppo.cohort import Cohort  # after pinning, as a worker does
    from klip.ppo.config import config
    from klip.runs import RunFolder

    configs = [config(given.task, seed=given.seed + i, **SHARED) for i in range(given.runs)]
    out = Path(tempfile.mkdtemp(dir="."))
    folders = [RunFolder(out / str(c.seed), dataclasses.asdict(c)) for c in configs]
    cohorts = [Cohort(configs[i : i + given.lanes]) for i in range(0, given.runs, given.lanes)]
    recorders = [Recorder(cohort.lanes) for cohort in cohorts] if given.physics else []

    def turn() -> Answer:
        before = _parts(cohorts)
        began = time.perf_counter()
        rows = [row for cohort in cohorts for row in cohort.iterate()]
        for folder, row in zip(folders, rows, strict=True):
            if row is None:
                raise RuntimeError("a run diverged, so the others were not timed alike")
            folder.append(row)
        answer = {
            "steps": given.runs * SHARED["rollout"],
            "seconds": time.perf_counter() - began,
            "peak_bytes": peak_bytes(),
        }
        answer |= {k: v - before[k] for k, v in _parts(cohorts).items()}
        if recorders:
            answer["physics"] = sum(recorder.seconds() for recorder in recorders)
        return answer

    return turn


def _parts(cohorts: Sequence[Any]) -> dict[str, float]:
    """Seconds spent in each part of an iteration so far."""
    return {part: sum(c.seconds[part] for c in cohorts) for part in ("collect", "learn")}


def arguments(args: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--lanes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--physics", action="store_true")
    return parser.parse_args(args)


if __name__ == "__main__":
    given = arguments()

    def hello() -> Answer:
        from importlib.metadata import version

        from klip import __version__
        from klip.ppo.job import PPO

        versions = {name: version(name) for name in ("numpy", *PPO.libraries)}
        return {"versions": {"klip": __version__, **versions}}

    serve(given.core, lambda: start(given), hello)
