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


def a_watch(monkeypatch, runs=20):
    """A group of runs in lockstep, and a clock that the test sets."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("klip.engine.live.time", SimpleNamespace(monotonic=lambda: clock.now))
    jobs = [dataclasses.replace(RUN, seed=seed) for seed in range(runs)]
    console = Console(force_terminal=False, width=120, record=True)
    return clock, jobs, Watch(console, jobs, [1.0] * runs)


def test_the_first_estimate_waits_until_it_means_something(monkeypatch):
    """Compiling is no pace, and neither is the first of 20 runs that are heard one by one."""
    clock, jobs, watch = a_watch(monkeypatch)
    lefts = []

    def hear(iteration):
        for job in jobs:
            watch.tell(Progress(job.id, "running", ROW | {"iteration": iteration}))
            lefts.append(watch.left())

    for job in jobs:
        watch.tell(Progress(job.id, "running", {"iteration": 0, "step": 0}))
    clock.now += 30
    hear(1)
    for iteration in range(2, 11):  # 3 seconds each from now on
        clock.now += 3
        hear(iteration)
    assert lefts[:40] == ["- left"] * 40
    known = [int(text.split()[0].split(":")[2]) for text in lefts if text != "- left"]
    assert all(text == "- left" or text.startswith("0:00:") for text in lefts)
    assert known[19] in (20, 21)  # seven iterations, but for rounding
    assert max(known) <= 27
    assert known[-1] == 0


def test_the_compile_phase_says_so(monkeypatch):
    clock, jobs, watch = a_watch(monkeypatch, 2)
    for job in jobs:
        watch.tell(Progress(job.id, "running", {"iteration": 0, "step": 0}))
    assert set(watch.status.values()) == {"compiling"}
    (line,) = watch.console.export_text(clear=False).strip().splitlines()
    assert line.endswith("compiling")
    assert "0/2 runs ended" in line
    clock.now += 9
    watch.tell(Progress(jobs[0].id, "running", ROW))
    assert list(watch.status.values()) == ["running", "compiling"]
    assert watch.console.export_text().strip().splitlines()[-1].endswith("- left")


def test_runs_of_different_settings_are_separate_rows():
    """Two learning rates are two rows, and only what differs is named."""
    configs = [
        dataclasses.replace(RUN, lr=lr, seed=seed) for lr in (3e-4, 1e-3, 3e-3) for seed in (0, 1)
    ]
    results = [
        SimpleNamespace(config=c, status="done", final_return=100.0 * i)
        for i, c in enumerate(configs)
    ]
    table = summary(results)
    assert table.row_count == 3
    assert list(table.columns[1].cells) == ["clip", "clip, lr 0.001", "clip, lr 0.003"]
    assert list(table.columns[5].cells) == ["50.0", "250.0", "450.0"]
    watch = Watch(Console(), configs, [1.0] * 6)
    assert watch.labels[configs[3].id] == "clip, lr 0.001 seed 1"


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
        assert watch.left() == "- left"
        watch.tell(Progress(runs[20].id, "running", {"iteration": 0}))
        watch.tell(Progress(runs[20].id, "running", ROW | {"iteration": 0}))
        watch.began -= 100
        watch.tell(Progress(runs[20].id, "running", ROW))
        assert watch.left().startswith("1:05:")  # 0.45 of 20 in 100 s, 17.55 are left
        table = watch.table()
    assert table.row_count == 2
    console.print(table)
    text = console.export_text()
    assert "20 done" in text
    assert "1 running, 19 waiting" in text
