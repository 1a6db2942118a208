"""Kills of the commands that write something other than runs: pack, export, sync, report.

Each is killed at random moments over what an earlier one left. What is there afterwards can be
read; and once a command was let end, its files have the bytes that they have without a kill, and
nothing else lies beside them. `campaign.py` counts the kills.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crash_lives as lives

from klip.engine.advance import Keeping
from klip.policies import load
from klip.studies.packing import is_packed, unpack

LINES: dict[str, Callable[[Path, Path], list[str]]] = {
    "pack": lambda runs, out: ["pack", str(runs), "-o", str(out / "packed")],
    "export": lambda runs, out: [
        "export", str(Keeping(runs).path(lives.job_of("ppo"))), "-o", str(out / "policy"),
        "--no-onnx", "--episodes", "2", "--force",
    ],
    "sync": lambda runs, out: ["sync", str(runs), "--to", "tensorboard", "--to-dir", str(out)],
    "report": lambda runs, out: ["report", str(runs), "-o", str(out / "report.html")],
}  # fmt: skip


def start(name: str, runs: Path, out: Path) -> subprocess.Popen[bytes]:
    with (out.parent / f"{out.name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "klip", *LINES[name](runs, out)],
            start_new_session=True, stdout=log, stderr=log,
        )  # fmt: skip


def let_end(name: str, runs: Path, out: Path) -> float:
    """Give a command time to end; how much it took."""
    out.mkdir(exist_ok=True)
    began = time.monotonic()
    if start(name, runs, out).wait(600) != 0:
        log = (out.parent / f"{out.name}.log").read_text(errors="replace")
        raise RuntimeError(f"{name} failed\n{log[-2000:]}")
    return time.monotonic() - began


def readable(out: Path) -> None:
    """Raise unless what a killed command left is whole."""
    if is_packed(out / "packed"):
        unpack(out / "packed")
    if (out / "policy").exists():
        load(out / "policy")
    page = out / "report.html"
    if page.exists() and not page.read_text(encoding="utf-8").rstrip().endswith("</html>"):
        raise RuntimeError("half a page is there")


def files_in(out: Path) -> dict[str, bytes]:
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def struck(count: int, draw: random.Random, folder: Path) -> dict[str, Any]:
    """A round of so many kills at one of the commands; what came of it."""
    name = draw.choice(list(LINES))
    runs, calm, rough = folder / "runs", folder / "calm", folder / "rough"
    lives.advanced(lives.job_of("ppo"), runs, lambda news: None)
    seconds = let_end(name, runs, calm)
    rough.mkdir()
    if draw.random() < 0.5:  # over what is there already
        let_end(name, runs, rough)
    done = 0
    for _ in range(count):
        process = start(name, runs, rough)
        time.sleep(draw.uniform(0.3, 1.1) * seconds)
        done += process.poll() is None
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        readable(rough)
    let_end(name, runs, rough)
    differ = files_in(calm) != files_in(rough)
    return {"group": done, "rounds": 1, f"rounds of {name}": 1, "runs that differ": int(differ)}
