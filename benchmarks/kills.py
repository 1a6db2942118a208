"""Kill training at random moments, again and again, and see whether a single byte changes.

    python benchmarks/kills.py --kills 200

For each task the same runs are trained twice: once undisturbed, and once under SIGKILLs of a
worker, of the parent, of the whole group, and of the group at the instant in which a checkpoint is
half written; the command is given again until all runs are done. Then metrics and parameters are
compared byte for byte. When a round is done before its share of kills, another round with other
seeds follows. Writes benchmarks/results/kills.json.
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
from pathlib import Path

from klip.runs import read_run, run_paths

RESULT = Path(__file__).parent / "results" / "kills.json"
TASKS = {
    "CartPole-v1": ("--steps", "25600"),
    "Hopper-v4": ("--steps", "20480", "--rollout", "512"),
    "LunarLander-v3": ("--steps", "16384", "--envs", "4", "--rollout", "256"),
    "Humanoid-v4": ("--steps", "4096", "--rollout", "256"),
    "Pendulum-v1": ("--steps", "20480", "--rollout", "512"),
}
"""CartPole's own lanes, MuJoCo's two kinds, Box2D by replay, and one general environment."""
KINDS = ("worker", "parent", "group", "checkpoint")


def command(task: str, seed: int, out: Path, every: float) -> list[str]:
    """Two shapes with two seeds, so that both cores have a cohort of two."""
    code = (
        "import sys; from klip.engine.advance import Keeping; from klip.ppo.train import plan;"
        "from klip.cli.training import follow; import json, pathlib;"
        "task, seed, out, every, fields = json.loads(sys.argv[1]);"
        "made = plan(task, ['clip', 'adaptive-kl'], [seed, seed + 1], **fields);"
        "sys.exit(follow(made, Keeping(pathlib.Path(out), every)))"
    )
    given = TASKS[task]
    fields = {k.removeprefix("--"): int(v) for k, v in zip(given[::2], given[1::2], strict=True)}
    return [sys.executable, "-c", code, json.dumps([task, seed, str(out), every, fields])]


def start(task: str, seed: int, out: Path, every: float) -> subprocess.Popen[bytes]:
    with (out.parent / f"{out.name}.log").open("ab") as log:
        return subprocess.Popen(
            command(task, seed, out, every), start_new_session=True, stdout=log, stderr=log
        )


def members(group: int) -> list[int]:
    """The processes of a session that are alive."""
    alive = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == group and fields[0] != "Z":
                alive.append(int(stat.parent.name))
    return alive


def workers(group: int) -> list[int]:
    """The processes of a session that train."""
    training = []
    for pid in members(group):
        with contextlib.suppress(OSError):
            if b"klip.engine.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                training.append(pid)
    return training


def strike(process: subprocess.Popen[bytes], kind: str, out: Path, rng: random.Random) -> bool:
    """Send one SIGKILL at a random moment; False if everything had ended before."""
    began = size(out)
    if rng.random() < 0.75:  # otherwise at any moment, also while it starts
        while process.poll() is None and size(out) == began:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 1.5))
    else:
        time.sleep(rng.uniform(0, 6))
    if kind == "checkpoint":
        until = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < until:
            if next(out.glob("*/*/*/.checkpoint.safetensors.*.part"), None) is not None:
                break
    if process.poll() is not None:
        return False
    if kind == "worker":
        victims = workers(process.pid)
        if not victims:
            return False
        os.kill(rng.choice(victims), signal.SIGKILL)
        return True
    if kind == "parent":
        os.kill(process.pid, signal.SIGKILL)
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 60  # a worker without a parent saves its runs and ends
    while members(process.pid):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(members(process.pid))} processes outlived their parent")
        time.sleep(0.05)
    return True


def size(out: Path) -> int:
    """Bytes of all metrics, which grow while training goes on."""
    return sum(path.stat().st_size for path in out.glob("*/*/*/metrics.jsonl"))


def disturbed(task: str, seed: int, out: Path, kills: int, rng: random.Random) -> Counter[str]:
    """Train to the end under at most `kills` strikes; how many of each kind there were."""
    done: Counter[str] = Counter()
    while True:
        process = start(task, seed, out, every=0.3)
        while process.poll() is None and sum(done.values()) < kills:
            kind = rng.choice(KINDS)
            if strike(process, kind, out, rng):
                done[kind] += 1
        code = process.wait()
        if code == 0:
            return done
        if code > 0:
            log = (out.parent / f"{out.name}.log").read_text(errors="replace")
            raise RuntimeError(f"{task}: exit code {code}\n{log[-2000:]}")


def content(out: Path) -> dict[str, tuple[bytes, str]]:
    """What must be equal: each run's metrics and all its arrays."""
    contents = {}
    for path in run_paths(out):
        record = read_run(path)
        assert record.status == "done", (path, record.status, record.reason)
        contents[path.name] = ((path / "metrics.jsonl").read_bytes(), record.digest())
    return contents


def try_task(task: str, kills: int, rng: random.Random, folder: Path) -> dict[str, object]:
    """Train in rounds, disturbed, until there were so many kills; what came of them."""
    total: Counter[str] = Counter()
    runs = differ = rounds = 0
    began = time.monotonic()
    while sum(total.values()) < kills:
        seed = 100 * rounds
        calm, rough = folder / f"{task}-{rounds}-calm", folder / f"{task}-{rounds}-rough"
        if start(task, seed, calm, every=60).wait() != 0:
            raise RuntimeError((folder / f"{calm.name}.log").read_text(errors="replace")[-2000:])
        total += disturbed(task, seed, rough, kills - sum(total.values()), rng)
        expected, actual = content(calm), content(rough)
        assert expected.keys() == actual.keys()
        assert len(expected) == 4
        runs += len(expected)
        differ += sum(expected[name] != actual[name] for name in expected)
        rounds += 1
        shutil.rmtree(calm)
        shutil.rmtree(rough)
    return {
        "kills": sum(total.values()),
        **{kind: total[kind] for kind in KINDS},
        "rounds": rounds,
        "runs": runs,
        "runs that differ": differ,
        "seconds": round(time.monotonic() - began),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--task", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULT)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, task in enumerate(given.task):
            share = given.kills * (i + 1) // len(given.task) - given.kills * i // len(given.task)
            results[task] = try_task(task, share, rng, Path(folder))
            print(task, results[task], flush=True)
            given.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    wrong = sum(entry["runs that differ"] for entry in results.values())  # type: ignore[index]
    print("every run ended with the same bytes" if not wrong else f"{wrong} runs DIFFER")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
