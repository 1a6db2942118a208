"""TensorBoard: one event file per run, a pure function of the run.

It is written with TensorBoard's own records and messages; neither TensorFlow nor PyTorch is needed.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2  # type: ignore[import-untyped]
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.plugins.text.summary_v2 import text_pb  # type: ignore[import-untyped]
from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

from klip.disk import operations
from klip.errors import KlipError
from klip.runs.files import disk, own_folder
from klip.runs.lock import held
from klip.runs.record import Record
from klip.runs.sinks import (
    ENDED,
    STATE,
    Sent,
    Sink,
    Synced,
    read_state,
    scalars,
    step_of,
    write_state,
)
from klip.runs.store import slug

_OWN = re.compile(r"events\.out\.tfevents\.(\d{10})\.klip")


def opened(online: bool = False) -> AbstractContextManager[Sink]:
    """The sink; there is nothing to close."""
    if online:
        raise KlipError("--online is for --to wandb: TensorBoard's files stay where they are")
    return nullcontext(Sink(write, folder="tensorboard"))


def way_on(outputs: Sequence[Path]) -> str:
    """How to look at what was written; an output is `<folder>/<task>/<shape>/<run>`."""
    folders = sorted({output.parents[2] for output in outputs})
    return "\n".join(f"to look at them: tensorboard --logdir '{folder}'" for folder in folders)


def write(record: Record, out: Path) -> Synced:
    """Add the rows that are new, or write the run's event file anew where others have changed."""
    names = [slug(str(record.config.get(name))) for name in ("task", "shape")]
    folder = own_folder(out, *names, record.path.resolve().name)
    with held(folder):  # or two commands at once would add the same rows
        return _brought_up(record, folder)


def _brought_up(record: Record, folder: Path) -> Synced:
    """Bring a run's event file up to date; nobody else writes it meanwhile."""
    sent, notes = read_state(folder / STATE)
    status = record.status if record.status in ENDED else ""
    reason = _why_anew(folder, record, sent, status)
    old = _own_files(folder)
    if sent is None or reason:
        # a new name: a TensorBoard that is watching would not notice that an old file changed
        number = 1 + max(old, default=0)
        file, size, had = folder / f"events.out.tfevents.{number:010d}.klip", 0, 0
    elif (sent.rows, sent.status) == (len(record.rows), status):
        return _synced(record, 0, "unchanged", folder, notes)
    else:
        file, size, had = folder / sent.output, sent.output_size, sent.rows
    events = [] if had else _beginning(record)
    events += map(_event, record.rows[had:])
    events += _end(record) if status else []
    size = _append(file, size, _encode(events))
    write_state(folder / STATE, Sent.of(record.rows, status, file.name, size))
    for path in old.values():
        if path != file:
            _retire(path, last=path == old[max(old)])
    outcome = "added" if had or not (reason or old) else "written anew"
    return _synced(record, len(record.rows) - had, outcome, folder, [*notes, reason])


def _why_anew(folder: Path, record: Record, sent: Sent | None, status: str) -> str:
    """Why all is to be written anew, in words; empty where rows were only added."""
    if sent is None:
        return ""
    file = folder / sent.output
    if _OWN.fullmatch(sent.output) is None or file.is_symlink() or not file.is_file():
        return "its event file is gone, so it was written anew"
    if file.stat().st_size != sent.output_size:
        return "its event file is not as it was left, so it was written anew"
    if not sent.begins(record.rows):
        return "its metrics were cut back or changed since the last time, so all was written anew"
    if sent.status and (sent.rows, sent.status) != (len(record.rows), status):
        return f"it went on after it was {sent.status}, so all was written anew"
    return ""


def _synced(record: Record, new: int, outcome: str, folder: Path, notes: Sequence[str]) -> Synced:
    rows, remarks = len(record.rows), tuple(filter(None, notes))
    return Synced(record.path, record.id, record.status, rows, new, outcome, folder, remarks)


def _own_files(folder: Path) -> dict[int, Path]:
    """Event files that were written here, by their number; others are not touched."""
    matches = ((_OWN.fullmatch(path.name), path) for path in folder.glob("events.*"))
    return {int(own[1]): path for own, path in matches if own}


def _retire(path: Path, *, last: bool) -> None:
    """Remove a file; the last one only loses its content, so that whoever reads it moves on."""
    with disk(path):
        if last and path.is_file() and not path.is_symlink():
            operations.close(operations.create(path))
        else:
            operations.remove(path)


def _append(file: Path, size: int, data: bytes) -> int:
    """Add to a file of this size, and return the new size; if that fails, the file is as it was."""
    with disk(file):
        handle = operations.create(file, os.O_WRONLY | os.O_APPEND)
        try:
            operations.write(handle, data)
            operations.sync(handle)
        except OSError:
            operations.truncate(handle, size)
            if not size:
                operations.remove(file)
            raise
        finally:
            operations.close(handle)
    return size + len(data)


def _encode(events: Sequence[Any]) -> bytes:
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    for event in events:
        writer.write(event.SerializeToString(deterministic=True))
    return buffer.getvalue()


def _event(row: Mapping[str, Any]) -> Any:
    """The event of a row; rows have no time of day, so their number stands for it."""
    values = [Summary.Value(tag=tag, simple_value=v) for tag, v in scalars(row).items()]
    return Event(
        wall_time=float(row["iteration"]), step=step_of(row), summary=Summary(value=values)
    )


def _beginning(record: Record) -> list[Any]:
    """The version of the format, a restart (what was read before is void), and the config."""
    start = plugin_data_pb2.SessionStartInfo(group_name=record.id, start_time_secs=0.0)
    for name, value in record.config.items():
        match value:
            case bool():
                start.hparams[name].bool_value = value
            case int() | float():
                start.hparams[name].number_value = value
            case _:
                start.hparams[name].string_value = value if isinstance(value, str) else str(value)
    about = plugin_data_pb2.HParamsPluginData(session_start_info=start)
    return [
        Event(file_version="brain.Event:2"),
        Event(session_log=SessionLog(status=SessionLog.START)),
        Event(summary=_hparams(hparams.SESSION_START_INFO_TAG, about)),
        Event(summary=text_pb("run/config", _table(record.config))),
    ]


def _end(record: Record) -> list[Any]:
    """How the run ended, and on which machines it was trained."""
    last = record.rows[-1]
    when = {"wall_time": float(last["iteration"]), "step": step_of(last)}
    done = api_pb2.STATUS_SUCCESS if record.status == "done" else api_pb2.STATUS_FAILURE
    info = plugin_data_pb2.SessionEndInfo(status=done, end_time_secs=when["wall_time"])
    about = plugin_data_pb2.HParamsPluginData(session_end_info=info)
    facts: dict[str, Any] = {"status": record.status, "reason": record.reason}
    facts |= {"final return": record.final_return, "history": "; ".join(record.history)}
    for machine in record.machines:
        facts[f"machine since iteration {machine.get('since')}"] = dict(machine)
    return [
        Event(summary=_hparams(hparams.SESSION_END_INFO_TAG, about), **when),
        Event(summary=text_pb("run/end", _table(facts)), **when),
    ]


def _hparams(tag: str, about: Any) -> Any:
    metadata = hparams.create_summary_metadata(about)
    # each process would write the fields in an order of its own
    said = plugin_data_pb2.HParamsPluginData.FromString(metadata.plugin_data.content)
    metadata.plugin_data.content = said.SerializeToString(deterministic=True)
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=hparams.NULL_TENSOR)])


def _table(facts: Mapping[str, Any]) -> str:
    """A Markdown table, in which every value is plain text."""
    lines = ["| | |", "|---|---|"]
    for name, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value)
        clean = " ".join(text.split()).replace("`", "'").replace("|", "\\|")
        lines.append(f"| {name} | `{clean}` |" if clean else f"| {name} | |")
    return "\n".join(lines)
