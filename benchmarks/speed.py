"""Training speed beside Stable-Baselines3 and SBX: one protocol, all cores, one run of this script.

    python benchmarks/speed.py [--task TASK...] [--quick] [--json]      (or: klip bench)
    python benchmarks/speed.py --show benchmarks/results/speed.json     (its tables, as Markdown)

Every contender is one single-threaded process per core, pinned to it. All of them are started,
then take turns: an iteration of one contender on all cores, then of the next, so that a slow
moment of the machine meets all alike. The first turn of each compiles and is not counted.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from speed_report import (
    ALONE,
    RUNS,
    TARGETS,
    Answer,
    Report,
    Turns,
    checks,
    compared,
    markdown,
    scaled,
    show,
)

from klip.engine.crew import ENVIRONMENT

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / ".venv-peers"
# torch first and in this version, since the others would take one with a GPU's gigabytes
REQUIREMENTS = (
    ("torch==2.13.0",),
    ("stable-baselines3", "sbx-rl", "gymnasium[box2d,mujoco]", "mujoco>=3.17,<4"),
)
ALONE_SEEDS = 8  # single runs, one after the other, so that a turn lasts as long as a peer's
SCALING = (1, 5, 20, 40, 80)
QUICK = ("HalfCheetah-v4", "Hopper-v4", "CartPole-v1")


class BenchmarkError(Exception):
    """A contender that could not be set up, or that ended early."""


# -- contenders ----------------------------------------------------------------------------------


def klip_command(task: str, core: int, seed: int, runs: int, lanes: int) -> list[str]:
    """A worker of ours."""
    numbers = {"--core": core, "--seed": seed, "--runs": runs, "--lanes": lanes}
    options = [str(part) for pair in numbers.items() for part in pair]
    return [sys.executable, str(HERE / "ours.py"), task, *options]


def peer_command(peer: str, task: str, core: int) -> list[str]:
    """A process of a peer, in the peers' environment; its seed is its core."""
    python, script = str(PEERS / "bin" / "python"), str(HERE / "peers.py")
    return [python, script, peer, task, "--core", str(core), "--seed", str(core)]


def install_peers() -> None:
    """Make the peers' environment, unless it is there already."""
    wanted = hashlib.sha256(repr(REQUIREMENTS).encode()).hexdigest()
    ready = PEERS / ".ready"
    if ready.exists() and ready.read_text() == wanted:
        return
    say(f"installing the peers into {PEERS}")
    pip = [str(PEERS / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    steps = [[sys.executable, "-P", "-m", "venv", str(PEERS)], *([*pip, *r] for r in REQUIREMENTS)]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchmarkError(f"{' '.join(step)} failed:\n{done.stderr.strip()[-2000:]}")
    ready.write_text(wanted)


class Process:
    """One process of a contender; it waits, idle, until it is asked for a turn."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.command, self._log = list(command), folder / "log"
        folder.mkdir()
        with self._log.open("w") as log:
            self.popen = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                cwd=folder, env={**os.environ, **ENVIRONMENT}, text=True,
            )  # fmt: skip

    def ask(self) -> None:
        """Have it begin a turn."""
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def hear(self) -> Answer:
        """Its next answer."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line:
            last = self._log.read_text().strip()[-2000:]
            raise BenchmarkError(f"{' '.join(self.command)} ended early:\n{last}")
        answer: Answer = json.loads(line)
        return answer


@contextmanager
def started(contenders: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[dict[str, Any]]:
    """All processes of all contenders, by name, for as long as they are needed."""
    with tempfile.TemporaryDirectory() as scratch:  # MuJoCo logs to the working directory
        running: dict[str, list[Process]] = {}
        try:
            for name, commands in contenders.items():
                running[name] = [
                    Process(command, Path(scratch) / f"{name}-{i}")
                    for i, command in enumerate(commands)
                ]
            yield running
        finally:
            processes = list(itertools.chain(*running.values()))
            for process in processes:
                process.popen.terminate()
            for process in processes:
                process.popen.communicate()


def take_turns(
    contenders: Mapping[str, Sequence[Sequence[str]]], rounds: int
) -> tuple[dict[str, Turns], dict[str, dict[str, str]]]:
    """A warm-up and `rounds` turns of every contender; and the versions each of them runs on."""
    turns: dict[str, Turns] = {name: [] for name in contenders}
    with started(contenders) as running:
        hellos = {name: [p.hear() for p in processes] for name, processes in running.items()}
        names = list(contenders)
        for turn in range(1 + rounds):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                for process in running[name]:
                    process.ask()
                turns[name].append([process.hear() for process in running[name]])
    return turns, {name: hello[0]["versions"] for name, hello in hellos.items()}


# -- the protocol --------------------------------------------------------------------------------


def measure(tasks: Sequence[str], quick: bool) -> Report:
    """Everything, in one go."""
    began, load = time.monotonic(), os.getloadavg()
    cores = sorted(os.sched_getaffinity(0))
    rounds = 1 if quick else 3
    rows: list[dict[str, Any]] = []
    versions: dict[str, dict[str, str]] = {}
    for task in tasks:
        say(f"{task}: klip, sb3 and sbx on {len(cores)} cores")
        contenders = {
            "klip": [
                [*klip_command(task, core, i * RUNS, RUNS, RUNS), *physics(task)]
                for i, core in enumerate(cores)
            ],
            "sb3": [peer_command("sb3", task, core) for core in cores],
            "sbx": [peer_command("sbx", task, core) for core in cores],
        }
        turns, versions = take_turns(contenders, rounds)
        rows.append(compared(task, turns))
    alone, scaling = None, []
    if ALONE in tasks:
        say(f"{ALONE}: a single run alone")
        core = cores[0]
        contenders = {
            "klip": [klip_command(ALONE, core, 0, ALONE_SEEDS, 1)],
            "sb3": [peer_command("sb3", ALONE, core)],
            "sbx": [peer_command("sbx", ALONE, core)],
        }
        alone = compared(ALONE, take_turns(contenders, rounds)[0])
        sizes = SCALING[:3] if quick else SCALING
        say(f"{ALONE}: {', '.join(map(str, sizes))} runs in lockstep")
        contenders = {
            str(lanes): [
                klip_command(ALONE, core, i * max(SCALING), max(lanes, RUNS), lanes)
                for i, core in enumerate(cores)
            ]
            for lanes in sizes
        }
        scaling = scaled(take_turns(contenders, rounds)[0])
    report: Report = {
        "date": datetime.date.today().isoformat(),
        "quick": quick,
        "commit": commit(),
        "machine": {"cpu": cpu(), "cores": len(cores), "load_before": load},
        "versions": {"python": platform.python_version(), **versions},
        "protocol": {"runs_per_worker": RUNS, "iterations": "2" if quick else f"2-{1 + rounds}"},
        "tasks": rows,
        "alone": alone,
        "scaling": scaling,
        "seconds": time.monotonic() - began,
    }
    return report | {"checks": checks(report)}


def physics(task: str) -> list[str]:
    """The option that has a worker time the bare physics, where there is any."""
    return [] if TARGETS[task].share is None else ["--physics"]


def cpu() -> str:
    """The processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """Which version of the code this is, marked if it has been edited since."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def say(text: str) -> None:
    """Progress; standard output is for the result."""
    print(text, file=sys.stderr, flush=True)


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="klip bench", description=__doc__.splitlines()[0])
    parser.add_argument("--task", nargs="+", choices=TARGETS, help="only these")
    parser.add_argument("--quick", action="store_true", help="one turn each, three tasks")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--show", type=Path, metavar="FILE", help="only print a result's tables")
    given = parser.parse_args(args)
    if given.show:
        print(markdown(json.loads(given.show.read_text())), end="")
        return 0
    try:
        install_peers()
        report = measure(given.task or (QUICK if given.quick else tuple(TARGETS)), given.quick)
    except BenchmarkError as error:
        say(f"klip bench: {error}")
        return 1
    if given.json:
        print(json.dumps(report, indent=1))
    width = None if sys.stderr.isatty() else 120
    show(report, Console(stderr=given.json, width=width))
    return 0


if __name__ == "__main__":
    sys.exit(main())
