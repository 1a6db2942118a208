"""Does a change of the code leave runs as they were? Trains a few, and compares every byte.

    python benchmarks/same_bytes.py --keep     # before: write results/same_bytes.json
    python benchmarks/same_bytes.py            # after: train again, and compare

Each array of a run's last checkpoint and each column of its metrics has a digest of its own, so
that a column that was only renamed can be told from one that changed. Digests depend on the
processor and on versions, which are kept with them: elsewhere, keep your own first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from klip.engine.job import kind_of
from klip.runs import read_run
from klip.runs.machine import differences, this_machine
from klip.runs.record import run_paths

LIBRARIES = tuple({name: None for kind in ("ppo", "tokens") for name in kind_of(kind).libraries})
KEPT = Path(__file__).parent / "results" / "same_bytes.json"
COMMANDS = {
    "CartPole paper": "run paper --task CartPole-v1",
    "HalfCheetah 100k": "train HalfCheetah-v4 --shape clip adaptive-kl --seeds 1 --steps 100000",
    "Humanoid 20k": "train Humanoid-v4 --shape clip --seeds 1 --steps 20000",
    "LunarLander 50k": "train LunarLander-v3 --shape clip --seeds 1 --steps 50000",
    "scratchpad seed 0": "run scratchpad --seeds 1",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="write the digests, compare nothing")
    parser.add_argument("--only", nargs="*", default=list(COMMANDS), help="some of the commands")
    options = parser.parse_args()
    now: dict[str, Any] = {}
    for name in options.only:
        now |= trained(COMMANDS[name].split())
    if options.keep:
        kept = json.loads(KEPT.read_text())["runs"] if KEPT.exists() else {}
        text = json.dumps({"machine": dict(this_machine(LIBRARIES)), "runs": kept | now}, indent=1)
        KEPT.write_text(text + "\n")
        print(f"{len(now)} runs kept in {KEPT}")
        return 0
    before = json.loads(KEPT.read_text())
    machine = this_machine(LIBRARIES)
    for change in differences(before["machine"], machine):
        print(f"since the digests were kept: {change}; bytes may differ")
    whole = set(options.only) == set(COMMANDS)
    return compare({k: v for k, v in before["runs"].items() if whole or k in now}, now)


def trained(command: list[str]) -> dict[str, Any]:
    """Digests of the runs of a command, by task, shape and seed."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "klip", *command, "--out", folder]
        print("klip", *command, flush=True)
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        runs = run_paths(Path(folder))
        return dict(digests(path) for path in runs if "shape" in read_run(path).config)


def digests(path: Path) -> tuple[str, dict[str, Any]]:
    """A run's name, and a digest of each of its arrays and each column of its metrics."""
    record = read_run(path)
    c = record.config
    arm = c.get("arm", "")
    name = " ".join(
        str(part) for part in (c["task"], arm or c["shape"], "seed", c["seed"]) if str(part)
    )
    columns = {key: [row.get(key) for row in record.rows] for key in record.rows[0]}
    return name, {
        "status": record.status,
        "arrays": {k: _digest(_bytes(v)) for k, v in sorted(record.arrays.items())},
        "metrics": {k: _digest(json.dumps(v).encode()) for k, v in sorted(columns.items())},
    }


def compare(before: dict[str, Any], now: dict[str, Any]) -> int:
    """Print what differs, run by run; 0 if nothing does."""
    differ = set()
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            print(f"{name}: {'not trained now' if new is None else 'not kept before'}")
            differ.add(name)
            continue
        for kind in ("arrays", "metrics"):
            lost = {k: v for k, v in old[kind].items() if new[kind].get(k) != v}
            renamed = {k for k, v in lost.items() if v in new[kind].values()}
            if changed := sorted(lost.keys() - renamed):
                print(f"{name}: {kind} differ: {', '.join(changed)}")
                differ.add(name)
    same = len(before.keys() - differ)
    print(f"{len(now)} runs trained, {same} of {len(before)} the same in every byte")
    return 1 if differ else 0


def _bytes(array: Any) -> bytes:
    return f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
