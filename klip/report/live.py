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
from klip.ppo.train import Result
from klip.shapes import parse

LINE_EVERY = 5.0  # seconds between plain lines


class Watch:
    """Follows runs; `labels` name them, `iterations` is how many each will do."""

    def __init__(self, console: Console, labels: Sequence[str], iterations: Sequence[int]) -> None:
        self.console, self.labels, self.iterations = console, labels, iterations
        self.rows: list[dict[str, Any]] = [{} for _ in labels]
        self.status = ["waiting"] * len(labels)
        self.began = self.printed = time.monotonic()
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
        self.status[news.run] = news.status
        self.rows[news.run] |= news.row
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

    def done(self) -> float:
        """The share of all iterations that is done."""
        seen = sum(row.get("iteration", 0) for row in self.rows)
        return float(seen / max(sum(self.iterations), 1))

    def left(self) -> str:
        """How long the rest will take, at the pace so far."""
        share = self.done()
        if share <= 0:
            return "-"
        seconds = (time.monotonic() - self.began) * (1 - share) / share
        return f"{int(seconds // 60)}:{int(seconds % 60):02d}"

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
        """Every run on a line of its own."""
        table = Table(title=self.line(), title_justify="left", box=None)
        for column in ("run", "status", "step", "return", "kill", "KL", "steps/s"):
            table.add_column(column, justify="left" if column in ("run", "status") else "right")
        for label, status, row in zip(self.labels, self.status, self.rows, strict=True):
            table.add_row(escape(label), status, *_cells(row))
        return table


def _cells(row: dict[str, Any]) -> list[str]:
    def number(key: str, form: str) -> str:
        value = row.get(key)
        return "-" if value is None else format(value, form)

    return [number("step", ",d"), number("return_mean", ".1f"), number("kill", ".1%"),
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
