"""Damages to real runs of every kind, each then gone on with by its own trainer.

Runs of PPO, with a replay, of tokens and their warm-up are left in the middle or have ended. After
a damage to one or two of their files the trainer ends with the bytes of a run that nothing happened
to; at most it asks for --start-over first. `campaign.py` counts them.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import crash_lives as lives
import damage

from klip.engine.advance import Keeping, Progress, advance
from klip.engine.job import Job
from klip.runs import read_run
from klip.runs.store import METRICS

KINDS = ("ppo", "replay", "warm-up", "tokens")
FILES = (*damage.FILES, "shape.json")
require = damage.require


def jobs_of(kind: str) -> list[tuple[str, Job]]:
    """The jobs of a folder with the kind of each, those first that others need."""
    before = [("warm-up", lives.job_of("warm-up"))] if kind == "tokens" else []
    return [*before, (kind, lives.job_of(kind))]


def left(kind: str, root: Path, until: int) -> None:
    """Runs of a kind, the last of which is left after so many iterations."""
    if kind == "tokens":
        lives.warmed(root)
    lives.advanced(lives.job_of(kind), root, lambda news: None, until=until)


def go_on(kind: str, root: Path) -> list[str]:
    """Train to the end, and compare; what came of it."""
    outcomes = []
    for name, job in jobs_of(kind):
        told: list[Progress] = []
        advance([job], Keeping(root, 0.0), told.append)
        if told[-1].status == "damaged":
            require("--start-over" in told[-1].reason, f"no way out: {told[-1].reason}")
            require("\n" not in told[-1].reason, "a message of more than a line")
            advance([job], Keeping(root, 0.0, start_over=True), told.append)
            outcomes.append("refused until --start-over")
        require(told[-1].status == "done", f"{name}: {told[-1].status}: {told[-1].reason}")
        path = Keeping(root).path(job)
        found = (path / METRICS).read_bytes(), read_run(path).digest()
        require(found == lives.undisturbed(name), f"{name}: other bytes than undisturbed")
    return outcomes or ["went on"]


def trial(kind: str, pristine: Path, other: Path, root: Path, draw: random.Random) -> list[str]:
    """Damage one or two files of a copy, and let the trainers go on."""
    shutil.copytree(pristine, root)
    _, job = draw.choice(jobs_of(kind))
    path = Keeping(root).path(job)
    for name in draw.sample(FILES, draw.choice((1, 1, 2))):
        if (path / name).exists():
            twin = Keeping(other).path(job) / name
            damages = [k for k in damage.KINDS if (path / name).stat().st_size or k == "appended"]
            damage.damage(path / name, draw.choice(damages),
                          twin if twin.exists() else path / name, draw)  # fmt: skip
    return go_on(kind, root)


def many(count: int, seed: int = 0, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Do random damages from number `first` on; how often what came of them, and what is wrong."""
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(dir=lives.fast_folder()) as scratch:
        for kind in KINDS:
            left(kind, Path(scratch, kind, "left"), 2)
            left(kind, Path(scratch, kind, "ended"), 10**9)
        for number in range(first, first + count):
            draw, kind = random.Random(f"{seed} {number}"), KINDS[number % len(KINDS)]
            how = draw.choice((("left", "ended"), ("ended", "left")))
            pristine, other = (Path(scratch, kind, name) for name in how)
            try:
                found = trial(kind, pristine, other, Path(scratch, "trial"), draw)
                outcomes.update(f"{kind}: {each}" for each in found)
            except Exception as error:
                wrong.append(f"damage {number}, {kind}: {type(error).__name__}: {error}"[:500])
            shutil.rmtree(Path(scratch, "trial"))
    return outcomes, wrong
