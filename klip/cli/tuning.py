"""`klip tune`: search the knobs of a shape and of the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from klip.cli.common import Json, Whole, address, console, escape, print_json
from klip.cli.training import Overrides, given
from klip.engine.advance import CHECKPOINT_EVERY, Keeping
from klip.errors import KlipError

if TYPE_CHECKING:
    from klip.engine.finish import Result, Runner, Survey
    from klip.studies.answering import Metric
    from klip.studies.tuning import Tried, Tuned, TuningQuestion

SHOWN = 10
"""How many trials are printed, the best ones."""


def tune(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")],
    shape: str | None = None,
    over: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KNOB...")] = ("lr",),
    trials: Whole = 64,
    batch: Whole = 16,
    seeds: Whole = 1,
    metric: Annotated[str, tyro.conf.arg(metavar="{final,area}")] = "final",
    seed: Whole = 0,
    out: Path = Path("tuning"),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("tuned.toml"),
    as_json: Json = False,
    workers: int | None = None,
    ray: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[ADDRESS]")] = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    fields: tyro.conf.OmitArgPrefixes[Overrides] = Overrides(),  # type: ignore[valid-type]  # noqa: B008
) -> None:
    """Search knobs for the highest return, and write the best setting as a plan for `klip run`.

    The same command again goes on where it stopped. Needs pip install "klip-rl[tune]".

    Args:
        task: Gymnasium id, such as Hopper-v4; your own is module:Id-v0 or file.py:Id-v0
        shape: a trust region, such as clip or "ramp(width=0.1)"; the preset's unless given
        over: config fields and numbers of the shape, such as lr eps epochs=3,10 lr=1e-5..1e-2
        trials: how many settings are tried
        batch: how many are asked for, and trained, together
        seeds: how many seeds each is trained on, from 1000 on
        metric: final return, or area under the learning curve
        seed: of the search
        out: folder for the runs and the study; those that are there are used
        output: the plan of the best setting; the pictures of the knobs stand beside it, as svg
        as_json: print one JSON object
        workers: number of processes here; one per core unless given
        ray: train on the Ray cluster at this address, or on the one this machine belongs to
        checkpoint_every: seconds between checkpoints
        accept_changes: go on although versions or processor changed; the run records it
        start_over: begin again the runs whose checkpoints are all damaged
        fields: a preset, and any field of the config that is not searched

    """
    from klip.engine.run import site
    from klip.studies.tuning import ask, search

    if output.suffix != ".toml":
        raise KlipError(f"the plan is a TOML file: give -o {output.stem or 'tuned'}.toml")
    chosen: Metric = metric  # type: ignore[assignment]  # `ask` checks it
    question = ask(task, shape, over, trials, batch, seeds, chosen, seed, **given(fields))
    keeping = Keeping(out, checkpoint_every, accept_changes, start_over)
    where = site(workers, address(ray))
    view = SearchView(screen := console(stderr=as_json), question, where.cores, where.words)
    tuned = search(question, keeping, where, view.train, view.look)
    write(tuned, output)
    if as_json:
        return print_json(tuned.fields)
    tell(tuned, screen)
    screen.print(escape(f"the runs are in {out}, the pictures are {output.with_suffix('.svg')}"))
    screen.print(escape(f"test it on other seeds: klip run {output}"))


def write(tuned: Tuned, path: Path) -> None:
    """Write the plan of the best setting, and the pictures of the knobs beside it."""
    from klip.disk import operations
    from klip.draw.as_matplotlib import drawn
    from klip.draw.style import save
    from klip.draw.tuning import sensitivity
    from klip.runs.files import disk, write_whole

    with disk(path):
        operations.make_folders(path.parent)
        write_whole(path, tuned.plan.encode())
    save(drawn(sensitivity(tuned)), path.with_suffix(".svg"))


def tell(tuned: Tuned, screen: Console) -> None:
    """Print the best trials, and how much each knob matters."""
    screen.print(table(tuned.trials))
    shares = ", ".join(f"{name} {share:.0%}" for name, share in tuned.importance.items())
    screen.print(escape(f"importance: {shares}" if shares else "no knob made a difference"))


def table(trials: Sequence[Tried]) -> Table:
    """The best trials, the highest score first."""
    made = Table(box=None)
    for column in ("trial", "score", *trials[0].knobs):
        made.add_column(column, justify="right")
    ranked = sorted(enumerate(trials), key=lambda each: -each[1].score)
    for number, trial in ranked[:SHOWN]:
        lost = sum(score is None for score in trial.scores)
        score = f"{trial.score:.5g}" + (f" ({lost} diverged)" if lost else "")
        made.add_row(str(number), score, *(escape(str(v)) for v in trial.knobs.values()))
    return made


class SearchView:
    """Shows the best trials so far, and the runs of the batch that is trained."""

    def __init__(self, screen: Console, question: TuningQuestion, cores: int, where: str) -> None:
        self.screen, self.question, self.cores, self.where = screen, question, cores, where
        self.trials: Sequence[Tried] = ()

    def train(self, surveyed: Survey, runner: Runner) -> list[Result]:
        """Train what is missing of a batch, with the best trials so far above the runs."""
        from klip.engine.finish import estimate, finish
        from klip.engine.live import Watch
        from klip.engine.schedule import cost

        first, last = len(self.trials), len(self.trials) + self.question.batch
        words = f"trials {first} to {min(last, self.question.trials) - 1}"
        self.screen.print(escape(f"{words}: {estimate(surveyed, self.cores, self.where)}"))
        watched = list({job.id: job for job in (*surveyed.missing, *surveyed.jobs)}.values())
        above = table(self.trials) if self.trials else None
        with Watch(self.screen, watched, [cost([job]) for job in watched], above) as watch:
            try:
                return finish(surveyed, runner, watch.tell, watch.say)
            except (KeyboardInterrupt, SystemExit):
                watch.say("the same command goes on from here")
                raise

    def look(self, trials: Sequence[Tried]) -> None:
        """Say what a batch has found."""
        self.trials = trials
        number, best = max(enumerate(trials), key=lambda each: each[1].score)
        knobs = ", ".join(f"{name} {value}" for name, value in best.knobs.items())
        words = f"{len(trials)} trials: the best is trial {number} with {best.score:.5g}: {knobs}"
        self.screen.print(escape(words))
