"""Figures and a table of a token experiment, for papers and talks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from klip.draw.palette import colour
from klip.draw.style import figure, save, styled
from klip.lab.results import Arm, Results, Score, average, difference, final, over_training, start
from klip.runs.files import disk, write_whole
from klip.studies.learning import band
from klip.studies.tables import as_csv

FORMATS = (".pdf", ".svg", ".png")


def write_figures(results: Results, folder: Path) -> list[Path]:
    """accuracy and differences of each group as PDF, SVG and PNG, and arms.csv."""
    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, arms in results.groups.items():
        drawn = {"accuracy": _accuracy(arms), "differences": _differences(arms)}
        for kind, made in drawn.items():
            for suffix in FORMATS:
                written.append(folder / f"{name.replace(' ', '-')}-{kind}{suffix}")
                save(made, written[-1])
    write_whole(folder / "arms.csv", as_csv(records(results)).encode())
    return [*written, folder / "arms.csv"]


def records(results: Results) -> list[dict[str, Any]]:
    """A row an arm."""
    made = []
    for arms in results.groups.values():
        for arm in arms:
            row: dict[str, Any] = {
                "group": arm.group, "arm": arm.name, "shape": arm.shape, "seeds": len(arm.ended),
                "collapsed": arm.collapsed,
            }  # fmt: skip
            scores: dict[str, Score] = {
                "start": start,
                "final": final,
                "over_training": over_training,
            }
            for name in ("kill", "pass", "killed_mass", "answer_kill", "reasoning_kill"):
                scores[name] = average(name)
            for name, score in scores.items():
                e = arm.estimate(score)
                row |= _ends(name, e)
            row |= _ends("difference", difference(arm, arms[0]) if arm is not arms[0] else None)
            made.append(row)
    return made


def _ends(name: str, e: Any) -> dict[str, Any]:
    return {
        name: e.estimate if e else None,
        f"{name}_low": e.low if e else None,
        f"{name}_high": e.high if e else None,
    }


def _accuracy(arms: list[Arm]) -> Figure:
    with styled():
        made = figure(5.2, 3.2)
        axes = made.add_subplot()
        for slot, arm in enumerate(arms):
            found = band(arm.ended, "held_out")
            if found is None:
                continue
            first = np.array([start(run) for run in arm.ended])
            x = np.concatenate([[0.0], found.steps])
            y = np.concatenate([[first.mean()], found.mean])
            spread = np.concatenate([[first.std()], found.std])
            axes.plot(x, y, color=colour(slot), label=arm.name)
            axes.fill_between(x, y - spread, y + spread, color=colour(slot), alpha=0.15, lw=0)
        axes.set(xlabel="completions sampled", ylabel="held-out accuracy", ylim=(0, 1))
        axes.legend(loc="best", fontsize=7.5)
    return made


def _differences(arms: list[Arm]) -> Figure:
    with styled():
        made = figure(5.2, 0.6 + 0.34 * len(arms))
        axes = made.add_subplot()
        for place, arm in enumerate(arms[1:]):
            e = difference(arm, arms[0])
            if e is None:
                continue
            y, slot = len(arms) - place, place + 1
            if e.low is not None and e.high is not None:
                axes.plot([100 * e.low, 100 * e.high], [y, y], color=colour(slot), lw=2.5)
            axes.plot([100 * e.estimate], [y], "o", color=colour(slot))
        axes.axvline(0.0, color="#9A9A9A", lw=0.7, zorder=1)
        axes.set_yticks(
            [len(arms) - k for k in range(len(arms) - 1)], [arm.name for arm in arms[1:]]
        )
        axes.set_xlabel(f"final accuracy minus that of {arms[0].name}, points")
    return made
