"""`klip tokens run`, `report`, `pack` and `plans`: trust regions for language models, tried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

import tyro
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining
from rich.table import Table

from klip.cli.common import Json, console, escape, print_json
from klip.errors import KlipError

if TYPE_CHECKING:
    from klip.lab.config import Config, Warmup
    from klip.lab.running import Keeping, News

Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]


def run(
    plan: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PLAN")],
    arm: tuple[str, ...] = (),
    seeds: int | None = None,
    out: Path = Path("token-runs"),
    workers: int | None = None,
    checkpoint_every: float = 10.0,
    accept_changes: bool = False,
    start_over: bool = False,
) -> int:
    """Train a small language model with every shape of a plan, on all cores.

    The same command again goes on where it stopped, and repeats nothing.

    Args:
        plan: name of a shipped plan (`klip tokens plans`), or path of a TOML file
        arm: only these arms
        seeds: only the first so many seeds
        out: folder for the runs
        workers: how many processes; as many as there are cores unless given
        checkpoint_every: seconds between checkpoints
        accept_changes: go on though versions or processor changed; recorded in the run
        start_over: begin runs again whose checkpoints are all damaged

    """
    import klip.tokens  # noqa: F401 - says how to get PyTorch where it is missing
    from klip.lab.plan import read_plan
    from klip.lab.running import Keeping
    from klip.ppo.workers import cores_for

    if not checkpoint_every >= 0:
        raise KlipError(f"--checkpoint-every {checkpoint_every:g} must be 0 seconds or more")
    chosen, cores = read_plan(plan).only(arm, seeds), cores_for(workers)
    keeping = Keeping(out, checkpoint_every, accept_changes, start_over)
    console().print(f"plan {escape(chosen.name)}: {escape(chosen.about)}")
    failed = _follow(chosen.warmups, keeping, cores, "warm-ups")
    failed = failed or _follow(chosen.configs, keeping, cores, "runs")
    for news in failed:
        name = getattr(news.job, "arm", "warm-up")
        told = f"{name} seed {news.job.seed}: {news.reason}"
        console().print(f"[bold red]{news.status}[/]: {escape(told)}")
    print(f"the runs are in {out}; `klip tokens report {out} -o page.html` shows them")
    return 1 if failed else 0


def report(
    runs: Folder = Path("token-runs"),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("tokens.html"),
    figures: Path | None = None,
) -> None:
    """Make one HTML page of a token experiment: what the intervals allow, curves, killed tokens.

    Args:
        runs: folder that `klip tokens run` or `klip tokens pack` wrote
        output: the page; it needs nothing beside it, and no network
        figures: folder for figures (PDF, SVG, PNG) and a table (CSV)

    """
    from klip.lab.figures import write_figures
    from klip.lab.page import render
    from klip.lab.results import read_results
    from klip.runs.files import disk, write_whole

    if output.suffix.lower() not in (".html", ".htm"):
        raise KlipError(f"-o {output} must end in .html; figures go to a folder, with --figures")
    results = read_results(runs)
    with disk(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    write_whole(output, render(results).encode("utf-8"))
    print(f"wrote {output}")
    for path in write_figures(results, figures) if figures else ():
        print(f"wrote {path}")


def pack(
    runs: Folder = Path("token-runs"),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("packed"),
) -> None:
    """Put a token experiment into a few small files, from which the same page can be made.

    Args:
        runs: folder that `klip tokens run` wrote
        output: folder to write

    """
    from klip.lab.results import pack_results, read_results

    made = pack_results(read_results(runs), output)
    for path in made.files:
        print(f"wrote {path}")
    print(f"{made.size / 1e6:.2f} MB")


def plans(as_json: Json = False) -> None:
    """List the plans of token experiments that come with Klip."""
    import klip.tokens  # noqa: F401 - as above
    from klip.lab.plan import read_plan, shipped_plans

    found = [read_plan(name) for name in shipped_plans()]
    arms: dict[str, dict[str, str]] = {p.name: {c.arm: c.shape for c in p.configs} for p in found}
    if as_json:
        return print_json({p.name: {"about": p.about, "runs": len(p.configs), "arms": arms[p.name]}
                           for p in found})  # fmt: skip
    for plan in found:
        table = Table(title=f"{plan.name}: {plan.about} {len(plan.configs)} runs.",
                      title_justify="left", box=None)  # fmt: skip
        for column in ("arm", "shape"):
            table.add_column(column, overflow="fold")
        for name, shape in arms[plan.name].items():
            table.add_row(escape(name), escape(shape))
        console().print(table)


_GROUP: dict[str, Callable[..., Any]] = {"run": run, "report": report, "pack": pack, "plans": plans}
_Command: Any = Union[  # noqa: UP007 - made of a tuple
    tuple(
        Annotated[Any, tyro.conf.subcommand(name=name, constructor=function)]
        for name, function in _GROUP.items()
    )
]


def tokens(
    command: tyro.conf.OmitArgPrefixes[tyro.conf.OmitSubcommandPrefixes[_Command]],
) -> int:
    """Experiments with a small language model: run a plan, make its page, pack it."""
    return int(command or 0)  # what the subcommand returned


def _follow(jobs: Sequence[Warmup | Config], keeping: Keeping, cores: int, what: str) -> list[News]:
    """Do what is missing before somebody's eyes; what did not get done."""
    from klip.lab.running import is_done, work
    from klip.ppo.interruption import Interruption

    missing = [job for job in jobs if not is_done(job, keeping)]
    screen, failed = console(), []
    screen.print(f"{len(missing)} of {len(jobs)} {what} to do, on {cores} cores")
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"),
               TimeElapsedColumn(), Remaining())  # fmt: skip
    with (
        Interruption(lambda text: screen.print(text, markup=False)) as stop,
        Progress(*columns, console=screen, disable=not screen.is_terminal) as bars,
    ):
        watch = _Watch(bars, jobs, missing, what)
        for news in work(missing, keeping, cores, stop):
            watch.tell(news)
            if news.status not in ("running", "done", "diverged"):
                failed.append(news)
    return failed


class _Watch:
    """A bar for all, and one for each run that is being trained; or lines, elsewhere."""

    def __init__(
        self, bars: Progress, jobs: Sequence[Any], missing: Sequence[Any], what: str
    ) -> None:
        self.bars, self.all, self.what, self.ended = bars, len(jobs), what, len(jobs) - len(missing)
        self.whole = bars.add_task(what, total=self.all, completed=self.ended, told="")
        self.own: dict[Any, TaskID] = {}

    def tell(self, news: News) -> None:
        """Take in what is new."""
        job, total = news.job, getattr(news.job, "iterations", 1)
        name = f"{getattr(job, 'arm', 'warm-up')} seed {job.seed}"
        for note in news.notes:
            self.bars.console.print(f"{name}: {note}", markup=False)
        row = news.row
        told = " ".join(
            f"{label} {row[key]:.1%}"
            for label, key in (("right", "return_mean"), ("killed", "kill"))
            if isinstance(row.get(key), float)
        )
        if news.status == "running":
            if job not in self.own:
                self.own[job] = self.bars.add_task(name, total=total, told=told)
            self.bars.update(self.own[job], completed=row.get("iteration", 0), told=told)
            return
        if job in self.own:
            self.bars.remove_task(self.own.pop(job))
        self.ended += news.status in ("done", "diverged")
        self.bars.update(self.whole, completed=self.ended)
        if not self.bars.console.is_terminal:
            line = f"{self.ended}/{self.all} {self.what}: {name} {news.status} {told}"
            self.bars.console.print(line.rstrip(), markup=False, highlight=False)
