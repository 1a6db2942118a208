"""`klip sync`: metrics for TensorBoard and W&B."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from klip.cli.common import Json, print_json

if TYPE_CHECKING:
    from klip.runs.sinks import Synced


def sync(
    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")],
    to: Annotated[str, tyro.conf.arg(metavar="SINK")],
    to_dir: Path | None = None,
    follow: bool = False,
    online: bool = False,
    as_json: Json = False,
) -> int:
    """Bring TensorBoard or W&B up to date with runs; nothing is sent anywhere unless --online.

    Args:
        path: a run, or a folder with runs below it
        to: tensorboard or wandb, each an extra of Klip
        to_dir: folder to write to; one beside the runs' folder unless given
        follow: go on until nobody trains these runs any more, or until Ctrl-C
        online: send to the W&B account of this machine, instead of keeping it in files
        as_json: print one JSON object

    """
    from klip.runs import sinks

    look = sinks.followed if follow else sinks.sync
    done = _shown(look(path, to, to_dir, online=online), silent=as_json)
    if as_json:
        print_json({"to": to, "runs": [_plain(each) for each in done]})
    elif any(each.output for each in done):
        folders = [each.output for each in done if each.output]
        print(sinks.way_on(to, folders))
    return 1 if any(each.outcome == "cannot be read" for each in done) else 0


def _shown(steps: Iterable[Synced], *, silent: bool) -> list[Synced]:
    """Print a line per step; return the last step of each run, with the new rows of all."""
    last: dict[Path, Synced] = {}
    for each in steps:
        if not silent:
            print(_line(each), flush=True)
            for note in each.notes:
                print(f"  {note}", flush=True)
        before = last[each.run].new if each.run in last else 0
        last[each.run] = dataclasses.replace(each, new=each.new + before)
    return list(last.values())


def _line(each: Synced) -> str:
    match each.outcome:
        case "added":
            outcome = f"{each.new} rows added, {each.rows} in all"
        case "written anew" | "unchanged":
            outcome = f"{each.outcome}, {each.rows} rows"
        case _:
            outcome = each.outcome
    return f"{each.run}: {outcome}" + (f" ({each.status})" if each.status else "")


def _plain(each: Synced) -> dict[str, Any]:
    return {name: _text(value) for name, value in dataclasses.asdict(each).items()}


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
