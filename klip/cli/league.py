"""`klip league`: where every shape stands, and where yours would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from klip.cli.common import Json, address, console, escape, print_json, wrote
from klip.cli.experiments import follow_plan
from klip.engine.advance import CHECKPOINT_EVERY, Keeping

if TYPE_CHECKING:
    from klip.engine.plan import Plan
    from klip.studies.standings import Standing, Standings

SMOKE = "this was a smoke test: one cell and three seeds rank nobody"


def league(
    shape: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[SHAPE]")] = None,
    knob: tuple[str, ...] = (),
    quick: bool = False,
    runs: Path | None = None,
    out: Path = Path("runs"),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("league.html"),
    figures: Path | None = None,
    as_json: Json = False,
    workers: int | None = None,
    ray: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[ADDRESS]")] = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    have: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PACK...")] = (),
) -> None:
    """Show where every shape stands in the league; with a shape of yours, train it and place it.

    The newcomer's knob is tuned and frozen, then it is tested, under the protocol of the others,
    who are not trained again. The same command again goes on where it stopped.

    Args:
        shape: the newcomer, such as my.py:Mine
        knob: numbers that set its radius, in its parts too, unless its class says so
        quick: a league of five shapes in one cell instead, trained here: a smoke test
        runs: a file of standings, or a league's runs, which may still go on; else the shipped ones
        out: folder for the runs
        output: the page; it needs nothing beside it, and no network
        figures: folder for its pictures (PDF, SVG, PNG) and tables (CSV, JSON)
        as_json: print one JSON object
        workers: number of processes here; one per core unless given
        ray: train on the Ray cluster at this address, or on the one this machine belongs to
        checkpoint_every: seconds between checkpoints
        accept_changes: go on although versions or processor changed; the run records it
        start_over: begin again the runs whose checkpoints are all damaged
        have: packs (`klip pack`) whose runs count as done, as from another machine

    """
    from klip.engine.having import having
    from klip.pages.league import check_places, write, write_figures
    from klip.studies.playing import play_league
    from klip.studies.standings import WHICH, records, table

    check_places(output, figures)
    keeping = Keeping(out, checkpoint_every, accept_changes, start_over, having(have))
    cluster, screen = address(ray), console(stderr=as_json)

    def play(plan: Plan) -> None:
        screen.print(f"{plan.name}: {escape(plan.about)}")
        follow_plan(plan, keeping, workers, cluster, screen=screen)

    standings = play_league(keeping, play, shape, knob, quick, runs)
    write(standings, output)
    others = [] if figures is None else write_figures(standings, figures)
    if as_json:
        return print_json({which: records(table(standings, which)) for which in WHICH})
    tell(standings, quick, screen)
    for line in wrote(output, others):
        screen.print(escape(line))


def tell(standings: Standings, quick: bool, screen: Console) -> None:
    """Print both tables, and what to know of them."""
    from klip.studies.standings import WHICH, table

    for which in WHICH:
        screen.print(as_table(which, table(standings, which)))
    for line in warnings(standings, quick):
        screen.print(escape(line))


def warnings(standings: Standings, quick: bool) -> list[str]:
    """What to know of standings that are not those of a whole league."""
    lines = [SMOKE] if quick else []
    if left := standings.untested:
        lines.append(f"this league goes on: {'; '.join(left)} are not tested yet")
    return lines


def as_table(which: str, rows: Sequence[Standing]) -> Table:
    """One of the two tables, the highest score first."""
    heads = {"published": "as published", "tuned": "tuned: one setting for all cells"}
    table = Table(title=heads[which], title_justify="left", box=None)
    stress = list(rows[0].stress)
    columns = ("shape", "IQM", "95 %", "rank", *stress, "over clip", "diverged", "kill", "KL")
    for column in columns:
        table.add_column(column, justify="left" if column == "shape" else "right", no_wrap=True)
    for row in rows:
        low, high = row.ranks
        name = f"[bold]{escape(row.label)}[/]" if row.newcomer else escape(row.label)
        played = "" if row.factor == 1 else f" x {row.factor:g}"
        table.add_row(
            name + played, f"{row.iqm.estimate:.3f}", _interval(row),
            str(low) if low == high else f"{low} to {high}",
            *(f"{row.stress[each].iqm.estimate:.3f}" for each in stress), _over_clip(row),
            str(row.diverged), _share(row.kill), "-" if row.kl is None else f"{row.kl:.4f}",
        )  # fmt: skip
    return table


def _interval(row: Standing) -> str:
    if row.iqm.low is None or row.iqm.high is None:
        return "-"
    return f"{row.iqm.low:.3f} to {row.iqm.high:.3f}"


def _over_clip(row: Standing) -> str:
    """The probability of improvement over PPO-Clip, marked where it is shown."""
    from klip.studies.comparing import CLAIM

    if row.same:
        return "the same" if row.better is not None else "-"
    if row.better is None:
        return "-"
    shown = row.better.p_holm is not None and row.better.p_holm <= CLAIM
    return f"{row.better.estimate:.2f}{'*' if shown else ' '}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
