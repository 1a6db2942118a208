"""Kills, stops and damages over all kinds of runs and all files that are read; slow, and thorough.

    python benchmarks/campaign.py --strikes 1000 --damages 10000 [--only replay tokens] [--json]

Each kind of run is trained twice from the same plan: once undisturbed, and once under strikes at
random moments, after which the same command is given again at once, until all runs are done. A
strike is a SIGKILL of a worker, of the parent, of all, or of all in the middle of a checkpoint, a
SIGTERM or Ctrl-C of the parent, or a pause of a worker. Then metrics and arrays are compared byte
for byte, and the rows counted. Damages are those of `damage.py`, and damages to the files of packs,
exports, sinks and leagues: what is read is then what was written, or a line says that it is not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crash_lives as lives
import damage
import kills

from klip.engine.advance import Keeping
from klip.errors import KlipError
from klip.policies import load
from klip.runs.sinks import sync
from klip.studies.freezing import read_frozen
from klip.studies.league import Course
from klip.studies.league import read as read_league
from klip.studies.packing import unpack

RESULT = Path(__file__).parent / "results" / "campaign.json"
STRIKES = ("worker", "parent", "group", "checkpoint", "SIGTERM", "Ctrl-C", "pause")
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
KINDS: dict[str, Callable[[int], str]] = {
    "own lanes": lambda s: ppo(s, "CartPole-v1", "steps = 25600"),
    "MuJoCo": lambda s: ppo(s, "Hopper-v4", "steps = 20480, rollout = 512"),
    "MuJoCo, contacts": lambda s: ppo(s, "Humanoid-v4", "steps = 4096, rollout = 256"),
    "Box2D": lambda s: ppo(s, "LunarLander-v3", "steps = 16384, envs = 4, rollout = 256"),
    "in processes": lambda s: ppo(s, "Pendulum-v1", "steps = 10240, rollout = 512, processes = 2"),
    "replay": lambda s: ppo(s, "CartPole-v1", "steps = 15360, replay = 3, lag = 2"),
    "tokens": lambda s: TOKENS.format(seed=s, seed1=s + 1, replay=0),
    "tokens, replay": lambda s: TOKENS.format(seed=s, seed1=s + 1, replay=2),
}
"""Plans, by the seed that they begin with; token plans have warm-ups, which are runs, too."""


def ppo(seed: int, task: str, fields: str) -> str:
    return PPO.format(seed=seed, seed1=seed + 1, task=task, config=fields)


def start(plan: Path, out: Path, every: float) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "klip", "run", str(plan), "--out", str(out)]
    with (out.parent / f"{out.name}.log").open("ab") as log:
        return subprocess.Popen(
            [*line, "--checkpoint-every", str(every)],
            start_new_session=True, stdout=log, stderr=log,
        )  # fmt: skip


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
        process = start(plan, out, every=0.3)
        while process.poll() is None and sum(done.values()) < count:
            kind = draw.choice(STRIKES)
            done[kind] += strike(process, kind, out, draw)
        code = process.wait()
        if code == 0:
            return done
        if code not in (130, 143) and code > 0:
            log = (out.parent / f"{out.name}.log").read_text(errors="replace")
            raise RuntimeError(f"exit code {code}\n{log[-2000:]}")


def struck(name: str, count: int, draw: random.Random, folder: Path) -> dict[str, Any]:
    """Rounds of one kind of run until there were so many strikes; what came of them."""
    total: Counter[str] = Counter()
    runs = differ = rows = rounds = 0
    began = time.monotonic()
    while sum(total.values()) < count:
        plan = folder / "plan.toml"
        plan.write_text(KINDS[name](100 * rounds))
        calm, rough = folder / f"{rounds}-calm", folder / f"{rounds}-rough"
        if start(plan, calm, every=60).wait() != 0:
            raise RuntimeError((folder / f"{calm.name}.log").read_text(errors="replace")[-2000:])
        total += disturbed(plan, rough, count - sum(total.values()), draw)
        expected, actual = kills.content(calm), kills.content(rough)
        runs, rounds = runs + len(expected), rounds + 1
        rows += sum(metrics.count(b"\n") for metrics, _ in actual.values())
        differ += sum(expected[run] != actual.get(run) for run in expected)
        differ += len(actual.keys() - expected.keys())
        shutil.rmtree(calm)
        shutil.rmtree(rough)
    return {"strikes": sum(total.values()), **total, "rounds": rounds, "runs": runs,
            "iterations": rows, "runs that differ": differ,
            "seconds": round(time.monotonic() - began)}  # fmt: skip


# -- damages to what is not a run -----------------------------------------------------------------


def readers(root: Path) -> dict[str, tuple[Path, Callable[[], Any]]]:
    """Folders of files, each with a reader that gives what can be compared."""
    lives.pack_before(root)
    lives.export_before(root / "export")
    lives.events_before(root / "sink")
    lives.league_before(root / "league")
    league, keeping = read_league("small", lives.LEAGUE), Keeping(root / "league")
    league.next(keeping)
    course = league.course
    assert isinstance(course, Course)
    state = next((root / "sink" / "events").rglob(".sync.json"))
    policy = root / "export" / "policy"
    return {
        "pack": (root / "packed", lambda: [(r.id, sorted(r.metrics), r.digest)
                                           for r in unpack(root / "packed").runs]),
        "export": (policy, lambda: load(policy).act([0.0, 0.1, 0.2, 0.3]).tobytes()),
        "sink": (state.parent, lambda: synced(root / "sink")),
        "league": (root / "league", lambda: repr(read_frozen(course.rules, keeping))),
    }  # fmt: skip


def synced(home: Path) -> bytes:
    """The events of a run after a sync on top of what is there, in a copy of it."""
    with tempfile.TemporaryDirectory(dir=lives.fast_folder()) as scratch:
        place = Path(shutil.copytree(home, Path(scratch, "sink")))
        (done,) = sync(place / "runs", "tensorboard", place / "events")
        assert done.output is not None
        return b"".join(file.read_bytes() for file in sorted(done.output.glob("events.*")))


def damaged(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Damage the files of packs, exports, sinks and leagues; what came of it, and what is wrong."""
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(dir=lives.fast_folder()) as scratch:
        kinds = readers(Path(scratch, "whole"))
        true = {name: read() for name, (_, read) in kinds.items()}
        for number in range(count):
            draw = random.Random(f"{seed} {number}")
            name, (home, read) = draw.choice(list(kinds.items()))
            # of an event file we only read how large it is
            there = [p for p in sorted(home.iterdir()) if p.is_file() and "events" not in p.name]
            file = draw.choice(there)
            data = file.read_bytes()
            kind = draw.choice([k for k in damage.KINDS if data or k == "appended"])
            damage.damage(file, kind, draw.choice(there), draw)
            try:
                found = read()
                fine = found == true[name] or found in (None, "None")
                outcomes["as it was" if found == true[name] else "not there"] += 1
                if not fine:
                    wrong.append(f"{name}, {file.name}, {kind}: something else was believed")
            except KlipError:
                outcomes["refused in a line"] += 1
            except Exception as error:
                wrong.append(f"{name}, {file.name}, {kind}: {type(error).__name__}: {error}"[:300])
            file.write_bytes(data)
    return outcomes, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strikes", type=int, default=1000)
    parser.add_argument("--damages", type=int, default=10_000)
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help=f"write {RESULT.name}")
    given = parser.parse_args()
    results: dict[str, Any] = {"strikes": {}}
    elsewhere = given.damages // 5
    outcomes, wrong = damage.many(given.damages - elsewhere, given.seed)
    others, more = damaged(elsewhere, given.seed)
    results["damages"] = {
        "count": given.damages,
        "runs": dict(outcomes.most_common()),
        "other files": dict(others.most_common()),
        "wrong": wrong + more,
    }
    print(json.dumps(results["damages"]), flush=True)
    draw = random.Random(given.seed)
    failures = len(wrong + more)
    for i, name in enumerate(given.only):
        share = given.strikes * (i + 1) // len(given.only) - given.strikes * i // len(given.only)
        with tempfile.TemporaryDirectory() as folder:
            found = struck(name, share, draw, Path(folder)) if share else {"runs that differ": 0}
        results["strikes"][name] = found
        failures += found["runs that differ"]
        print(f"{name}: {json.dumps(found)}", flush=True)
        if given.json:
            RESULT.write_text(json.dumps(results, indent=2) + "\n")
    print("nothing was lost, and nothing believed" if not failures else f"{failures} FAILURES")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
