"""Training as it happens: a live table in a terminal, plain lines elsewhere, a summary after."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from klip.ppo.advance import Progress
from klip.ppo.config import Config
from klip.ppo.train import Result
from klip.shapes import parse

LINE_EVERY = 5.0  # seconds between plain lines
MANY = 24  # runs beyond which a table has a line for each task and shape


class Watch:
    """Follows runs: their labels, (task and shape) groups, iterations, and expected seconds."""

    def __init__(self, console: Console, configs: Sequence[Config], costs: Sequence[float]) -> None:
        self.console, self.costs = console, costs
        briefs = [parse(c.shape).brief for c in configs]
        several = len({c.task for c in configs}) > 1
        self.groups = [
            f"{c.task} {b}" if several else b for c, b in zip(configs, briefs, strict=True)
        ]
        self.labels = [f"{g} seed {c.seed}" for g, c in zip(self.groups, configs, strict=True)]
        self.iterations = [c.iterations for c in configs]
        self.rows: list[dict[str, Any]] = [{} for _ in configs]
        self.status = ["waiting"] * len(configs)
        self.began = self.printed = time.monotonic()
        self.before = 0.0  # the share that was done before it began
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
        first = not self.rows[news.run]
        self.status[news.run] = news.status
        self.rows[news.run] |= news.row
        if first:
            self.before += self._share(news.run)
        for note in news.notes:
            self.say(f"{self.labels[news.run]}: {note}")
        if self.live:
            self.live.update(self.table())
        elif time.monotonic() - self.printed > LINE_EVERY:
            self.printed = time.monotonic()
            self.console.print(self.line())

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, markup=False, highlight=False)

    def _share(self, run: int) -> float:
        """What a run has done so far, as a share of everything."""
        part = self.rows[run].get("iteration", 0) / self.iterations[run]
        return float(part * self.costs[run] / sum(self.costs))

    def done(self) -> float:
        """The share of all work that is done."""
        return sum(self._share(run) for run in range(len(self.rows)))

    def left(self) -> str:
        """How long the rest will take, at the pace so far."""
        share = self.done()
        if share <= self.before:
            return "-"
        pace = (share - self.before) / (time.monotonic() - self.began)
        seconds = (1 - share) / pace
        hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
        return f"{hours}:{minutes:02d}:{int(seconds % 60):02d}"

    def speed(self) -> float:
        """Steps per second of all running runs together."""
        pairs = zip(self.rows, self.status, strict=True)
        return float(sum(row.get("speed", 0.0) for row, status in pairs if status == "running"))

    def line(self) -> str:
        """The state of things in one line."""
        ended = sum(status not in ("waiting", "running") for status in self.status)
        returns = [row["return_mean"] for row in self.rows if row.get("return_mean") is not None]
        mean = f"{np.mean(returns):.1f}" if returns else "-"
        return (
            f"{self.done():4.0%}  {ended}/{len(self.labels)} runs ended  mean return {mean}  "
            f"{self.speed():,.0f} steps/s  {self.left()} left"
        )

    def table(self) -> Table:
        """Every run on a line of its own, or every task and shape where there are many."""
        table = Table(title=self.line(), title_justify="left", box=None)
        for column in ("run", "status", "step", "return", "kill", "KL", "steps/s"):
            table.add_column(column, justify="left" if column in ("run", "status") else "right")
        if len(self.labels) <= MANY:
            for label, status, row in zip(self.labels, self.status, self.rows, strict=True):
                table.add_row(escape(label), status, *_cells(row))
            return table
        for group in dict.fromkeys(self.groups):
            runs = [i for i, name in enumerate(self.groups) if name == group]
            states = Counter(self.status[i] for i in runs)
            told = ", ".join(f"{count} {status}" for status, count in states.items())
            table.add_row(escape(group), told, *_cells(_mean([self.rows[i] for i in runs])))
        return table


def _mean(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over runs, where known; the speed is a sum."""
    found: dict[str, Any] = {}
    for key in ("step", "return_mean", "kill", "kl", "speed"):
        known = [row[key] for row in rows if row.get(key) is not None]
        if known:
            found[key] = float(np.sum(known) if key == "speed" else np.mean(known))
    return found


def _cells(row: dict[str, Any]) -> list[str]:
    def number(key: str, form: str) -> str:
        value = row.get(key)
        return "-" if value is None else format(value, form)

    return [number("step", ",.0f"), number("return_mean", ".1f"), number("kill", ".1%"),
            number("kl", ".4f"), number("speed", ",.0f")]  # fmt: skip


def summary(results: Sequence[Result]) -> Table:
    """Final returns by shape, over seeds, and how many runs did not get done."""
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.config.task, parse(result.config.shape).brief].append(result)
    table = Table(box=None)
    for column in ("task", "shape", "runs", "done", "others", "final return", "std over seeds"):
        table.add_column(column, justify="left" if column in ("task", "shape") else "right")
    for (task, shape), members in groups.items():
        done = [r for r in members if r.status == "done"]
        known = [r.final_return for r in done if r.final_return is not None]
        others = Counter(r.status for r in members if r.status != "done")
        told = ", ".join(f"{count} {status}" for status, count in others.items())
        mean = f"{np.mean(known):.1f}" if known else "-"
        table.add_row(escape(task), escape(shape), str(len(members)), str(len(done)), told or "-",
                      mean, f"{np.std(known):.1f}" if known else "-")  # fmt: skip
    return table
