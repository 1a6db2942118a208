"""What the turns of `speed.py` say: arithmetic, targets and tables, and nothing that runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

ALONE = "HalfCheetah-v4"
NOISE = 1.05  # a cost per run that rises by less than this is taken not to rise
MEMORY, GIGABYTE = "Humanoid-v4", 1e9
RUNS = 20  # in lockstep in each worker


class Target(NamedTuple):
    """What a task is to reach: times SB3's steps/s, and the share of time that is physics."""

    ratio: float | None
    share: float | None


TARGETS = {
    "HalfCheetah-v4": Target(10, 0.5),
    "Hopper-v4": Target(8, 0.65),
    "Walker2d-v4": Target(8, 0.78),
    "Ant-v4": Target(3.5, 0.75),
    "Humanoid-v4": Target(3.5, 0.75),
    "CartPole-v1": Target(20, None),
    "LunarLander-v3": Target(None, None),
}
ALONE_TARGET, MEMORY_TARGET = 5.0, 1.5
COSTS = {1: 85.0, 5: 55.0, 20: 50.0}
"""The most microseconds that a step of `ALONE` may cost, by the number of runs in lockstep."""

Answer = dict[str, Any]
Turns = list[list[Answer]]  # by round, the warm-up first; then by process
Report = dict[str, Any]


def total(turns: Turns, what: str) -> float:
    """A number summed over all counted turns and processes."""
    return float(sum(answer[what] for answers in turns[1:] for answer in answers))


def rate(rounds: Turns) -> float:
    """Steps per second of all processes together: the sum of what each of them did."""
    return float(
        sum(
            sum(answer["steps"] for answer in own) / sum(answer["seconds"] for answer in own)
            for own in zip(*rounds, strict=True)
        )
    )


def figures(turns: Turns) -> dict[str, Any]:
    """A contender's speed: overall, by round, and what its first turn took beyond a later one."""
    later = total(turns, "seconds") / sum(len(answers) for answers in turns[1:])
    return {
        "steps_per_second": rate(turns[1:]),
        "by_round": [rate([answers]) for answers in turns[1:]],
        "compile_seconds": max(answer["seconds"] for answer in turns[0]) - later,
    }


def own_figures(turns: Turns) -> dict[str, Any]:
    """What our workers measure besides: where a step's time goes, on one core, and their memory."""
    steps = total(turns, "steps")
    parts = [p for p in ("seconds", "collect", "learn", "physics") if p in turns[1][0]]
    names = {"seconds": "all"}
    return {
        "microseconds_per_step": {names.get(p, p): total(turns, p) / steps * 1e6 for p in parts},
        "peak_bytes": max(answer["peak_bytes"] for answers in turns for answer in answers),
    }


def compared(task: str, turns: Mapping[str, Turns]) -> dict[str, Any]:
    """The row of a task: all contenders, and how many times as fast as each peer we are."""
    row: dict[str, Any] = {"task": task} | {name: figures(own) for name, own in turns.items()}
    row["klip"] |= own_figures(turns["klip"])
    ours = row["klip"]["steps_per_second"]
    row["ratio"] = {p: ours / row[p]["steps_per_second"] for p in ("sb3", "sbx")}
    spent = row["klip"]["microseconds_per_step"]
    row["physics_share"] = spent["physics"] / spent["all"] if "physics" in spent else None
    return row


def scaled(turns: Mapping[str, Turns]) -> list[dict[str, Any]]:
    """The cost of a run's step by the number of runs in lockstep; names are those numbers."""
    return [{"lanes": int(name), **own_figures(own)} for name, own in turns.items()]


def rise(costs: Sequence[float]) -> float:
    """The largest ratio of a cost to one before it: at most 1 if costs only fall."""
    return max(later / earlier for earlier, later in itertools.combinations(costs, 2))


def checks(report: Report) -> list[dict[str, Any]]:
    """Every target that the report has numbers for, beside what was reached."""
    targets: list[dict[str, Any]] = []

    def check(what: str, value: float, target: float, at_least: bool = True) -> None:
        met = value >= target if at_least else value <= target
        targets.append(
            {"what": what, "value": value, "target": target, "at_least": at_least, "met": met}
        )

    for row in report["tasks"]:
        task, target = row["task"], TARGETS[row["task"]]
        if target.ratio is not None:
            check(f"{task}: times SB3", row["ratio"]["sb3"], target.ratio)
        if target.share is not None:
            check(f"{task}: share of bare physics", row["physics_share"], target.share)
        if task == MEMORY:
            peak = row["klip"]["peak_bytes"] / GIGABYTE
            check(f"{task}: GB in a worker of {RUNS} runs", peak, MEMORY_TARGET, at_least=False)
    if report["alone"]:
        value = report["alone"]["ratio"]["sb3"]
        check(f"{ALONE}: a single run alone, times SB3's", value, ALONE_TARGET)
    if report["scaling"]:
        costs = [row["microseconds_per_step"]["all"] for row in report["scaling"]]
        value = rise(costs)
        check(f"{ALONE}: largest rise of a run's cost with more lanes", value, NOISE, False)
    for row in report["scaling"]:
        if row["lanes"] in COSTS:
            what = f"{ALONE}: microseconds a step, runs in lockstep: {row['lanes']}"
            check(what, row["microseconds_per_step"]["all"], COSTS[row["lanes"]], False)
    return targets


# -- tables --------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """A table as text: the first column is words, the others are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def grids(report: Report) -> list[Grid]:
    """The report as tables."""
    grids = [
        Grid(
            "Steps per second, all cores",
            ("task", "klip", "SB3", "SBX", "x SB3", "target", "x SBX", "compile s"),
            [_speed(row, TARGETS[row["task"]].ratio) for row in report["tasks"]],
        ),
        Grid(
            "Where a step's time goes, microseconds on one core",
            ("task", "all", "collect", "learn", "bare physics", "share", "target", "peak MB"),
            [_parts(row) for row in report["tasks"]],
        ),
    ]
    if report["alone"]:
        row = _speed(report["alone"], ALONE_TARGET)
        grids.append(Grid("A single run alone, steps per second", grids[0].columns, [row]))
    if report["scaling"]:
        one = report["scaling"][0]["microseconds_per_step"]["all"]
        rows = []
        for entry in report["scaling"]:
            spent = entry["microseconds_per_step"]
            numbers = [f"{spent[part]:.1f}" for part in ("all", "collect", "learn")]
            peak = f"{entry['peak_bytes'] / 1e6:.0f}"
            rows.append((str(entry["lanes"]), *numbers, f"{spent['all'] / one:.2f}", peak))
        columns = ("runs in lockstep", "all", "collect", "learn", "of one alone", "peak MB")
        grids.append(Grid(f"Microseconds per step of a run, {ALONE}, all cores", columns, rows))
    rows = [
        (c["what"], f"{c['value']:.2f}", f"{'>=' if c['at_least'] else '<='} {c['target']:g}",
         "yes" if c["met"] else "NO")
        for c in report["checks"]
    ]  # fmt: skip
    return [*grids, Grid("Targets", ("what", "reached", "target", "met"), rows)]


def _speed(row: Mapping[str, Any], target: float | None) -> tuple[str, ...]:
    speeds = [f"{row[name]['steps_per_second']:,.0f}" for name in ("klip", "sb3", "sbx")]
    ratios = {peer: f"{row['ratio'][peer]:.1f}" for peer in ("sb3", "sbx")}
    compiling = f"{row['klip']['compile_seconds']:.1f}"
    wanted = "-" if target is None else f"{target:g}"
    return (row["task"], *speeds, ratios["sb3"], wanted, ratios["sbx"], compiling)


def _parts(row: Mapping[str, Any]) -> tuple[str, ...]:
    spent, target = row["klip"]["microseconds_per_step"], TARGETS[row["task"]].share
    numbers = [f"{spent[part]:.1f}" for part in ("all", "collect", "learn")]
    share = ("-", "-", "-")
    if target is not None:
        share = (f"{spent['physics']:.1f}", f"{row['physics_share']:.2f}", f"{target:g}")
    return (row["task"], *numbers, *share, f"{row['klip']['peak_bytes'] / 1e6:.0f}")


def caption(report: Report) -> str:
    """When, where and with what."""
    machine, versions = report["machine"], report["versions"]
    named = {
        "klip": ("klip", "jax", "mujoco", "gymnasium", "numpy"),
        "sb3": ("stable-baselines3", "torch"),
        "sbx": ("sbx-rl", "jax"),
    }
    parts = [
        ", ".join(f"{package} {versions[who][package]}" for package in packages)
        for who, packages in named.items()
    ]
    kind = "quick, " if report["quick"] else ""
    return (
        f"{report['date']}, {kind}{machine['cores']} cores of {machine['cpu']}, load before "
        f"{machine['load_before'][0]:.2f}, {report['seconds'] / 60:.0f} minutes; "
        f"iterations {report['protocol']['iterations']} from scratch. "
        f"Commit {report['commit']}; Python {versions['python']}; {'; '.join(parts)}."
    )


def markdown(report: Report) -> str:
    """The report for a page."""
    lines = [caption(report)]
    for grid in grids(report):
        lines += ["", f"**{grid.title}**", ""]
        rule = ("---", *("---:" for _ in grid.columns[1:]))
        lines += [f"| {' | '.join(cells)} |" for cells in (grid.columns, rule, *grid.rows)]
    return "\n".join(lines) + "\n"


def show(report: Report, console: Console) -> None:
    """The report for a terminal."""
    for grid in grids(report):
        table = Table(title=grid.title, title_justify="left", box=None)
        for i, column in enumerate(grid.columns):
            table.add_column(column, justify="right" if i else "left")
        for row in grid.rows:
            table.add_row(*row, style="bold red" if row[-1] == "NO" else "")
        console.print(table, "")
    console.print(caption(report))
