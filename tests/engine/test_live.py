"""Progress: a table in a terminal, lines elsewhere."""

import dataclasses
from types import SimpleNamespace

import pytest
from rich.console import Console

from klip.engine.advance import Progress
from klip.engine.live import Watch, summary
from klip.lab.config import TokenConfig
from klip.ppo.config import Config

RUN = Config("CartPole-v1", steps=20480, rollout=2048)
ROW = {
    "iteration": 5,
    "step": 2560,
    "return_mean": 120.5,
    "kill": 0.03,
    "kl": 0.01,
    "speed": 9000.0,
}


def test_a_terminal_gets_a_table():
    console = Console(force_terminal=True, width=120, record=True)
    with Watch(console, [RUN, dataclasses.replace(RUN, seed=1)], [1.0, 1.0]) as watch:
        watch.tell(Progress(RUN.id, "running", ROW))
        assert watch.done() == 0.25
        assert watch.speed() == 9000.0
        console.print(watch.table())
    text = console.export_text()
    for part in ("clip seed 1", "waiting", "2,560", "120.5", "3.0%", "9,000", "25%"):
        assert part in text


def test_a_file_gets_lines():
    console = Console(force_terminal=False, width=120, record=True)
    with Watch(console, [RUN], [1.0]) as watch:
        watch.printed -= 60
        watch.tell(Progress(RUN.id, "running", ROW))
        watch.tell(Progress(RUN.id, "running", ROW))  # too soon for another line
    lines = console.export_text().strip().splitlines()
    assert len(lines) == 1
    assert "50%" in lines[0]
    assert "steps/s" in lines[0]


def test_jobs_of_several_kinds():
    """A token run is called by its arm, and a warm-up has neither a return nor a kill."""
    run = TokenConfig("position", "sharp [answer]", "clip")
    console = Console(force_terminal=True, width=120, record=True)
    with Watch(console, [run.warmup, run], [1.0, 1.0]) as watch:
        row = {"iteration": 1400, "step": 179_200, "loss": 0.4}
        watch.tell(Progress(run.warmup.id, "done", row))
        watch.tell(Progress(run.id, "running", {"iteration": 20, "return_mean": 0.61}))
        assert watch.done() == 0.75
        console.print(watch.table())
    text = console.export_text()
    for part in ("warm-up seed 0", "sharp [answer] seed 0", "179,200", "0.610"):
        assert part in text


def test_the_summary_counts_what_diverged():
    results = [
        SimpleNamespace(config=RUN, status="done", final_return=400.0),
        SimpleNamespace(config=RUN, status="done", final_return=500.0),
        SimpleNamespace(config=RUN, status="diverged", final_return=None),
    ]
    console = Console(width=120, record=True)
    console.print(summary(results))
    text = console.export_text()
    for part in ("clip", "3", "1 diverged", "450.0", "50.0"):
        assert part in text


def test_many_runs_get_a_line_for_each_task_and_shape():
    """140 lines fit no screen; what was done before does not count for the pace."""
    runs = [
        dataclasses.replace(RUN, task=task, seed=seed)
        for task in ("CartPole-v1", "Hopper-v4")
        for seed in range(20)
    ]
    console = Console(force_terminal=True, width=120, record=True)
    with Watch(console, runs, [1.0] * 20 + [9.0] * 20) as watch:
        for run in runs[:20]:
            watch.tell(Progress(run.id, "done", {"iteration": 10}))
        assert watch.done() == pytest.approx(0.1)
        assert watch.left() == "-"
        watch.tell(Progress(runs[20].id, "running", {"iteration": 0}))
        watch.began -= 100
        watch.tell(Progress(runs[20].id, "running", ROW))
        assert watch.left().startswith("1:05:")  # 0.45 of 20 in 100 s, 17.55 are left
        table = watch.table()
    assert table.row_count == 2
    console.print(table)
    text = console.export_text()
    assert "20 done" in text
    assert "1 running, 19 waiting" in text
