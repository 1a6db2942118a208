"""Damages to the files that are no run's: packs, exports, sinks' states, leagues, searches, tokens.

Each folder has a reader. What it gives after a damage is what was written, or nothing, or a line
says that something is wrong. `campaign.py` counts them.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import crash_lives as lives
import damage

from klip.engine.advance import Keeping
from klip.errors import KlipError
from klip.policies import load
from klip.runs.kept import SCHEMA, read_kept, write_kept
from klip.runs.portraits import read_portrait
from klip.runs.sinks import sync
from klip.studies.freezing import read_frozen
from klip.studies.league import Course
from klip.studies.league import read as read_league
from klip.studies.packing import pack, unpack
from klip.studies.reading import read_study
from klip.studies.standings import read_standings
from klip.studies.tuning import StudyFile
from klip.theory.portrait import to_json

Reader = Callable[[], Any]


def readers(root: Path) -> dict[str, tuple[Path, Reader]]:
    """Folders of files, each with a reader that gives what can be compared."""
    lives.export_before(root / "export")
    lives.events_before(root / "sink")
    state = next((root / "sink" / "events").rglob(".sync.json"))
    policy = root / "export" / "policy"
    found = {
        "export": (policy, lambda: load(policy).act([0.0, 0.1, 0.2, 0.3]).tobytes()),
        "sink": (state.parent, lambda: synced(root / "sink")),
    }
    return found | packs(root / "packs") | league(root / "league") | others(root / "others")


def packs(root: Path) -> dict[str, tuple[Path, Reader]]:
    """Of trained runs: with pictures of shapes, and with samples of completions."""

    def content(folder: Path) -> Reader:
        return lambda: [(r.id, sorted(r.metrics), r.digest, r.samples, r.portrait is None)
                        for r in unpack(folder).runs]  # fmt: skip

    found: dict[str, tuple[Path, Reader]] = {}
    for name in ("ppo", "tokens"):
        runs = root / f"{name}-runs"
        if name == "tokens":
            lives.warmed(runs)
        lives.advanced(lives.job_of(name), runs, lambda news: None)
        pack(read_study(runs), root / name)
        found[f"pack of {name}"] = (root / name, content(root / name))
    return found


def league(root: Path) -> dict[str, tuple[Path, Reader]]:
    """What it froze, and where its shapes stand at its end."""
    stage = plan = read_league("small", lives.LEAGUE)
    course = plan.course
    assert isinstance(course, Course)
    while stage is not None:
        for job in stage.configs:
            if not Keeping(root).path(job).exists():
                lives.play(job, root)
        stage = stage.next(Keeping(root))  # type: ignore[assignment]
    return {
        "league's choices": (root, lambda: read_frozen(course.rules, Keeping(root))),
        "league's standings": (root, lambda: read_standings(root).entries),
    }


def others(root: Path) -> dict[str, tuple[Path, Reader]]:
    """Kept tokens, the picture of a run's shape, the trials of a search."""
    columns: dict[str, Any] = {name: [None] * 40 for name in SCHEMA}
    columns |= {"step": [1] * 40, "sequence": [0] * 40, "place": list(range(40)),
                "text": ["a", "bc"] * 20, "shape": ["clip"] * 40, "trained": [True] * 40,
                "ratio": [1.5, 0.5] * 20, "advantage": [1.0] * 40, "multiplier": [0.0, 0.5] * 20,
                "fate": ["zeroed", "kept"] * 20}  # fmt: skip
    write_kept(root, 1, columns)
    lives.advanced(lives.job_of("ppo"), root / "runs", lambda news: None)
    path = Keeping(root / "runs").path(lives.job_of("ppo"))
    picture = root / "picture"
    picture.mkdir()
    shutil.copy(path / "shape.json", picture)
    question = SimpleNamespace(task="CartPole-v1", shape="clip", seed=0, over=("lr",))
    knobs = [{"lr": 0.5}, {"lr": 0.25}]
    search = root / "search" / "study.json"
    search.parent.mkdir()

    def searched() -> None:
        StudyFile(search, question, "1").check(0, knobs)  # type: ignore[arg-type]

    def drawn() -> bytes | None:
        found, _ = read_portrait(picture, lives.job_of("ppo").stored)
        return None if found is None else to_json(found)

    kept = [{"knobs": each} for each in knobs]
    search.write_text(damage.json.dumps({"optuna": "1", "trials": kept}))
    return {
        # Parquet of other tools has no checksum, so here a number may be another; never more
        "kept tokens": (root / "tokens", lambda: read_kept(root).schema),
        "picture": (picture, drawn),
        "search": (search.parent, searched),
    }


def synced(home: Path) -> bytes:
    """The events of a run after a sync on top of what is there, in a copy of it."""
    with tempfile.TemporaryDirectory(dir=lives.fast_folder()) as scratch:
        place = Path(shutil.copytree(home, Path(scratch, "sink")))
        (done,) = sync(place / "runs", "tensorboard", place / "events")
        assert done.output is not None
        return b"".join(file.read_bytes() for file in sorted(done.output.glob("events.*")))


def many(count: int, seed: int = 0, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Do random damages from number `first` on; what came of them, and what is wrong."""
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(dir=lives.fast_folder()) as scratch:
        kinds = readers(Path(scratch, "whole"))
        true = {name: read() for name, (_, read) in kinds.items()}
        for number in range(first, first + count):
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
                same = found == true[name]
                outcomes["as it was" if same else "not there"] += 1
                if not same and found is not None:
                    wrong.append(f"{name}, {file.name}, {kind}: something else was believed")
            except KlipError as error:
                outcomes["refused in a line"] += 1
                if "\n" in str(error):
                    wrong.append(f"{name}, {file.name}, {kind}: more than a line")
            except Exception as error:
                wrong.append(f"{name}, {file.name}, {kind}: {type(error).__name__}: {error}"[:300])
            file.write_bytes(data)
    return outcomes, wrong
