"""`klip eval`, `video`, `export`: what a trained policy does, and how to hand it on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from klip.cli.common import Json, RunPath, TaskArgs, console, escape, print_json

Target = Annotated[Path, tyro.conf.arg(aliases=["-o"])]


def evaluate(
    run: RunPath,
    episodes: int = 20,
    seed: int = 0,
    sampled: bool = False,
    task: str | None = None,
    task_args: TaskArgs = None,
    trust_task: bool = False,
    as_json: Json = False,
) -> None:
    """Play fixed episodes with a trained policy, its statistics frozen, and print its returns.

    Args:
        run: a run's folder, a checkpoint file, or a folder that `klip export` wrote
        episodes: number of episodes; a seed gives every policy the same ones
        seed: seed of the episodes, none of which training saw
        sampled: sample the actions, as in training, instead of taking the likeliest
        task: task to play instead of the trained one, with the same sizes
        task_args: keyword arguments of the task, such as size=3 goal=left
        trust_task: import the policy's own task where it is a module:Id, which runs its code
        as_json: print one JSON object

    """
    from klip.policies import evaluate, read

    trained = read(run)
    _say(trained.notes)
    began = time.perf_counter()
    options: dict[str, Any] = {"sampled": sampled, "task": task, "trust_task": trust_task}
    options["task_args"] = task_args
    with _progress("episodes", episodes) as tell:
        result = evaluate(trained, episodes, seed, **options, progress=tell)
    seconds = time.perf_counter() - began
    r = result.as_dict()
    if as_json:
        about = {
            "run": str(run),
            "shape": trained.policy.config["shape"],
            "iteration": trained.iteration,
            "status": trained.status,
        }
        return print_json({**about, **r, "notes": list(trained.notes)})
    out = console()
    how = "sampled" if sampled else "deterministic"
    out.print(escape(f"{result.task}: {len(result.episodes)} episodes, {how} actions, seed {seed}"))
    out.print(
        f"return [bold]{r['mean']:.1f}[/] ± {r['std']:.1f}  (from {r['min']:.1f} to {r['max']:.1f})"
    )
    out.print(
        f"length {r['length_mean']:.1f}  (from {r['length_min']} to {r['length_max']}); "
        f"{r['terminated']} ended by the task, {r['truncated']} by the time limit"
    )
    if r["unstable"]:
        out.print(f"[bold red]MuJoCo was unstable in {r['unstable']} episodes[/]")
    steps = sum(e.length for e in result.episodes)
    out.print(
        f"[dim]{seconds:.1f} s, {len(result.episodes) / seconds:,.1f} episodes/s, "
        f"{steps / seconds:,.0f} steps/s[/]"
    )


def video(
    run: RunPath,
    output: Target = Path("policy.gif"),
    episodes: int = 1,
    seed: int = 0,
    sampled: bool = False,
    seconds: float = 30.0,
    task: str | None = None,
    task_args: TaskArgs = None,
    trust_task: bool = False,
) -> None:
    """Film a trained policy, on a machine with or without a screen.

    Args:
        run: a run's folder, a checkpoint file, or a folder that `klip export` wrote
        output: file to write: gif or mp4
        episodes: number of episodes: the first of `klip eval` with the same seed
        seed: seed of the episodes
        sampled: sample the actions, as in training, instead of taking the likeliest
        seconds: longest length of the film
        task: task to play instead of the trained one, with the same sizes
        task_args: keyword arguments of the task, such as size=3 goal=left
        trust_task: import the policy's own task where it is a module:Id, which runs its code

    """
    from klip.policies import read, video

    trained = read(run)
    _say(trained.notes)
    options: dict[str, Any] = {"sampled": sampled, "task": task, "trust_task": trust_task}
    options["task_args"] = task_args
    with _progress("episodes", episodes) as tell:
        film = video(trained, output, episodes, seed, seconds=seconds, **options, progress=tell)
    for episode in film.episodes:
        print(f"episode {episode.number}: return {episode.total:.1f}, {episode.length} steps")
    print(f"wrote {output}: {film.frames} frames, {film.frames / film.fps:.1f} s")


def export(
    run: RunPath,
    output: Target = Path("policy"),
    onnx: bool = True,
    episodes: int = 20,
    seed: int = 0,
    trust_task: bool = False,
    force: bool = False,
) -> None:
    """Write a policy as one portable folder: safetensors, config, model card, ONNX.

    Args:
        run: a run's folder or a checkpoint file
        output: folder to write
        onnx: leave out policy.onnx, whose outputs are checked against ours
        episodes: episodes of the evaluation in the model card; 0 leaves it out
        seed: seed of the evaluation
        trust_task: import the policy's own task where it is a module:Id, which runs its code
        force: replace an existing export

    """
    from klip.policies import export, read

    trained = read(run)
    _say(trained.notes)
    card: dict[str, Any] = {"episodes": episodes, "seed": seed, "trust_task": trust_task}
    with _progress("episodes", episodes) as tell:
        exported = export(trained, output, onnx=onnx, **card, force=force, progress=tell)
    for name in exported.files:
        print(f"wrote {exported.path / name}")
    if exported.result is not None:
        r = exported.result.as_dict()
        print(f"evaluated: return {r['mean']:.1f} ± {r['std']:.1f} over {episodes} episodes")
    if (difference := exported.onnx_difference) is not None:
        print(f"policy.onnx was run: its outputs differ from ours by {difference:.1e}")
    for line in exported.not_written:
        print(f"not written: {line}")


def _say(notes: Sequence[str]) -> None:
    """Print what was damaged on standard error, where it does not disturb the output."""
    for note in notes:
        print(f"klip: {note}", file=sys.stderr)


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal only; yields a function to call with (done, steps)."""
    screen = Console(stderr=True)
    count = TextColumn("{task.completed}/{task.total} " + what)
    steps = TextColumn("{task.fields[steps]:,d} steps")
    columns = (count, BarColumn(), steps, TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        job = bar.add_task(what, total=total, steps=0)
        yield lambda done, steps: bar.update(job, completed=done, steps=steps)
