"""Whether a damaged run is ever believed: random damages to its files, each checked against truth.

    python benchmarks/damage.py [--damages 2000] [--trained 40] [--seed 0] [--json]

A damage hits one to four files of a folder with two checkpoints: cut anywhere, bytes flipped,
ranges zeroed, bytes appended, zero length, gone, or another run's file. The folder is then
listed, read, opened and trained to its end, and everything found on the way is compared with what
was written. The trained ones are CartPole runs, killed in the middle, damaged, and trained to
their end by the trainer itself; then as many with old policies and samples in their checkpoints.
Ends with status 1 if anything was believed, lost or left unsaid.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import klip
from klip.engine.listing import list_runs
from klip.runs import Damaged, Record, RunFolder, config_id, folder_of, read_run
from klip.runs.store import METRICS, NEWEST, PREVIOUS

FILES = (NEWEST, PREVIOUS, METRICS, "config.json", "status.json", "lock")
KINDS = ("cut", "flipped", "one bit", "zeroed", "appended", "zero length", "gone", "another run's")
RESULT = Path(__file__).parent / "results" / "damage.json"


# -- a run whose every iteration is known ---------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """A run of `ends` iterations, left after `rows` of them, with checkpoints of two."""

    config: dict[str, Any]
    saves: tuple[int, int]
    rows: int
    ends: int
    status: str

    def row(self, k: int) -> dict[str, Any]:
        value = None if k % 5 == 1 else self.config["seed"] + k / 7
        return {"iteration": k, "step": 64 * k, "return_mean": value, "kl": k / 3e3, "beta": [k, 0]}

    def arrays(self, k: int) -> dict[str, np.ndarray]:
        draw = np.random.default_rng([self.config["seed"], k])
        return {
            "policy/w": draw.normal(size=(6, 8)).astype(np.float32),
            "adam/count": np.array(k),
            "lanes/state": draw.integers(0, 1 << 60, 12),
        }

    def text(self, k: int) -> bytes:
        """The metrics file up to an iteration."""
        return "".join(json.dumps(self.row(j)) + "\n" for j in range(1, k + 1)).encode()

    def train(self, folder: RunFolder, until: int, saves: Sequence[int]) -> None:
        """What a trainer does, from where the folder stands."""
        point = folder.checkpoint
        for k in range(point.iteration + 1 if point else 1, until + 1):
            folder.append(self.row(k))
            if k in saves:
                folder.save(k, self.arrays(k), "done" if k == self.ends else "running")

    def make(self, out: Path) -> Path:
        c = self.config
        path = folder_of(out, c["task"], c["shape"], c["seed"], config_id(c))
        folder = RunFolder(path, c)
        self.train(folder, self.rows, self.saves)
        folder.close()
        return path


def truth(seed: int, saves: tuple[int, int], rows: int, ends: int) -> Truth:
    config = {"task": "CartPole-v1", "shape": "clip(eps=0.2)", "seed": seed, "steps": 64 * ends,
              "envs": 2, "rollout": 32}  # fmt: skip
    return Truth(config, saves, rows, ends, "done" if saves[1] == ends else "running")


TRUTHS = (truth(0, (3, 5), 7, 9), truth(1, (3, 5), 5, 9), truth(2, (1, 2), 9, 9),
          truth(3, (8, 9), 9, 9), truth(4, (4, 9), 9, 9))  # fmt: skip


# -- damages --------------------------------------------------------------------------------------


def damage(path: Path, kind: str, other: Path, draw: random.Random) -> None:
    """Do one kind of damage to a file; `other` is the same file of another run."""
    data = bytearray(path.read_bytes())
    size = len(data)
    if kind == "gone":
        path.unlink()
        return
    if kind == "cut":
        del data[draw.randrange(max(size, 1)) :]
    elif kind == "zero length":
        data.clear()
    elif kind == "appended":
        data += draw.randbytes(draw.randint(1, 40))
    elif kind == "another run's":
        data[:] = other.read_bytes()
    elif kind == "zeroed":
        start = draw.randrange(size)
        stop = min(size, start + draw.randint(1, 600))
        data[start:stop] = bytes(stop - start)
    else:
        for _ in range(1 if kind == "one bit" else draw.randint(1, 8)):
            data[draw.randrange(size)] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def damages(draw: random.Random) -> dict[str, str]:
    """The files to damage, mostly those that matter, and the kind of damage to each."""
    count = draw.choices((1, 2, 3, 4), (60, 25, 10, 5))[0]
    names: list[str] = []
    while len(names) < count:
        name = draw.choices(FILES, (30, 20, 30, 8, 6, 6))[0]
        if name not in names:
            names.append(name)
    return {name: draw.choice(KINDS) for name in names}


# -- one trial ------------------------------------------------------------------------------------


class Wrong(AssertionError):
    """Something was believed, lost or left unsaid."""


def require(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


def files(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir()}


def same_arrays(actual: Any, true: dict[str, np.ndarray]) -> bool:
    def bits(arrays: Any) -> Any:
        return {n: (str(a.dtype), a.shape, a.tobytes()) for n, a in arrays.items()}

    return bool(bits(actual) == bits(true))


def trial(pristine: Path, other: Path, t: Truth, out: Path, draw: random.Random) -> list[str]:
    """Damage a copy of a run, and let everything that reads runs read it; what came of it."""
    path = out / pristine.relative_to(pristine.parents[2])
    shutil.copytree(pristine, path)
    before = files(path)
    for name, kind in damages(draw).items():
        damage(path / name, kind, other / name, draw)
    after = files(path)
    whole = {name: after.get(name) == before[name] for name in (NEWEST, PREVIOUS, "config.json")}
    stands = t.saves[1] if whole[NEWEST] else t.saves[0] if whole[PREVIOUS] else None
    read_only(path, t, stands, after)
    return opened(path, t, stands, after, whole)


def read_only(path: Path, t: Truth, stands: int | None, after: dict[str, bytes]) -> None:
    """List and read the run: this gives the truth as far as it is safe, and touches nothing."""
    (entry,) = list_runs(path.parents[2])
    record: Record | None
    try:
        record = read_run(path)
    except Damaged:
        record = None
    require(files(path) == after, "reading changed a file")
    status = "damaged" if stands is None else t.status if stands == t.saves[1] else "running"
    status = "stopped" if status == "running" else status
    require(entry["status"] == status, f"listed as {entry['status']} instead of {status}")
    if record is None:
        require(stands is None, "a run with a whole checkpoint was not read")
        return
    require(record.status == status, f"read as {record.status} instead of {status}")
    require(record.config == t.config, "another config was believed")
    require(record.iteration == (stands or 0), "another iteration was believed")
    rows = [t.row(k) for k in range(1, (stands or 0) + 1)]
    require(list(record.rows) == rows, "other rows were believed")
    require(entry["iteration"] == len(rows), "other rows were listed")
    require(same_arrays(record.arrays, t.arrays(stands) if stands else {}), "other arrays")
    if stands is None:
        require(bool(record.reason), "a damaged run has no reason")
        return
    newest, metrics = after.get(NEWEST), after.get(METRICS, b"")
    notes = "; ".join(record.notes)
    require((NEWEST in notes) == (newest is not None and stands != t.saves[1]), "newest not told")
    require((METRICS in notes) == spoilt(metrics, t, stands), "damaged metrics were not told")


def spoilt(metrics: bytes, t: Truth, stands: int) -> bool:
    """Whether rows that a checkpoint covers are damaged, or more than the run ever had."""
    more = len(metrics) > len(t.text(stands)) and stands == t.ends
    return more or not metrics.startswith(t.text(stands))


def opened(
    path: Path, t: Truth, stands: int | None, after: dict[str, bytes], whole: dict[str, bool]
) -> list[str]:
    """Open the run and train it to its end: from the newest whole checkpoint, or not by itself."""
    outcome = []
    if stands is None:
        for _ in range(2):
            refused(path, t)
        folder = RunFolder(path, t.config, start_over=True)
        require(any("begins again" in note for note in folder.notes), "a silent restart")
        outcome.append("refused until --start-over")
    else:
        folder = RunFolder(path, t.config)
    notes, point = "; ".join(folder.notes), folder.checkpoint
    require((point.iteration if point else None) == stands, "it stands elsewhere")
    if point is not None and stands is not None:
        require(same_arrays(point.arrays, t.arrays(stands)), "other arrays were restored")
        mended = spoilt(after.get(METRICS, b""), t, stands)
        require(("metrics.jsonl" in notes) == mended, "mended metrics were not told")
        outcome += ["metrics restored from the checkpoint"] * mended
        outcome += ["previous checkpoint used"] * (stands != t.saves[1])
        if after.get(METRICS) != t.text(t.rows) and not mended:
            outcome.append("only rows after the checkpoint, which are trained again")
    require((path / METRICS).read_bytes() == t.text(stands or 0), "other metrics were kept")
    for name in (NEWEST, PREVIOUS):
        if name in after and not whole[name] and (name == NEWEST or stands != t.saves[1]):
            aside = path / f"{name}.damaged-1"
            require(aside.read_bytes() == after[name], "a damaged file was not kept")
            require(aside.name in notes, "a file was set aside without a word")
    if "config.json" in after and not whole["config.json"]:
        require("config.json" in notes, "a damaged config was not told")
        outcome.append("config written anew")
    if not outcome:
        require(not folder.notes, f"a note without a cause: {notes}")
    t.train(folder, t.ends, range(t.ends + 1))
    history = folder.history
    folder.close()
    final(path, t, history)
    return outcome or ["nothing that matters: a spare file, or one that is derived"]


def refused(path: Path, t: Truth) -> None:
    try:
        RunFolder(path, t.config).close()
    except Damaged as error:
        require("--start-over" in str(error), "the way out is not named")
        require("\n" not in str(error), "a message of more than a line")
        return
    raise Wrong("a run without a checkpoint went on by itself")


def final(path: Path, t: Truth, history: Sequence[str]) -> None:
    """At the end, only the record of the damage is left of it."""
    record = read_run(path)
    require(record.status == "done" and not record.notes, "it is not done")
    require((path / METRICS).read_bytes() == t.text(t.ends), "other metrics at the end")
    require(same_arrays(record.arrays, t.arrays(t.ends)), "other arrays at the end")
    if t.saves[1] != t.ends:
        require(tuple(record.history) == tuple(history), "its history is not recorded")


def many(count: int, seed: int = 0, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Do random damages from number `first` on; how often what came of them, and what is wrong."""
    outcomes: Counter[str] = Counter()
    wrong = []
    with tempfile.TemporaryDirectory(dir=fast_folder()) as scratch:
        pristine = [t.make(Path(scratch, "pristine")) for t in TRUTHS]
        for number in range(first, first + count):
            k, draw = number % len(TRUTHS), random.Random(f"{seed} {number}")
            other = pristine[draw.choice([j for j in range(len(TRUTHS)) if j != k])]
            out = Path(scratch, "trial")
            try:
                outcomes.update(trial(pristine[k], other, TRUTHS[k], out, draw))
            except Exception as error:
                wrong.append(f"damage {number}: {type(error).__name__}: {error}")
            shutil.rmtree(out)
    return outcomes, wrong


def fast_folder() -> str | None:
    """A folder in memory, if there is one: a trial syncs a hundred small files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# -- with the trainer itself ----------------------------------------------------------------------

SMALL: dict[str, Any] = {"envs": 2, "rollout": 16, "steps": 192, "minibatch": 16, "epochs": 1,
                         "hidden": (8,)}  # fmt: skip


class Kill(Exception):
    """Ends the parent's loop, which kills the worker."""


def trained(count: int, seed: int = 0, ask: bool = True, old: bool = False) -> Counter[str]:
    """CartPole runs killed in the middle, damaged, and trained to the end by the trainer.

    Half of them had ended. All are one cohort, with a damage each; the bytes at the end must be
    those of runs that nothing happened to. `ask`: --start-over is given only when it was asked for.
    `old`: their checkpoints hold old policies and samples.
    """
    draw, fields = random.Random(seed), SMALL | ({"lag": 1, "replay": 3} if old else {})
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=fast_folder()) as scratch:
        true, hurt = Path(scratch, "true"), Path(scratch, "hurt")

        def train(out: Path, **more: Any) -> Any:
            try:
                return klip.train("CartPole-v1", ["clip"], count, workers=1, out=out,
                                  checkpoint_every=0, **fields, **more)  # fmt: skip
            except klip.Unfinished as left:
                return left.results

        whole = train(true)

        def kill(news: Any) -> None:
            if news.run == whole[-1].config.id and news.saved >= 3:
                raise Kill

        with contextlib.suppress(Kill):
            train(hurt, progress=kill)
        paths = [hurt / r.path.relative_to(true) for r in whole]
        for k, (path, r) in enumerate(zip(paths, whole, strict=True)):
            if k % 2:
                shutil.rmtree(path)
                shutil.copytree(r.path, path)
            spoil(path, paths[k - 1], KINDS[k // 2 % len(KINDS)], k // 2, draw)
        first = train(hurt, start_over=not ask)
        for r in first:
            require(r.status in ("done", "damaged"), f"{r.status}: {r.reason}")
            if r.status == "damaged":
                require("--start-over" in r.reason, f"no way out: {r.reason}")
            outcomes["refused until --start-over" if r.status == "damaged" else "went on"] += 1
        if ask and any(r.status == "damaged" for r in first):
            train(hurt, start_over=True)
        for path, r in zip(paths, whole, strict=True):
            a, b = read_run(path), read_run(r.path)
            require(a.status == "done" and not a.notes, f"{path.name} is {a.status}")
            require(a.digest() == b.digest(), f"{path.name} trained to other arrays")
            same = (path / METRICS).read_bytes() == (r.path / METRICS).read_bytes()
            require(same, f"{path.name} has other metrics")
            again = any("begins again" in line for line in a.history)
            outcomes["began again, which it says"] += again
            outcomes["ended in the same bytes"] += 1
    return outcomes


def spoil(path: Path, other: Path, kind: str, turn: int, draw: random.Random) -> None:
    """One kind of damage: to the newest, the metrics, both checkpoints, or several at once."""
    chosen = ((NEWEST,), (METRICS,), (NEWEST, PREVIOUS), (NEWEST, METRICS, "config.json"))
    for name in chosen[(turn + turn // len(KINDS)) % len(chosen)]:
        if (path / name).exists() and (other / name).exists():
            damage(path / name, kind, other / name, draw)


# -- the command ----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--damages", type=int, default=2000)
    parser.add_argument("--trained", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help=f"write {RESULT.name}")
    given = parser.parse_args()
    began = time.perf_counter()
    outcomes, wrong = many(given.damages, given.seed)
    real: dict[str, Counter[str]] = {}
    for name, old in (("trained", False), ("trained_with_old_samples", True)):
        try:
            real[name] = trained(given.trained, given.seed, old=old) if given.trained else Counter()
        except Wrong as error:
            wrong.append(f"{name}: {error}")
    summary = {
        "damages": given.damages,
        "outcomes": dict(outcomes.most_common()),
        "trained": given.trained,
        **{f"{name}_outcomes": dict(found.most_common()) for name, found in real.items()},
        "wrong": wrong,
        "seed": given.seed,
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(summary, indent=2))
    if given.json:
        RESULT.write_text(json.dumps(summary, indent=2) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
