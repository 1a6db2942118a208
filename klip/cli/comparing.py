"""`klip compare`: which shape is better, or does it not matter?"""

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

if TYPE_CHECKING:
    from klip.engine.finish import Result, Runner, Survey
    from klip.studies.answering import Metric, Pair, Reading
    from klip.studies.compare import Answers, Inquiry

Shapes = Annotated[
    tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="REFERENCE SHAPE...")
]
WIDTH = 41
COLOURS = {"better": "green", "worse": "red", "equivalent": "cyan", "open": "yellow"}


def compare(
    shapes: Shapes,
    task: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TASK...")] = (),
    margin: float = 0.05,
    budget: str | None = None,
    max_seeds: Whole = 60,
    metric: Annotated[str, tyro.conf.arg(metavar="{final,area}")] = "final",
    out: Path = Path("runs"),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("comparison.svg"),
    as_json: Json = False,
    workers: int | None = None,
    ray: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[ADDRESS]")] = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    fields: tyro.conf.OmitArgPrefixes[Overrides] = Overrides(),  # type: ignore[valid-type]  # noqa: B008
) -> None:
    """Add seeds until it is clear which shapes are better or worse than the first, or equivalent.

    The interval of a difference holds at every look, so stopping early costs no honesty. The same
    command again goes on where it stopped, and comes to the same answer.

    Args:
        shapes: two trust regions or more, such as clip spo "ramp(width=0.1)"
        task: one task or more; scores of several are normalised, and the answer is of their mean
        margin: a difference within this share of what the first shape has learned is none
        budget: time for training, such as 90s, 30m or 2h; no limit unless given
        max_seeds: the most seeds for each shape and task
        metric: final return, or area under the learning curve; both are reported
        out: folder for the runs; those that are there are used
        output: the picture of the interval against seeds: svg, png or pdf
        as_json: print one JSON object
        workers: number of processes here; one per core unless given
        ray: train on the Ray cluster at this address, or on the one this machine belongs to
        checkpoint_every: seconds between checkpoints
        accept_changes: go on although versions or processor changed; the run records it
        start_over: begin again the runs whose checkpoints are all damaged
        fields: a preset, and any field of the config

    """
    from klip.draw.style import check_format
    from klip.engine.finish import seconds_in
    from klip.engine.run import site
    from klip.studies.compare import answer, ask

    check_format(output)
    chosen: Metric = metric  # type: ignore[assignment]  # `ask` checks it
    question = ask(shapes, task, margin, max_seeds, chosen, **given(fields))
    left = seconds_in("budget", budget) if budget else None
    keeping = Keeping(out, checkpoint_every, accept_changes, start_over)
    where = site(workers, address(ray))
    screen = console(stderr=as_json)
    view = ClosingView(screen, question, where.cores, where.words)
    answers = answer(question, keeping, where, left, view.train, view.look)
    draw(answers, output)
    if as_json:
        print_json(answers.fields)
    else:
        tell(answers, screen)
        screen.print(escape(f"the runs are in {out}, the picture is {output}"))


def draw(answers: Answers, path: Path) -> None:
    """Write the picture of the intervals against seeds."""
    from klip.draw.as_matplotlib import drawn
    from klip.draw.closing import closing
    from klip.draw.style import save

    save(drawn(closing(answers)), path)


def tell(answers: Answers, screen: Console) -> None:
    """Print the answers, as a table and in a sentence each."""
    screen.print(results(answers))
    for pair in answers.pairs:
        screen.print(escape(sentence(pair, answers.question)))


class ClosingView:
    """Shows intervals as they close, and the runs that the next look waits for."""

    def __init__(self, screen: Console, question: Inquiry, cores: int, where: str) -> None:
        self.screen, self.question, self.cores, self.where = screen, question, cores, where
        self.pairs: Sequence[Pair] = question.pairs

    def train(self, surveyed: Survey, runner: Runner) -> list[Result]:
        """Train what is missing of a look, with the intervals so far above the runs."""
        from klip.engine.finish import estimate, finish
        from klip.engine.live import Watch
        from klip.engine.schedule import cost

        seeds = max(job.seed for job in surveyed.jobs) + 1
        self.screen.print(
            escape(f"look at {seeds} seeds: {estimate(surveyed, self.cores, self.where)}")
        )
        watched = list({job.id: job for job in (*surveyed.missing, *surveyed.jobs)}.values())
        costs = [cost([job]) for job in watched]
        with Watch(self.screen, watched, costs, self.table()) as watch:
            try:
                return finish(surveyed, runner, watch.tell, watch.say)
            except (KeyboardInterrupt, SystemExit):
                watch.say("the same command goes on from here")
                raise

    def look(self, pairs: Sequence[Pair]) -> None:
        """Say what a look has shown."""
        new = [p for p, old in zip(pairs, self.pairs, strict=True) if len(p.seen) > len(old.seen)]
        self.pairs = pairs
        for pair in new:
            seen = pair.looks[-1]
            self.screen.print(
                escape(f"{seen.seeds} seeds: {_versus(pair)}: {_numbers(seen)}: {seen.answer}")
            )

    def table(self) -> Table:
        """Every pair with its interval, drawn to the scale of its first."""
        table = Table(box=None)
        for column in ("pair", "seeds", "difference", "interval", "answer"):
            table.add_column(column, no_wrap=True)
        for pair in self.pairs:
            if not pair.seen:
                table.add_row(escape(_versus(pair)), "-", "-", "", pair.answer)
                continue
            seen = pair.looks[-1]
            cells = [escape(_versus(pair)), str(seen.seeds), f"{seen.difference:.4g}"]
            table.add_row(*cells, bar(pair.looks), _coloured(pair.answer))
        return table


def bar(seen: Sequence[Reading]) -> str:
    """The last interval as text, to the scale of the first: 0 is |, the margin ( and ).

    >>> from klip.studies.answering import Reading
    >>> bar([Reading(6, 2.0, -1.0, 5.0, 1.0, "open", 3.0)])
    '················(━━━|━━━)━━━●━━━━━━━━━━━━'
    """
    ends = [abs(end) for look in seen for end in (look.low, look.high) if end is not None]
    last = seen[-1]
    whole = max([*ends, 1.2 * last.margin, abs(last.difference)]) or 1.0

    def place(value: float) -> int:
        return round((value / whole + 1) / 2 * (WIDTH - 1))

    text = ["·"] * WIDTH
    if last.low is not None and last.high is not None:
        for at in range(max(place(last.low), 0), min(place(last.high), WIDTH - 1) + 1):
            text[at] = "━"
    for value, sign in ((-last.margin, "("), (last.margin, ")"), (0.0, "|")):
        text[place(value)] = sign
    text[place(last.difference)] = "●"
    return "".join(text)


def results(answers: Answers) -> Table:
    """All pairs over all tasks, and below them task by task, by both metrics."""
    question = answers.question
    table = Table(box=None)
    columns = ("pair", "task", "seeds", "final return", "area", "margin", "answer")
    for column in columns:
        table.add_column(column, justify="right" if column in columns[2:-1] else "left")
    for pair in answers.pairs:
        if not pair.seen:
            table.add_row(escape(_versus(pair)), "", "0", "-", "-", "-", "open")
            continue
        last = pair.seen[-1]
        rows = [*last.tasks.items()]
        if len(rows) > 1:
            rows.insert(0, ("all, normalised", last.pooled))
        for task, by_metric in rows:
            own = by_metric[question.metric]
            cells = [_numbers(by_metric[m], margin=False) for m in ("final", "area")]
            table.add_row(
                escape(_versus(pair)), escape(task), str(own.seeds), *map(escape, cells),
                f"{own.margin:.4g}", _coloured(own.answer),
            )  # fmt: skip
    return table


def sentence(pair: Pair, question: Inquiry) -> str:
    """The answer of a pair, as one says it."""
    from klip.shapes.names import brief

    shape, reference = brief(pair.shape), brief(pair.reference)
    if not pair.seen:
        return f"{shape} against {reference}: open, since the budget ended before the first look"
    seeds = f"after {pair.looks[-1].seeds} seeds"
    if pair.answer == "equivalent":
        if pair.looks[-1].low == pair.looks[-1].high == 0:
            return f"{shape} is equivalent to {reference}: every run is the same, {seeds}"
        return f"{shape} is equivalent to {reference}, within {question.margin:.0%}, {seeds}"
    if pair.answer != "open":
        return f"{shape} is {pair.answer} than {reference}, {seeds}"
    if not pair.looks[-1].deviation:
        why = "every seed has the same difference, so nothing bounds it: try the other metric"
    elif pair.more is None:
        why = "more seeds than 10,000 would not settle it"
    else:
        why = f"about {pair.more} more seeds would settle it, if the difference stays as it is"
    return f"{shape} against {reference} is open {seeds}; {why}"


def _versus(pair: Pair) -> str:
    from klip.shapes.names import brief

    return f"{brief(pair.shape)} against {brief(pair.reference)}"


def _numbers(look: Reading, margin: bool = True) -> str:
    ends = "[-, -]" if look.low is None else f"[{look.low:.4g}, {look.high:.4g}]"
    return f"{look.difference:.4g} {ends}" + (f", margin {look.margin:.4g}" if margin else "")


def _coloured(answer: str) -> str:
    return f"[{COLOURS[answer]}]{answer}[/]"
