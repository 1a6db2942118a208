"""Kills, stops and damages over all kinds of runs and all files that are read; slow, and thorough.

    python benchmarks/campaign.py --strikes 1000 --damages 10000 --json [--only replay tokens]

Each kind of run is trained twice from the same plan: once undisturbed, and once under strikes at
random moments, after which the same command is given again at once, until all runs are done. A
strike is a SIGKILL of a worker, of the parent, of all, or of all in the middle of a checkpoint, a
SIGTERM or Ctrl-C of the parent, or a pause of a worker. Then metrics, arrays and what a league
froze are compared byte for byte, and the rows counted. Commands that write something else are
killed at random moments, too (`struck_commands.py`). Damages are those of `damage.py`, those of
runs that the trainers go on with (`damaged_trainers.py`), and those of `other_files.py`: what is
read is then what was written, or a line says that it is not.

With --json the record is kept after each round of strikes and after each 500 damages. The same
command goes on from there, as long as the code is the same; with a larger number it adds to it.
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import damage
import damaged_trainers
import kills
import other_files
import struck_commands
from records import Record, add

RESULT = Path(__file__).parent / "results" / "campaign.json"
STRIKES = ("worker", "parent", "group", "checkpoint", "SIGTERM", "Ctrl-C", "pause")
COMMANDS = "pack, export, sync, report"
MOST_FAILURES = 5  # of a kind; then the next one is tried
PATIENCE = 1800.0  # seconds for a command without strikes to end
PPO = """seeds = [{seed}, {seed1}]
config = {{ {config} }}
[[runs]]
tasks = ["{task}"]
shapes = ["clip", "adaptive-kl"]
"""
TOKENS = """kind = "tokens"
seeds = [{seed}, {seed1}]
config = {{ iterations = 30, prompts = 16, replay = {replay}, warmup = {{ steps = 200 }} }}
[[runs]]
group = "clips"
arms = [{{ name = "plain", shape = "clip" }}, {{ name = "soft", shape = "ramp" }}]
"""
LEAGUE = """about = "Small."
kind = "league"
tasks = ["CartPole-v1"]
shapes = ["clip", "spo"]
factors = [1, 2]
stress = [{{ name = "K = 1", config = {{ epochs = 1 }} }}]
tuning = {{ seeds = [{tuned}], config = {{ steps = 8192, envs = 4, rollout = 128 }} }}
testing = {{ seeds = 1, config = {{ steps = 8192, envs = 4, rollout = 128 }} }}
"""
KINDS: dict[str, Callable[[int], str]] = {
    "own lanes": lambda s: ppo(s, "CartPole-v1", "steps = 25600"),
    "MuJoCo": lambda s: ppo(s, "Hopper-v4", "steps = 20480, rollout = 512"),
    "MuJoCo, contacts": lambda s: ppo(s, "Humanoid-v4", "steps = 4096, rollout = 256"),
    "Box2D": lambda s: ppo(s, "LunarLander-v3", "steps = 16384, envs = 4, rollout = 256"),
    "in processes": lambda s: ppo(s, "Pendulum-v1", "steps = 10240, rollout = 512, processes = 2"),
    "replay": lambda s: ppo(s, "CartPole-v1", "steps = 15360, replay = 3, lag = 2"),
    "tokens": lambda s: TOKENS.format(seed=s, seed1=s + 1, replay=0),
    "tokens, replay": lambda s: TOKENS.format(seed=s, seed1=s + 1, replay=2),
    "league": lambda s: LEAGUE.format(tuned=1000 + s),
}
"""Plans, by the seed that they begin with; token plans have warm-ups, which are runs, too."""


def ppo(seed: int, task: str, fields: str) -> str:
    return PPO.format(seed=seed, seed1=seed + 1, task=task, config=fields)


# -- strikes at runs ------------------------------------------------------------------------------


@contextlib.contextmanager
def started(plan: Path, out: Path, every: float) -> Iterator[subprocess.Popen[bytes]]:
    """The command that trains a plan; nothing of it is left."""
    line = [sys.executable, "-m", "klip", "run", str(plan), "--out", str(out)]
    with log_of(out).open("ab") as log:
        process = subprocess.Popen(
            [*line, "--checkpoint-every", str(every)],
            start_new_session=True, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    except BaseException:  # we are stopped, or something is wrong
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise


def log_of(out: Path) -> Path:
    return out.parent / f"{out.name}.log"


def strike(process: subprocess.Popen[bytes], kind: str, out: Path, draw: random.Random) -> bool:
    """Disturb a command once at a random moment; False if it had ended before."""
    began = kills.size(out)
    while process.poll() is None and kills.size(out) == began and draw.random() < 0.995:
        time.sleep(0.02)
    time.sleep(draw.uniform(0, 1.5))
    until = time.monotonic() + 20
    while kind == "checkpoint" and process.poll() is None and time.monotonic() < until:
        if next(out.glob("*/*/*/.checkpoint.safetensors.*.part"), None) is not None:
            break
    if process.poll() is not None:
        return False
    if kind in ("worker", "pause"):
        training = kills.workers(process.pid)
        if not training:
            return False
        victim = draw.choice(training)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL if kind == "worker" else signal.SIGSTOP)
            if kind == "pause":
                time.sleep(draw.uniform(0.1, 3))
                os.kill(victim, signal.SIGCONT)
        return True
    if kind in ("group", "checkpoint"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        number = {"parent": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}
        os.kill(process.pid, number[kind])
    process.wait(300)
    return True


def disturbed(plan: Path, out: Path, count: int, draw: random.Random) -> Counter[str]:
    """Train to the end under so many strikes; the same command follows a strike at once."""
    done: Counter[str] = Counter()
    while True:
        said = log_of(out).stat().st_size if log_of(out).exists() else 0
        with started(plan, out, every=0.3) as process:
            while process.poll() is None and done.total() < count:
                kind = draw.choice(STRIKES)
                done[kind] += strike(process, kind, out, draw)
            code = process.wait(PATIENCE)
        if code == 0:
            return done
        if code > 0 and code not in (130, 143):
            log = log_of(out).read_bytes()[said:].decode(errors="replace")
            if "times in a row" not in log:  # as it says of a run whose processes all were killed
                raise RuntimeError(f"exit code {code}\n{log[-2000:]}")


def content(out: Path) -> dict[str, Any]:
    """What must be equal: each run's metrics and arrays, and what a league says of them."""
    files = {path.name: path.read_bytes() for path in out.glob("*.json")}
    return {**kills.content(out), **files}


def struck(name: str, number: int, count: int, draw: random.Random, folder: Path) -> dict[str, Any]:
    """A round of one kind of run with at most so many strikes; what came of it."""
    plan, calm, rough = folder / "plan.toml", folder / "calm", folder / "rough"
    plan.write_text(KINDS[name](100 * number))
    with started(plan, calm, every=60) as process:
        if process.wait(PATIENCE) != 0:
            raise RuntimeError(log_of(calm).read_text(errors="replace")[-2000:])
    strikes = disturbed(plan, rough, count, draw)
    expected, actual = content(calm), content(rough)
    differ = sum(expected.get(run) != actual.get(run) for run in expected.keys() | actual.keys())
    rows = sum(part[0].count(b"\n") for part in actual.values() if isinstance(part, tuple))
    return {**strikes, "rounds": 1, "runs": len(kills.content(calm)), "iterations": rows,
            "runs that differ": differ}  # fmt: skip


def strike_kind(name: str, count: int, record: Record) -> int:
    """Rounds until there were so many strikes at a kind; how many things are wrong."""
    found = record.part("strikes", name)
    while found.get("strikes", 0) < count and len(found.get("failures", [])) < MOST_FAILURES:
        number, began = found.get("tries", 0), time.monotonic()
        draw, left = random.Random(f"{record.data['seed']} {name} {number}"), count
        left -= found.get("strikes", 0)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                if name == COMMANDS:
                    more = struck_commands.struck(min(left, 20), draw, Path(scratch))
                else:
                    more = struck(name, number, left, draw, Path(scratch))
            except Exception:
                more = {"failures": [traceback.format_exc()[-3000:]]}
        strikes = sum(more.get(kind, 0) for kind in STRIKES)
        add(found, more | {"strikes": strikes, "tries": 1,
                           "seconds": round(time.monotonic() - began)})  # fmt: skip
        record.keep()
        print(f"{name}: {json.dumps(found)[:600]}", flush=True)
    return int(found.get("runs that differ", 0)) + len(found.get("failures", []))


# -- damages --------------------------------------------------------------------------------------

DAMAGES: dict[str, tuple[Callable[[int, int, int], tuple[Counter[str], list[str]]], float]] = {
    "runs": (damage.many, 0.7),
    "runs that a trainer goes on with": (damaged_trainers.many, 0.1),
    "other files": (other_files.many, 0.2),
}
"""Each with the share of all damages that it gets."""


def damage_kind(name: str, count: int, record: Record) -> int:
    """Damages of a kind until there were so many; how many things are wrong."""
    found, (do, _) = record.part("damages", name), DAMAGES[name]
    while (done := found.get("count", 0)) < count:
        now = min(500, count - done)
        began = time.monotonic()
        outcomes, wrong = do(now, record.data["seed"], done)
        table = record.part("damages", name, "outcomes")
        add(table, dict(outcomes))
        add(found, {"count": now, "wrong": wrong, "seconds": round(time.monotonic() - began)})
        record.keep()
    print(f"{name}: {json.dumps(found)}", flush=True)
    return len(found.get("wrong", []))


def main() -> int:
    kinds = [*KINDS, COMMANDS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strikes", type=int, default=1000)
    parser.add_argument("--damages", type=int, default=10_000)
    parser.add_argument("--only", nargs="*", default=kinds, choices=kinds)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help=f"keep {RESULT.name}")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    record = Record(RESULT if given.json else None, given.seed)
    failures = sum(
        damage_kind(name, round(given.damages * share), record)
        for name, (_, share) in DAMAGES.items()
    )
    for i, name in enumerate(given.only):
        share = given.strikes * (i + 1) // len(given.only) - given.strikes * i // len(given.only)
        failures += strike_kind(name, share, record)
    record.data["in all"] = {
        "strikes": sum(each.get("strikes", 0) for each in record.part("strikes").values()),
        "damages": sum(each.get("count", 0) for each in record.part("damages").values()),
        "failures": failures,
    }
    record.keep()
    print("nothing was lost, and nothing believed" if not failures else f"{failures} FAILURES")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
