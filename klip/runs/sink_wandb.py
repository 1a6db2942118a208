"""Weights & Biases: offline, where nothing leaves this machine, unless asked otherwise.

Offline, a run is one folder `wandb/offline-run-<time>-<id>`, made aside, read back and put in
place, so it is whole or not there. Online, new rows go to the run of the same id.
"""

from __future__ import annotations

import importlib
import os
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from klip.disk import operations
from klip.errors import KlipError
from klip.runs.files import DiskTrouble, disk, folder_aside, own_folder, put_folder
from klip.runs.lock import held
from klip.runs.record import Record
from klip.runs.sinks import (
    STATE,
    Sent,
    Sink,
    Synced,
    missing,
    read_state,
    scalars,
    step_of,
    title,
    write_state,
)

PROJECT = "klip"
ONLINE_PAUSE = 60.0
PATIENCE = 5.0
"""seconds in which a file that W&B writes has to grow"""
_LONGEST = {"name": 128, "group": 128, "tag": 64}  # what W&B accepts
_BLOCK, _HEADER = 32768, 7


def way_on(outputs: Sequence[Path]) -> str:
    """How to send what was written."""
    folders = sorted({output.parent for output in outputs})
    places = " ".join(f"'{folder}'/offline-run-*" for folder in folders)
    return f"nothing was sent; to send them: wandb sync {places}"


@contextmanager
def opened(online: bool) -> Iterator[Sink]:
    """The sink; W&B's own process ends with it, and the environment is as it was."""
    with tempfile.TemporaryDirectory(prefix="klip-wandb-") as scratch:
        quiet = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
        quiet |= {"WANDB_CACHE_DIR": scratch, "WANDB_DATA_DIR": scratch}
        before = {name: text for name, text in os.environ.items() if name.startswith("WANDB_")}
        os.environ.update(quiet)
        try:
            try:
                wandb = _wandb()
            except ImportError as error:
                raise missing("wandb", error) from None
            if wandb.run is not None:
                raise KlipError("a W&B run is open in this process: finish it, then sync")
            try:
                if online:
                    yield Sink(write_online, ONLINE_PAUSE)
                else:
                    yield Sink(write_offline, float("inf"))
            finally:
                wandb.teardown()
        finally:
            for name in [name for name in os.environ if name.startswith("WANDB_")]:
                del os.environ[name]
            os.environ.update(before)


def write_offline(record: Record, out: Path) -> Synced:
    """Make the run's offline folder anew, if there is anything new."""
    base = own_folder(out, "wandb")
    with held(base):  # or two commands at once would each write it
        return _made_anew(record, base)


def _made_anew(record: Record, base: Path) -> Synced:
    """Make the run's folder in `base`, which nobody else writes to meanwhile."""
    old = sorted(base.glob(f"offline-run-*-{record.id}"))
    for path in [path for path in old if path.is_symlink()]:
        with disk(base):
            operations.remove(path)  # nothing that we wrote, and not to be written through
        old.remove(path)
    sent, notes = read_state(old[-1] / STATE) if old else (None, [])
    reason = _why_anew(old, record, sent)
    now = (len(record.rows), record.status)
    if sent is not None and not reason and (sent.rows, sent.status) == now:
        return _synced(record, 0, "unchanged", old[-1], [])
    with folder_aside(base / record.id) as aside:
        run = _init(record, aside, mode="offline")
        _log(run, record, record.rows)
        run_folder = next((aside / "wandb").glob(f"offline-run-*-{record.id}"), aside)
        file = run_folder / f"run-{record.id}.wandb"
        if not _arrived(file, len(record.rows)):  # W&B says nothing when the disk is full
            raise DiskTrouble(
                f"cannot write {base}: W&B did not keep all rows of {record.path}; see whether the "
                "disk is full, or give another folder with --to-dir"
            )
        for part in ("tmp", "logs"):
            if (run_folder / part).is_dir():
                operations.remove_tree(run_folder / part)
        status = Sent.of(record.rows, record.status, file.name, file.stat().st_size)
        write_state(run_folder / STATE, status)
        place = base / run_folder.name
        put_folder(run_folder, place)
        with disk(base):
            for path in old:  # if they are still there after a crash, all is written anew
                if path != place:
                    operations.remove_tree(path)
    had = sent.rows if sent is not None and not reason else 0
    outcome = "written anew" if old and (sent is None or reason) else "added"
    return _synced(record, len(record.rows) - had, outcome, place, [*notes, reason])


def write_online(record: Record, out: Path) -> Synced:
    """Send the rows that W&B does not have yet, to the run of the same id."""
    base = own_folder(out, "wandb")
    state = base / f".online-{record.id}{STATE}"
    sent, damage = read_state(state)
    notes = [f"{state} is damaged: W&B was asked which rows it has"] if damage else []
    count = len(record.rows)
    if sent is not None and count < sent.rows:
        notes.append(f"W&B has {sent.rows} rows of it; more are sent once it has gone beyond that")
        return _synced(record, 0, "unchanged", None, notes)
    if sent is not None and not sent.begins(record.rows):
        notes.append(
            f"its first rows are not those that were sent, and W&B takes none back: delete run "
            f"{record.id} there, remove {state}, then sync again"
        )
        return _synced(record, 0, "left out", None, notes)
    if sent is not None and (sent.rows, sent.status) == (count, record.status):
        return _synced(record, 0, "unchanged", None, notes)
    with tempfile.TemporaryDirectory(prefix="klip-wandb-") as scratch:
        run = _init(record, Path(scratch), mode="online", resume="allow")
        known = run.starting_step if run.resumed else 0
        fresh = record.rows[sent.rows if sent is not None else 0 :]
        new = [row for row in fresh if step_of(row) >= known]
        _log(run, record, new)
    write_state(state, Sent.of(record.rows, record.status, record.id, 0))
    return _synced(record, len(new), "added", None, notes)


def _arrived(file: Path, rows: int) -> bool:
    """Whether all rows are in the file; waits, since W&B writes on after it says it is done."""
    size, since = -1, time.monotonic()
    while rows_in(file) != rows:
        now = file.stat().st_size if file.exists() else 0
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            return False
        time.sleep(0.02)
    return True


def rows_in(file: Path) -> int:
    """How many rows of history a W&B file has; -1 unless it is whole, to the end of the run."""
    message = importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    rows, whole = 0, False
    for data in records_in(file):
        kind = message.FromString(data).WhichOneof("record_type")
        rows += kind == "history"
        whole = whole or kind == "exit"
    return rows if whole else -1


def records_in(file: Path) -> Iterator[bytes]:
    """The messages of a W&B file, which is a log of LevelDB's kind: blocks of pieces."""
    try:
        data = file.read_bytes()
    except OSError:
        return
    place, pieces = _HEADER, b""  # the file's own header is as long as a piece's
    while place + _HEADER <= len(data):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER:
            place += left
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
        piece = data[place + _HEADER : place + _HEADER + size]
        if kind not in (1, 2, 3, 4) or len(piece) < size:
            return
        pieces = piece if kind in (1, 2) else pieces + piece
        if kind in (1, 4):
            yield pieces
        place += _HEADER + size


def _init(record: Record, folder: Path, *, mode: str, resume: str | None = None) -> Any:
    """A W&B run that captures nothing of its own: no console, machine, code or system figures."""
    wandb = _wandb()
    task, shape = (str(record.config.get(name)) for name in ("task", "shape"))
    machine = record.machines[-1] if record.machines else {}
    versions = {name: text for name, text in machine.items() if name != "since"}
    settings = wandb.Settings(
        console="off", silent=True, disable_git=True, disable_code=True, save_code=False,
        disable_job_creation=True, init_timeout=60.0, x_disable_meta=True, x_disable_stats=True,
        x_disable_machine_info=True, x_save_requirements=False,
    )  # fmt: skip
    try:
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            dir=str(folder),
            id=record.id,
            name=title(record)[: _LONGEST["name"]],
            group=f"{task} {shape}"[: _LONGEST["group"]],
            tags=[text[: _LONGEST["tag"]] for text in dict.fromkeys((task, shape))],
            config={**record.config, "versions": versions},
            mode=mode,
            resume=resume,
            settings=settings,
        )
    except wandb.Error as error:
        hint = "; run `wandb login` first, or leave out --online" if mode == "online" else ""
        raise KlipError(f"W&B did not take {record.path}: {_line(error)}{hint}") from None


def _log(run: Any, record: Record, rows: Sequence[Mapping[str, Any]]) -> None:
    """Log rows and the summary, and finish the run."""
    for row in rows:
        run.log(scalars(row), step=step_of(row))
    about = {"status": record.status, "reason": record.reason, "iteration": record.iteration}
    run.summary.update({**about, "final_return": record.final_return})
    run.finish(exit_code=1 if record.status in ("diverged", "failed") else 0)


def _why_anew(old: Sequence[Path], record: Record, sent: Sent | None) -> str:
    """Why all is to be written anew, in words; empty where rows were only added."""
    if sent is None:
        return ""
    file = old[-1] / f"run-{record.id}.wandb"
    if len(old) > 1:
        return "it was there more than once, so it was written anew"
    if not file.is_file() or file.stat().st_size != sent.output_size:
        return "its W&B file is not as it was left, so it was written anew"
    if not sent.begins(record.rows):
        return "its metrics were cut back or changed since the last time, so all was written anew"
    return ""


def _synced(
    record: Record, new: int, outcome: str, place: Path | None, notes: Sequence[str]
) -> Synced:
    rows, remarks = len(record.rows), tuple(filter(None, notes))
    return Synced(record.path, record.id, record.status, rows, new, outcome, place, remarks)


def _wandb() -> Any:
    """The package; its types differ from version to version."""
    return importlib.import_module("wandb")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
