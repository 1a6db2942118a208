"""How soon does training start, and do its bytes depend on what is kept of earlier trainings?

    python benchmarks/starting.py [--task CartPole-v1] [--seeds 5] [--again 3] [--at-once 4]

`klip train TASK` is started with no compiled program kept, again and again with those that it left,
with each of them damaged, several times at once with none kept, and with the cache off. Counted are
the seconds from the start of the command to the first row of metrics. On a busy machine they mean
nothing: the load is written down. Writes benchmarks/results/starting.json; the exit code is 1 where
a later start takes longer than 3 s or the bytes of any two trainings differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from same_bytes import digests

from klip.runs.machine import this_machine
from klip.runs.record import run_paths

RESULT = Path(__file__).parent / "results" / "starting.json"
TARGET = 3.0  # seconds to the first iteration, where programs are kept
PATIENCE = 600.0  # seconds for a first row


class Start(NamedTuple):
    """One training: when its first row was there, and the digests of its runs."""

    seconds: float
    runs: dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="CartPole-v1")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8192, help="of each run, all of them trained")
    parser.add_argument("--again", type=int, default=3, help="starts with programs kept")
    parser.add_argument("--at-once", type=int, default=4, help="starts beside each other")
    options = parser.parse_args()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as scratch:
        starts = measured(Path(scratch), options)
    whole = {
        "task": options.task, "seeds": options.seeds, "load_before": load, **summary(starts),
        "machine": dict(this_machine(("jax", "jaxlib", "numpy"))),
    }  # fmt: skip
    RESULT.write_text(json.dumps(whole, indent=1, default=str) + "\n")
    print(json.dumps(whole["seconds"], indent=1))
    print(f"{'the same' if whole['same_bytes'] else 'DIFFERENT'} bytes; {RESULT}")
    return 0 if whole["same_bytes"] and whole["met"] else 1


def measured(scratch: Path, options: argparse.Namespace) -> dict[str, list[Start]]:
    """Every kind of start, one after the other."""
    kept, fresh = scratch / "kept", scratch / "fresh"
    words = [options.task, "--seeds", str(options.seeds), "--steps", str(options.steps)]
    count = 0

    def started(cache: str, at_once: int = 1) -> list[Start]:
        nonlocal count
        outs = [scratch / f"runs-{count + i}" for i in range(at_once)]
        count += at_once
        return trained(words, cache, outs)

    starts = {"none kept": started(str(kept))}
    starts["kept"] = [start for _ in range(options.again) for start in started(str(kept))]
    damage(kept)
    starts["each damaged"] = started(str(kept))
    starts[f"{options.at_once} at once, none kept"] = started(str(fresh), options.at_once)
    starts["cache off"] = started("off")
    return starts


def trained(words: Sequence[str], cache: str, outs: Sequence[Path]) -> list[Start]:
    """Start a training for each folder at once, wait for first rows, then for all to end."""
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "klip", "train", *words, "--out", str(out)],
            env={**os.environ, "KLIP_CACHE": cache}, stdout=subprocess.DEVNULL,
        )
        for out in outs
    ]  # fmt: skip
    try:
        seconds: dict[Path, float] = {}
        while len(seconds) < len(outs):
            now = time.monotonic() - began
            seconds |= {out: now for out in outs if out not in seconds and has_row(out)}
            ended = [p.args for p in processes if p.poll()]
            if ended or now > PATIENCE:
                raise SystemExit(f"no first row after {now:.0f} s: {ended or 'it hangs'}")
            time.sleep(0.005)
        for process in processes:
            if process.wait():
                raise SystemExit(f"{process.args!r} ended with {process.returncode}")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [Start(seconds[out], dict(map(digests, run_paths(out)))) for out in outs]


def has_row(out: Path) -> bool:
    """Whether a run in this folder has written its first row of metrics."""
    return any(b"\n" in path.read_bytes() for path in out.rglob("metrics.jsonl"))


def damage(folder: Path) -> None:
    """Flip a bit in the middle of every program that is kept."""
    for path in folder.rglob("*-cache.*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def summary(starts: dict[str, list[Start]]) -> dict[str, Any]:
    """The slowest start of each kind, whether the target is met, and whether all bytes are one."""
    seconds = {kind: max(start.seconds for start in own) for kind, own in starts.items()}
    every = [start.runs for own in starts.values() for start in own]
    return {
        "seconds": seconds,
        "target": TARGET,
        "met": seconds["kept"] <= TARGET,
        "runs": len(every[0]),
        "same_bytes": bool(every[0]) and all(runs == every[0] for runs in every),
    }


if __name__ == "__main__":
    sys.exit(main())
