"""What lies in a folder of runs, for `klip runs`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from klip.engine.job import USUAL, iterations_of
from klip.engine.labels import labels
from klip.engine.live import number
from klip.errors import KlipError
from klip.runs import Record, read_run, run_paths
from klip.runs.files import shown

_COLOURS = {"done": "green", "running": "cyan", "stopped": "yellow"}
_UNREADABLE: dict[str, Any] = {
    "kind": None, "task": None, "shape": None, "name": "?", "seed": None, "status": "damaged",
    "iteration": 0, "iterations": None, "step": 0, "progress": 0.0, "return": None, "machines": 0,
    "notes": [], "history": [],
}  # fmt: skip


def list_runs(folder: str | Path = "runs") -> list[dict[str, Any]]:
    """An entry for each run in or below `folder`, in order of task, shape, settings and seed.

    Its `name` is the shape in brief, with the settings in which runs of the task differ.

    >>> [run["status"] for run in list_runs("runs")]  # doctest: +SKIP

    Args:
        folder: one that `klip.train` or `klip.run` wrote

    Returns:
        plain data: name, task, shape, seed, status, iterations, steps and the return so far of each

    """
    found = [_read(path) for path in run_paths(Path(folder))]
    if not found:
        raise KlipError(f"there are no runs in {folder}; `klip train` and `klip run` make some")
    whole = [each for each in found if isinstance(each, Record)]
    names = labels([record.config for record in whole])
    entries = [_entry(record, name) for record, name in zip(whole, names, strict=True)]
    entries += [each for each in found if isinstance(each, dict)]
    return sorted(
        entries,
        key=lambda run: (str(run["task"]), str(run["shape"]), run["name"], run["seed"] or 0),
    )


def _read(path: Path) -> Record | dict[str, Any]:
    """A run, or the entry of one that cannot be read."""
    try:
        return read_run(path)
    except KlipError as error:
        id = path.name.rpartition("-")[2]
        return {**_UNREADABLE, "path": str(path), "id": id, "reason": str(error)}


def _entry(record: Record, name: str) -> dict[str, Any]:
    rows, iterations = record.rows, iterations_of(record.config)
    known = [row["return_mean"] for row in rows if row["return_mean"] is not None]
    return {
        "path": str(record.path),
        "id": record.id,
        "kind": record.config.get("kind", USUAL),
        "task": record.config["task"],
        "shape": record.config.get("shape"),
        "name": name,
        "seed": record.config["seed"],
        "status": record.status,
        "iteration": len(rows),
        "saved": record.iteration,
        "iterations": iterations,
        "step": rows[-1]["step"] if rows else 0,
        "progress": len(rows) / max(iterations, 1),
        "return": record.final_return if record.status == "done" else known[-1] if known else None,
        "reason": record.reason,
        "machines": len(record.machines),
        "notes": list(record.notes),
        "history": list(record.history),
    }


def runs_table(entries: Sequence[dict[str, Any]], folder: Path) -> Table:
    """The list as a table for a terminal."""
    title = f"{len(entries)} run{'s' if len(entries) > 1 else ''} in {shown(str(folder))}"
    table = Table(title=escape(title), title_justify="left", box=None)
    right = ("seed", "progress", "step", "return")
    for column in ("task", "shape", "seed", "status", "progress", "step", "return", "id", "why"):
        justify: Any = "right" if column in right else "left"
        whole = column in ("status", "id", "step")
        table.add_column(column, justify=justify, overflow="fold", no_wrap=whole)
    for run in entries:
        colour = _COLOURS.get(run["status"], "bold red")
        table.add_row(
            escape(str(run["task"] or "?")),
            escape(shown(run["name"])),
            str(run["seed"]),
            f"[{colour}]{run['status']}[/]",
            f"{run['progress']:.0%}",
            f"{run['step']:,}",
            number(run["return"]),
            run["id"],
            escape(shown(run["reason"])),
        )
    return table
