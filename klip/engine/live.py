"""Training as it happens: a live table in a terminal, plain lines elsewhere, a summary after."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from klip.engine.advance import Progress
from klip.engine.finish import Result
from klip.engine.job import Job, kind_of
from klip.engine.labels import labels_of

LINE_EVERY = 5.0  # seconds between plain lines
MEANINGFUL = 5.0  # seconds of training, after compiling, on which time left is estimated
MANY = 24  # with more runs, a table has a line for each task and shape
MEANS = ("step", "return_mean", "kill", "kl")
"""metrics of a row that are shown, besides its speed"""


class Watch:
    """Follows jobs by their ids; `costs` are the seconds that each is expected to take.

    What is `above` stands above the live table.
    """

    def __init__(
        self,
        console: Console,
        jobs: Sequence[Job],
        costs: Sequence[float],
        above: RenderableType | None = None,
    ) -> None:
        self.console, self.above = console, above
        several = len({job.task for job in jobs}) > 1
        self.groups = {
            job.id: f"{job.task} {label}" if several else label
            for job, label in zip(jobs, labels_of(jobs), strict=True)
        }
        self.labels = {job.id: f"{self.groups[job.id]} seed {job.seed}" for job in jobs}
        self.iterations = {job.id: job.iterations for job in jobs}
        self.costs = {job.id: cost for job, cost in zip(jobs, costs, strict=True)}
        self.whole = sum(costs)
        self.rows: dict[str, dict[str, Any]] = {job.id: {} for job in jobs}
        self.status = {job.id: "waiting" for job in jobs}
        self.starts = {job.id: kind_of(job.kind).starts for job in jobs}
        self.printed = time.monotonic()
        self.began: float | None = None  # when the first iteration was done, and all was compiled
        self.before: dict[str, float] = {}  # share of each run that was done when it got its pace
        self.heard: dict[str, float] = {}  # when
        self.live = Live(console=console, refresh_per_second=2) if console.is_terminal else None

    def __enter__(self) -> Watch:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live:
            self.live.stop()

    def tell(self, news: Progress) -> None:
        """Take in what is new about a run."""
        now, trains = time.monotonic(), "speed" in self.rows[news.run]
        self.rows[news.run] |= news.row
        trained = "speed" in self.rows[news.run]
        starts = news.status == "running" and not trained
        first = starts and not {*self.status.values()} - {"waiting", "done"}
        self.status[news.run] = self.starts[news.run] if starts else news.status
        self.heard[news.run] = now
        if not trains:  # a first iteration is compiled, and so tells nothing of the next
            self.before[news.run] = self._share(news.run)
        if trained and self.began is None:
            self.began = now
        for note in news.notes:
            self.say(f"{self.labels[news.run]}: {note}")
        if self.live:
            self.live.update(Group(self.above, self.table()) if self.above else self.table())
        elif first or now - self.printed > LINE_EVERY:
            self.printed = now
            self.console.print(self.line())

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, markup=False, highlight=False)

    def _share(self, run: str) -> float:
        """What a run has done so far, as a share of all work."""
        part = self.rows[run].get("iteration", 0) / self.iterations[run]
        return float(part * self.costs[run] / self.whole)

    def done(self) -> float:
        """The share of all work that is done."""
        return sum(map(self._share, self.rows))

    def left(self) -> str:
        """How long the rest will take at the pace so far, once that means something."""
        pace = self._pace()
        if pace is None:
            starting = sorted({*self.status.values()} & {*self.starts.values()})
            return ", ".join(starting) if self.began is None and starting else "- left"
        seconds = max(1 - self.done(), 0.0) / pace
        hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
        return f"{hours}:{minutes:02d}:{int(seconds % 60):02d} left"

    def _pace(self) -> float | None:
        """The share of all work that is done in a second, without first iterations.

        Runs of a group are heard one after the other, so each is timed by its own last news.
        """
        now = time.monotonic()
        if self.began is None or now - self.began < MEANINGFUL:
            return None
        pace = 0.0
        for run, before in self.before.items():
            gained = self._share(run) - before
            until = self.heard[run] if self.status[run] == "running" else now
            pace += gained / (until - self.began) if gained > 0 and until > self.began else 0.0
        return pace or None

    def speed(self) -> float:
        """Steps per second of all running runs together."""
        running = (run for run, status in self.status.items() if status == "running")
        return float(sum(self.rows[run].get("speed", 0.0) for run in running))

    def line(self) -> str:
        """The state of things in one line."""
        going = {"waiting", "running", *self.starts.values()}
        ended = sum(status not in going for status in self.status.values())
        mean = number(_mean(list(self.rows.values())).get("return_mean"))
        return (
            f"{self.done():4.0%}  {ended}/{len(self.labels)} runs ended  mean return {mean}  "
            f"{self.speed():,.0f} steps/s  {self.left()}"
        )

    def table(self) -> Table:
        """Every run on a line of its own, or every task and shape where there are many."""
        table = Table(title=self.line(), title_justify="left", box=None)
        for column in ("run", "status", "step", "return", "kill", "KL", "steps/s"):
            table.add_column(column, justify="left" if column in ("run", "status") else "right")
        if len(self.labels) <= MANY:
            for run, label in self.labels.items():
                table.add_row(escape(label), self.status[run], *_cells(self.rows[run]))
            return table
        for group in dict.fromkeys(self.groups.values()):
            runs = [run for run, name in self.groups.items() if name == group]
            states = _counts([self.status[run] for run in runs])
            table.add_row(escape(group), states, *_cells(_mean([self.rows[run] for run in runs])))
        return table


def number(value: float | None) -> str:
    """A return as it is shown: with a decimal, or three where it is small.

    >>> number(120.51), number(0.6034), number(None)
    ('120.5', '0.603', '-')
    """
    if value is None:
        return "-"
    return f"{value:.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3f}"


def _counts(statuses: Sequence[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in Counter(statuses).items())


def _mean(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over runs, where known; the speed is a sum."""
    means: dict[str, Any] = {}
    for key in (*MEANS, "speed"):
        known = [row[key] for row in rows if row.get(key) is not None]
        if known:
            means[key] = float(np.sum(known) if key == "speed" else np.mean(known))
    return means


def _cells(row: dict[str, Any]) -> list[str]:
    def cell(key: str, form: str) -> str:
        value = row.get(key)
        return "-" if value is None else format(value, form)

    value = number(row.get("return_mean"))
    return [
        cell("step", ",.0f"), value, cell("kill", ".1%"), cell("kl", ".4f"), cell("speed", ",.0f")
    ]  # fmt: skip


def summary(results: Sequence[Result]) -> Table:
    """Final returns over seeds, by shape and settings, and how many runs are not done."""
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    names = labels_of([result.config for result in results])
    for result, label in zip(results, names, strict=True):
        groups[result.config.task, label].append(result)
    table = Table(box=None)
    for column in ("task", "shape", "runs", "done", "others", "final return", "std over seeds"):
        table.add_column(column, justify="left" if column in ("task", "shape") else "right")
    for (task, label), members in groups.items():
        done = [r for r in members if r.status == "done"]
        known = [r.final_return for r in done if r.final_return is not None]
        others = _counts([r.status for r in members if r.status != "done"]) or "-"
        mean = number(float(np.mean(known)) if known else None)
        spread = number(float(np.std(known)) if known else None)
        counts = (str(len(members)), str(len(done)))
        table.add_row(escape(task), escape(label), *counts, others, mean, spread)
    return table
