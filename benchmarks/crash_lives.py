"""The lives that `crashes.py` records: what is done, what is promised, what must come of it."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import damage
import numpy as np

from klip.engine.advance import Keeping, Progress, advance
from klip.engine.job import Job
from klip.lab.config import TokenConfig, Warmup
from klip.ppo.config import config, usual_settings
from klip.runs import RunFolder, config_id, folder_of, read_run
from klip.runs.files import folder_aside, put_folder, write_whole
from klip.runs.sinks import sync
from klip.runs.store import METRICS, NEWEST
from klip.studies import packing
from klip.studies.league import read as read_league
from klip.studies.study import Run, Study

Promise = Callable[[Any], None]
TRUTH = damage.truth(0, (2, 4), 5, 6)
DAMAGE = ("cannot be used", "set aside", "damaged", "begins again: no")
require, fast_folder = damage.require, damage.fast_folder


def nothing(root: Path) -> None:
    """There is nothing there before."""


def litter(root: Path) -> list[str]:
    """Files that were to be put in place, and never were."""
    return [p.name for p in root.rglob(".*") if p.suffix in (".part", ".next")]


# -- a run whose every iteration is known ----------------------------------------------------------


def toy_path(root: Path) -> Path:
    c = TRUTH.config
    return folder_of(root, c["task"], c["shape"], c["seed"], config_id(c))


def toy_train(root: Path, until: int, saves: tuple[int, ...], promise: Promise) -> None:
    folder = RunFolder(toy_path(root), TRUTH.config)
    for k in range(folder.checkpoint.iteration + 1 if folder.checkpoint else 1, until + 1):
        folder.append(TRUTH.row(k))
        if k in saves:
            folder.save(k, TRUTH.arrays(k), "done" if k == TRUTH.ends else "running")
            promise(k)
    folder.close()


def toy_life(root: Path, promise: Promise) -> None:
    """Made, saved, saved again, left in the middle, gone on with, ended."""
    toy_train(root, 3, (2,), promise)
    toy_train(root, 5, (4,), promise)
    toy_train(root, TRUTH.ends, (TRUTH.ends,), promise)


def toy_torn(root: Path) -> None:
    """Left by a crash: half a row, and half of a checkpoint that was being written."""
    toy_train(root, 4, (2,), lambda said: None)
    path = toy_path(root)
    text = (path / METRICS).read_bytes()
    (path / METRICS).write_bytes(text[:-20])
    (path / f".{NEWEST}.01234567.part").write_bytes(b"half of it")


def toy_damaged(root: Path) -> None:
    """Two checkpoints, of which the newest is damaged."""
    toy_train(root, 5, (2, 4), lambda said: None)
    data = (toy_path(root) / NEWEST).read_bytes()
    (toy_path(root) / NEWEST).write_bytes(data[:-9])


def toy_goes_on(root: Path, promise: Promise) -> None:
    """Opened, mended, saved, ended."""
    toy_train(root, 5, (3, 5), promise)
    toy_train(root, TRUTH.ends, (TRUTH.ends,), promise)


def toy_recovers(root: Path, promised: list[Any]) -> None:
    """It goes on from what was promised, calls nothing damaged, and ends as it should."""
    folder = RunFolder(toy_path(root), TRUTH.config)
    point = folder.checkpoint
    stands = point.iteration if point else 0
    require(stands >= max(promised, default=0), f"iteration {max(promised, default=0)} is lost")
    notes = [note for note in folder.notes if any(word in note for word in DAMAGE)]
    require(not notes, f"a crash is called damage: {notes}")
    folder.close()
    toy_ends(root)


def toy_recovers_in_the_end(root: Path, promised: list[Any]) -> None:
    """As `toy_recovers`, where there is damage to be told of."""
    folder = RunFolder(toy_path(root), TRUTH.config)
    require((folder.checkpoint is not None), "no checkpoint is used")
    stands = folder.checkpoint.iteration if folder.checkpoint else 0
    require(stands >= max(promised, default=2), f"iteration {max(promised, default=2)} is lost")
    told = " ".join((*folder.notes, *folder.history))
    require(f"{NEWEST}.damaged-1" in told, "the damage is forgotten")
    folder.close()
    toy_ends(root)


def toy_ends(root: Path) -> None:
    toy_train(root, TRUTH.ends, (3, 4, 5, 6), lambda said: None)
    record = read_run(toy_path(root))
    require(record.status == "done" and not record.notes, f"it is {record.status}, {record.notes}")
    require((toy_path(root) / METRICS).read_bytes() == TRUTH.text(TRUTH.ends), "other metrics")
    require(damage.same_arrays(record.arrays, TRUTH.arrays(TRUTH.ends)), "other arrays")
    require(not litter(root), f"{litter(root)} is left")


# -- a page, a folder, a pack ----------------------------------------------------------------------

OLD, NEW = b"<p>the old page</p>" * 9, b"<p>and the new one</p>" * 11


def page_before(root: Path) -> None:
    (root / "report.html").write_bytes(OLD)


def page(root: Path, promise: Promise) -> None:
    write_whole(root / "report.html", NEW)
    promise(NEW)
    write_whole(root / "figure.svg", OLD)
    promise(OLD)


def page_recovers(root: Path, promised: list[Any]) -> None:
    found = (root / "report.html").read_bytes()
    require(found == NEW or (not promised and found == OLD), "the page is neither")
    figure = root / "figure.svg"
    require(figure.exists() or len(promised) < 2, "the figure is lost")
    require(not figure.exists() or figure.read_bytes() == OLD, "the figure is torn")
    page(root, lambda said: None)
    require(not litter(root), f"{litter(root)} is left")


def folder_before(root: Path) -> None:
    folder(root, lambda said: None, b"old")


def folder(root: Path, promise: Promise, data: bytes = b"new") -> None:
    """As an export is written: aside, then in place of the one that is there."""
    with folder_aside(root / "policy") as part:
        for name in ("config.json", "policy.safetensors"):
            write_whole(part / name, data + name.encode())
        put_folder(part, root / "policy")
        promise(data)


def folder_recovers(root: Path, promised: list[Any]) -> None:
    found = {p.name: p.read_bytes() for p in (root / "policy").iterdir()}
    kinds = (b"new",) if promised else (b"old", b"new")
    names = ("config.json", "policy.safetensors")
    require(found in [{n: k + n.encode() for n in names} for k in kinds], f"it has {found}")
    folder(root, lambda said: None)
    require(not litter(root) and len(list(root.iterdir())) == 1, f"{litter(root)} is left")


def study(tasks: tuple[str, ...], level: float) -> Study:
    """A small study, made up."""
    runs = []
    for task in tasks:
        fields = {**usual_settings(task), "task": task, "shape": "clip(eps=0.2)", "seed": 0}
        count = np.arange(1.0, 6.0)
        metrics = {"iteration": count, "step": 64 * count, "return_mean": level * count}
        runs.append(Run(task, config_id(fields), fields, "done", "", (), (), (), "x", metrics))
    return Study(tuple(runs))


BEFORE, AFTER = study(("Ant-v4", "Hopper-v4"), 1.0), study(("Hopper-v4", "Walker2d-v4"), 2.0)


def pack_before(root: Path) -> None:
    packing.pack(BEFORE, root / "packed")


def pack(root: Path, promise: Promise) -> None:
    packing.pack(AFTER, root / "packed")
    promise("packed")


def pack_recovers(root: Path, promised: list[Any]) -> None:
    place = root / "packed"
    if packing.is_packed(place):
        found = packing.unpack(place)
        level = found.runs[0].metrics["return_mean"][0]
        require(level in ((2.0,) if promised else (1.0, 2.0)), f"a study of level {level}")
        want = AFTER if level == 2.0 else BEFORE
        require([r.id for r in found.runs] == [r.id for r in want.runs], "another study")
    else:
        require(not promised, "the study is lost")
    packing.pack(AFTER, place)
    require(
        sorted(p.name for p in place.iterdir())
        == ["Hopper-v4.parquet", "Walker2d-v4.parquet", "runs.json"],
        f"{litter(root)} is left",
    )
    require(len(packing.unpack(place).runs) == 2, "it cannot be packed again")


# -- events for TensorBoard, a league --------------------------------------------------------------


def events_before(root: Path) -> None:
    toy_train(root / "runs", 3, (2,), lambda said: None)
    sync(root / "runs", "tensorboard", root / "events")


def events(root: Path, promise: Promise) -> None:
    """Rows are added twice, the second time with the end of the run."""
    toy_train(root / "runs", 5, (4,), lambda said: None)
    sync(root / "runs", "tensorboard", root / "events")
    toy_train(root / "runs", TRUTH.ends, (TRUTH.ends,), lambda said: None)
    sync(root / "runs", "tensorboard", root / "events")


def events_recover(root: Path, promised: list[Any]) -> None:
    toy_train(root / "runs", TRUTH.ends, (TRUTH.ends,), lambda said: None)
    (done,) = sync(root / "runs", "tensorboard", root / "events")
    require(done.rows == TRUTH.ends, f"{done.rows} rows")
    (again,) = sync(root / "runs", "tensorboard", root / "again")
    assert done.output is not None
    assert again.output is not None
    want = b"".join(p.read_bytes() for p in sorted(again.output.glob("events.*")))
    found = b"".join(p.read_bytes() for p in sorted(done.output.glob("events.*")))
    require(found == want, "other events than of a run that is synced at once")
    require(not litter(root), f"{litter(root)} is left")


SMALL = {"steps": 256, "envs": 2, "rollout": 32, "minibatch": 16}
LEAGUE = {
    "about": "Small.", "kind": "league", "tasks": ["CartPole-v1"], "shapes": ["clip", "spo"],
    "factors": [1, 2], "stress": [{"name": "K = 1", "config": {"epochs": 1}}],
    "tuning": {"seeds": [1000], "config": SMALL}, "testing": {"seeds": 1, "config": SMALL},
}  # fmt: skip


def play(job: Any, root: Path) -> None:
    """A run of the league, as if it were trained."""
    folder = RunFolder(Keeping(root).path(job), job.stored)
    better = 3.0 if "0.4" in job.shape else 1.0
    for k in range(1, job.iterations + 1):
        folder.append(
            {"iteration": k, "step": 64 * k, "return_mean": 1 + better * (k - 1), "kl": 0.1}
        )
    folder.save(job.iterations, {"w": np.zeros(3)}, "done")
    folder.close()


def league_before(root: Path) -> None:
    for job in read_league("small", LEAGUE).configs:
        play(job, root)


def league(root: Path, promise: Promise) -> None:
    """The choices are frozen, then a tuned shape is tested."""
    following = read_league("small", LEAGUE).next(Keeping(root))
    assert following is not None
    promise([job.id for job in following.configs])
    tuned = next(job for job in following.configs if "0.4" in str(job.names))
    play(tuned, root)


def league_recovers(root: Path, promised: list[Any]) -> None:
    following = read_league("small", LEAGUE).next(Keeping(root))
    require(following is not None, "the league has ended")
    found = [job.id for job in following.configs] if following else []
    require(not promised or found == promised[0], "other choices were frozen")
    require(not [name for name in litter(root) if "frozen" in name], "half of the choices are left")


# -- the trainers themselves -----------------------------------------------------------------------

TINY: dict[str, Any] = {"envs": 2, "rollout": 8, "minibatch": 8, "epochs": 1, "hidden": (4,)}
WARM_UP = Warmup(digits=1, layers=1, width=8, heads=1, steps=3, batch=4)
TOKENS = TokenConfig(
    "group", "arm", "clip(eps=0.2)", iterations=3, prompts=2, completions=2, epochs=1,
    minibatches=1, replay=1, held_out=2, evaluate_every=1, final_samples=1, shown=1, warmup=WARM_UP,
)  # fmt: skip


@functools.cache
def job_of(kind: str) -> Job:
    if kind == "ppo":
        return config("CartPole-v1", steps=48, **TINY)
    if kind == "replay":
        return config("CartPole-v1", steps=64, replay=3, lag=1, **TINY)
    return WARM_UP if kind == "warm-up" else TOKENS


def advanced(
    job: Job, root: Path, hear: Callable[[Progress], None], every: float = 0.0, until: int = 10**9
) -> None:
    """Train a job in this process, with a checkpoint after each iteration; stop after `until`."""
    stands = 0

    def listen(news: Progress) -> None:
        nonlocal stands
        stands = max(stands, news.saved)
        hear(news)

    advance([job], Keeping(root, every), listen, lambda: stands >= until)


def warmed(root: Path) -> None:
    advanced(WARM_UP, root, lambda news: None)


def trains(kind: str) -> Callable[[Path, Promise], None]:
    """A run from its beginning: saved, left, gone on with without a checkpoint, and ended."""

    def life(root: Path, promise: Promise) -> None:
        for every, until in ((0.0, 2), (1e9, 10**9)):
            advanced(job_of(kind), root, lambda news: promise(news.saved), every, until)

    return life


@functools.cache
def undisturbed(kind: str) -> tuple[bytes, str]:
    """Metrics and digest of a run that nothing happened to."""
    root = Path(fast_folder() or "/tmp") / f"klip-undisturbed-{os.getpid()}-{kind}"
    try:
        if kind == "tokens":
            warmed(root)
        advanced(job_of(kind), root, lambda news: None)
        path = Keeping(root).path(job_of(kind))
        return (path / METRICS).read_bytes(), read_run(path).digest()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def trains_on(kind: str) -> Callable[[Path, list[Any]], None]:
    """The trainer goes on from a state, and ends with the bytes of an undisturbed run."""

    def recover(root: Path, promised: list[Any]) -> None:
        told: list[Progress] = []
        advanced(job_of(kind), root, told.append)
        require(told[-1].status == "done", f"{told[-1].status}: {told[-1].reason}")
        most = max(promised, default=0)
        require(told[0].saved >= most, f"iteration {most} is lost")
        notes = [n for news in told for n in news.notes if any(word in n for word in DAMAGE)]
        require(not notes, f"a crash is called damage: {notes}")
        path = Keeping(root).path(job_of(kind))
        found = (path / METRICS).read_bytes(), read_run(path).digest()
        require(found == undisturbed(kind), "other bytes than of a run that nothing happened to")
        require(not litter(path), f"{litter(path)} is left")

    return recover


def export_before(root: Path) -> None:
    """A policy, and an export of it."""
    advanced(job_of("ppo"), root / "runs", lambda news: None)
    export(root)


def export(root: Path) -> None:
    from klip.policies import export as export_policy

    export_policy(Keeping(root / "runs").path(job_of("ppo")), root / "policy", onnx=False,
                  episodes=0, force=True)  # fmt: skip


def export_anew(root: Path, promise: Promise) -> None:
    export(root)
    promise("exported")


def export_recovers(root: Path, promised: list[Any]) -> None:
    from klip.policies import load

    require(load(root / "policy").task == "CartPole-v1", "another policy")
    export(root)
    require(not litter(root), f"{litter(root)} is left")
