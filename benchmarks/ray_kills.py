"""A Ray cluster under kills, and every iteration that is trained on it counted.

    python benchmarks/ray_kills.py --strikes 24 --json

In each round the same plan is trained here and on a cluster of two nodes, where in turn a worker,
a raylet, the second node, the whole head node and the driver are killed, and the driver is asked to
stop. A lost node is replaced, a lost cluster made anew, and the same command given again. All
runs end with the same bytes. A shape of the user's own, which Klip loads wherever it trains, writes
each iteration that is trained or saved into a ledger: none is missing, and none is trained again
that had been saved before. With --json the record is kept after each round, and gone on with.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import kills
from ray_cluster import Cluster
from records import Record, add

from klip.runs import read_run, run_paths

RESULT = Path(__file__).parent / "results" / "ray_kills.json"
STRIKES = ("worker", "raylet", "node", "head", "driver", "Ctrl-C")
MORTAL = ("head", "driver", "Ctrl-C")  # after these the command has to be given again
ITERATIONS = 150
PATIENCE = 240.0  # seconds for a driver whose cluster is gone to say so, and for training to go on
PLAN = """seeds = [{seed}, {seed1}]
[[runs]]
tasks = ["CartPole-v1"]
shapes = ["counted.py:Counted", "counted.py:Other"]
config = {{ steps = {steps}, envs = 1, rollout = 128, minibatch = 32, epochs = 2 }}
"""
COUNTED = '''"""A shape that counts: each iteration trained or saved is a line of the ledger."""

import os

from klip.runs.store import RunFolder
from klip.shapes import Shape


def note(what, folder, iteration):
    ledger = os.open(os.environ["KLIP_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(ledger, f"{what} {folder.path.name} {iteration}\\n".encode())
    os.close(ledger)


if not hasattr(RunFolder, "counted"):
    RunFolder.counted = True
    append, save = RunFolder.append, RunFolder.save

    def counted_append(self, row):
        note("trained", self, row["iteration"])
        append(self, row)

    def counted_save(self, iteration, *more, **options):
        save(self, iteration, *more, **options)
        note("saved", self, iteration)

    RunFolder.append, RunFolder.save = counted_append, counted_save


class Counted(Shape):
    def multiplier(self, s):
        return s.w * s.advantage


class Other(Shape):
    def multiplier(self, s):
        return 0.5 * s.w * s.advantage
'''


def counts(ledger: str, runs: int) -> dict[str, int]:
    """What a ledger says of so many runs.

    >>> counts("trained a 1\\nsaved a 1\\ntrained a 2\\ntrained a 2\\ntrained a 1\\n", 1)[
    ...     "trained again though it was saved"]
    1
    """
    saved: Counter[str] = Counter()
    trained: Counter[tuple[str, int]] = Counter()
    again = 0
    for what, run, number in (line.split() for line in ledger.splitlines()):
        if what == "saved":
            saved[run] = max(saved[run], int(number))
        else:
            again += int(number) <= saved[run]
            trained[run, int(number)] += 1
    return {
        "iterations": len(trained),
        "missing": runs * ITERATIONS - len(trained),
        "trained again though it was saved": again,
        "trained again, lost with a process before it was saved": trained.total() - len(trained)
        - again,
    }  # fmt: skip


class Round:
    """A plan on a cluster, its ledger, and the command that trains it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.out, self.ledger = folder, folder / "shared", folder / "ledger"
        (folder / "counted.py").write_text(COUNTED)
        text = PLAN.format(seed=seed, seed1=seed + 1, steps=128 * ITERATIONS)
        (folder / "plan.toml").write_text(text)
        self.environment = {**os.environ, "KLIP_LEDGER": str(self.ledger),
                            "RAY_AUTH_MODE": "disabled"}  # fmt: skip
        self.cluster = Cluster(folder, {"KLIP_LEDGER": str(self.ledger)})

    def command(self, out: Path, *more: str) -> list[str]:
        return [sys.executable, "-m", "klip", "run", "plan.toml", "--out", str(out), *more]

    def driver(self) -> subprocess.Popen[bytes]:
        """The command, on the cluster as it is now."""
        line = self.command(self.out, "--ray", self.cluster.address, "--checkpoint-every", "0")
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(line, stdout=log, stderr=log, cwd=self.folder,
                                    env=self.environment, start_new_session=True)  # fmt: skip

    def trained_here(self) -> dict[str, Any]:
        """The same plan without Ray, into a ledger that nobody counts."""
        out = self.folder / "here"
        alone = {**self.environment, "KLIP_LEDGER": os.devnull}
        subprocess.run(self.command(out, "--workers", "1"), check=True, capture_output=True,
                       cwd=self.folder, env=alone)  # fmt: skip
        return kills.content(out)

    def rows(self) -> int:
        """Iterations in the ledger so far."""
        return self.ledger.read_text().count("trained") if self.ledger.exists() else 0

    def wait_for_more(self, driver: subprocess.Popen[bytes], draw: random.Random) -> bool:
        """Wait until training goes on, and a little; False if it has ended."""
        before, until = self.rows(), time.monotonic() + PATIENCE
        while driver.poll() is None and self.rows() < before + 3:
            if time.monotonic() > until:
                raise TimeoutError(f"nothing was trained for {PATIENCE:g} s\n{self.said()}")
            time.sleep(0.1)
        time.sleep(draw.uniform(0, 1.0))
        return driver.poll() is None

    def strike(self, kind: str, driver: subprocess.Popen[bytes], draw: random.Random) -> bool:
        """One strike; False if there was nothing to strike at."""
        cluster = self.cluster
        if kind in ("worker", "raylet"):
            nodes = [cluster.head, cluster.second] if kind == "worker" else [cluster.second]
            words = b"train_group" if kind == "worker" else b"raylet/raylet"
            found = [pid for node in nodes for pid in cluster.processes(node, words)]
            if not found:
                return False
            os.kill(draw.choice(found), signal.SIGKILL)
        elif kind == "node":
            cluster.kill(cluster.second)
        elif kind == "head":
            cluster.kill(cluster.head)
            self.wait_for_the_end(driver)
            self.cluster = Cluster(self.folder, {"KLIP_LEDGER": str(self.ledger)})
            cluster.close()  # what is left of the old one goes on until here
        else:
            os.kill(driver.pid, signal.SIGKILL if kind == "driver" else signal.SIGINT)
            driver.wait(PATIENCE)
        if kind in ("raylet", "node"):
            cluster.kill(cluster.second)
            cluster.start_second()
        return True

    def wait_for_the_end(self, driver: subprocess.Popen[bytes]) -> None:
        """A driver without a head says so in a line and ends, or Ray ends it."""
        try:
            driver.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
            raise TimeoutError(f"a driver without a head goes on for ever\n{self.said()}") from None

    def said(self) -> str:
        """The last that the driver has said."""
        return (self.folder / "driver.log").read_text(errors="replace")[-1500:]


def struck(kinds: list[str], seed: int, draw: random.Random, folder: Path) -> dict[str, Any]:
    """A round with these strikes in this order, as many as come before its end."""
    it, done, left = Round(folder, seed), Counter[str](), list(kinds)
    driver = None
    try:
        it.cluster.wait_for_both()
        while True:
            driver, ended = it.driver(), False
            while left and it.wait_for_more(driver, draw):
                if it.strike(left[0], driver, draw):
                    done[left[0]] += 1
                    ended |= left.pop(0) in MORTAL
            code = driver.wait(1800)
            if code == 0:
                break
            if not ended:
                raise RuntimeError(f"exit code {code}\n{it.said()}")
    finally:
        if driver is not None and driver.poll() is None:
            driver.kill()
        it.cluster.close()
    here, there = it.trained_here(), kills.content(it.out)
    found = counts(it.ledger.read_text(), len(here))
    assert all(read_run(path).iteration == ITERATIONS for path in run_paths(it.out))
    differ = sum(here.get(run) != there.get(run) for run in here.keys() | there.keys())
    return {**done, "rounds": 1, "runs": len(here), "runs that differ": differ, **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strikes", type=int, default=24)
    parser.add_argument("--only", nargs="*", default=list(STRIKES), choices=STRIKES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help=f"keep {RESULT.name}")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    record = Record(RESULT if given.json else None, given.seed)
    found = record.part("ray")
    while found.get("strikes", 0) < given.strikes and len(found.get("failures", [])) < 3:
        number, began = found.get("tries", 0), time.monotonic()
        draw = random.Random(f"{given.seed} {number}")
        kinds = draw.sample(given.only, min(3, len(given.only)))
        with tempfile.TemporaryDirectory() as scratch:
            try:
                more = struck(kinds, 10 * number, draw, Path(scratch))
            except Exception:
                more = {"failures": [f"{kinds}: {traceback.format_exc()[-3000:]}"]}
        more["strikes"] = sum(more.get(kind, 0) for kind in STRIKES)
        add(found, more | {"tries": 1, "seconds": round(time.monotonic() - began)})
        record.keep()
        print(json.dumps(found), flush=True)
    wrong = sum(found.get(name, 0) for name in
                ("runs that differ", "missing", "trained again though it was saved"))  # fmt: skip
    wrong += len(found.get("failures", []))
    print("nothing was lost, and nothing trained twice" if not wrong else f"{wrong} FAILURES")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
