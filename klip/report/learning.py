"""What runs on disk say: learning curves over seeds, and which shapes trained to the same bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from klip.errors import KlipError
from klip.report.style import SERIES, figure, styled
from klip.runs import final_return, read_run, run_paths
from klip.shapes import parse


@dataclass(frozen=True)
class Trained:
    """A finished run as found on disk."""

    path: Path
    config: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    digest: str
    """equal where parameters, optimiser state, statistics and metrics are, byte for byte"""

    @property
    def task(self) -> str:
        """Its Gymnasium id."""
        return str(self.config["task"])

    @property
    def shape(self) -> str:
        """Its trust region, in brief."""
        return parse(str(self.config["shape"])).brief


def find_runs(folder: Path) -> list[Trained]:
    """Every run below a folder that has ended."""
    found = []
    for path in run_paths(folder):
        record = read_run(path)
        if record.status in ("done", "diverged"):
            found.append(Trained(path, record.config, record.rows, record.digest()))
    if not found:
        raise KlipError(f"there are no finished runs in {folder}; `klip train` makes some")
    return found


def identities(runs: list[Trained]) -> list[tuple[str, str, str, int, int]]:
    """(task, shape, shape, seeds alike, seeds in all) for shapes of which any seed is alike."""
    by_shape: dict[str, dict[str, dict[int, Trained]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        by_shape[run.task][run.shape][run.config["seed"]] = run
    found = []
    for task, shapes in by_shape.items():
        names = list(shapes)
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                seeds = shapes[first].keys() & shapes[second].keys()
                alike = sum(shapes[first][s].digest == shapes[second][s].digest for s in seeds)
                if alike:
                    found.append((task, first, second, alike, len(seeds)))
    return found


def curve(runs: list[Trained]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Steps, and mean and deviation over seeds of the mean return of the rollout's episodes."""
    length = min(len(run.rows) for run in runs)
    steps = np.array([row["step"] for row in runs[0].rows[:length]])
    returns = np.array(
        [[np.nan if r["return_mean"] is None else r["return_mean"] for r in run.rows[:length]]
         for run in runs]
    )  # fmt: skip
    known = ~np.isnan(returns)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, returns, 0).sum(axis=0) / count
    deviation = np.sqrt(np.where(known, (returns - mean) ** 2, 0).sum(axis=0) / count)
    seen = known.any(axis=0)
    return steps[seen], mean[seen], deviation[seen]


def learning_curves(runs: list[Trained]) -> Figure:
    """A panel per task, a line per shape: mean over seeds, with a band of one deviation.

    Shapes that trained to the same bytes lie on top of each other; the later one is dashed.
    """
    tasks = list(dict.fromkeys(run.task for run in runs))
    with styled():
        fig = figure(4.2 * len(tasks), 3.1)
        for i, task in enumerate(tasks):
            axes = fig.add_subplot(1, len(tasks), i + 1)
            members: dict[str, list[Trained]] = defaultdict(list)
            for run in runs:
                if run.task == task:
                    members[run.shape].append(run)
            drawn: list[NDArray[Any]] = []
            for k, (shape, seeds) in enumerate(members.items()):
                steps, mean, deviation = curve(seeds)
                finals = [v for run in seeds if (v := final_return(run.rows)) is not None]
                label = (
                    f"{shape}: {np.mean(finals):.0f} ± {np.std(finals):.0f}" if finals else shape
                )
                hidden = any(np.array_equal(mean, other) for other in drawn)
                colour = SERIES[k % len(SERIES)]
                axes.plot(steps, mean, color=colour, label=label, lw=1.4,
                          ls=(0, (3, 3)) if hidden else "-")  # fmt: skip
                axes.fill_between(steps, mean - deviation, mean + deviation,
                                  color=colour, alpha=0.0 if hidden else 0.15, lw=0)  # fmt: skip
                drawn.append(mean)
            seeds_seen = len({run.config["seed"] for run in runs if run.task == task})
            axes.set_title(f"{task} ({seeds_seen} seed{'s' if seeds_seen > 1 else ''})")
            axes.set_xlabel("environment steps")
            axes.set_ylabel("episode return" if i == 0 else "")
            axes.ticklabel_format(axis="x", style="sci", scilimits=(3, 5))
            axes.legend(fontsize=7, loc="best")
        return fig
