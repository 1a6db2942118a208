"""What lies in a folder of runs, for `klip runs`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from klip.errors import KlipError
from klip.runs import read_run, run_paths
from klip.runs.files import shown
from klip.studies.study import label_of

_COLOURS = {"done": "green", "running": "cyan", "stopped": "yellow"}


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """One entry a run, in order of task, shape and seed."""
    found = [_entry(path) for path in run_paths(folder)]
    if not found:
        raise KlipError(f"there are no runs in {folder}; `klip train` makes some")
    return sorted(found, key=lambda run: (str(run["task"]), str(run["shape"]), run["seed"] or 0))


def _entry(path: Path) -> dict[str, Any]:
    try:
        record = read_run(path)
    except KlipError as error:
        return {"path": str(path), "id": path.name.rpartition("-")[2], "task": None, "shape": None,
                "seed": None, "status": "damaged", "iteration": 0, "iterations": None, "step": 0,
                "progress": 0.0, "return": None, "reason": str(error), "machines": 0,
                "notes": [], "history": []}  # fmt: skip
    rows = record.rows
    known = [row["return_mean"] for row in rows if row["return_mean"] is not None]
    return {
        "path": str(path),
        "id": record.id,
        "task": record.config["task"],
        "shape": record.config["shape"],
        "seed": record.config["seed"],
        "status": record.status,
        "iteration": len(rows),
        "saved": record.iteration,
        "iterations": record.iterations,
        "step": rows[-1]["step"] if rows else 0,
        "progress": len(rows) / max(record.iterations, 1),
        "return": record.final_return if record.status == "done" else known[-1] if known else None,
        "reason": record.reason,
        "machines": len(record.machines),
        "notes": list(record.notes),
        "history": list(record.history),
    }


def runs_table(found: Sequence[dict[str, Any]], folder: Path) -> Table:
    """The list for a person."""
    title = f"{len(found)} run{'s' if len(found) > 1 else ''} in {shown(str(folder))}"
    table = Table(title=escape(title), title_justify="left", box=None)
    right = ("seed", "progress", "step", "return")
    for column in ("task", "shape", "seed", "status", "progress", "step", "return", "id", "why"):
        table.add_column(
            column, justify="right" if column in right else "left", overflow="fold",
            no_wrap=column in ("status", "id", "step"),
        )  # fmt: skip
    for run in found:
        colour = _COLOURS.get(run["status"], "bold red")
        value = "-" if run["return"] is None else f"{run['return']:.1f}"
        table.add_row(
            escape(str(run["task"] or "?")), escape(label_of(run["shape"] or "?")),
            str(run["seed"]),
            f"[{colour}]{run['status']}[/]", f"{run['progress']:.0%}", f"{run['step']:,}", value,
            run["id"], escape(shown(run["reason"])),
        )  # fmt: skip
    return table
