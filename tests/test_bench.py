"""The speed benchmark's arithmetic, tables and record; nothing here is timed."""

import argparse
import io
import json
import os
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def modules(monkeypatch):
    """The benchmark's modules, which are scripts side by side and no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import peers
    import speed
    import speed_report

    return argparse.Namespace(peers=peers, speed=speed, report=speed_report)


@pytest.fixture
def recorded():
    return json.loads((BENCHMARKS / "results" / "speed.json").read_text())


def turns(*rounds, **more):
    """Rounds of (steps, seconds) pairs, one pair a process; a warm-up of 100 s goes first."""
    every = [[(1, 100.0) for _ in rounds[0]], *rounds]
    return [[{"steps": n, "seconds": s, **more} for n, s in answers] for answers in every]


def test_processes_add_up_and_the_warm_up_does_not_count(modules):
    found = modules.report.figures(turns([(100, 1.0), (100, 2.0)], [(100, 3.0), (100, 2.0)]))
    assert found["steps_per_second"] == pytest.approx(200 / 4 + 200 / 4)
    assert found["by_round"] == pytest.approx([100 + 50, 100 / 3 + 50])
    assert found["compile_seconds"] == pytest.approx(100 - 2)


def test_ratios_and_shares(modules):
    own = turns([(1000, 1.0)] * 2, collect=0.7, learn=0.3, physics=0.6, peak_bytes=5)
    row = modules.report.compared(
        "Hopper-v4", {"klip": own, "sb3": turns([(100, 1.0)] * 2), "sbx": turns([(100, 0.5)] * 2)}
    )
    assert row["ratio"] == pytest.approx({"sb3": 10, "sbx": 5})
    assert row["physics_share"] == pytest.approx(0.6)
    assert row["klip"]["microseconds_per_step"] == pytest.approx(
        {"all": 1000, "collect": 700, "learn": 300, "physics": 600}
    )
    assert row["klip"]["peak_bytes"] == 5


def test_a_rise_of_cost_is_found_wherever_it_is(modules):
    assert modules.report.rise([4.0, 3.0, 2.0]) == 0.75
    assert modules.report.rise([4.0, 2.0, 3.0]) == 1.5


def test_every_target_is_checked_and_a_miss_is_seen(modules, recorded):
    report = modules.report
    assert recorded["checks"] == report.checks(recorded)
    names = " ".join(check["what"] for check in recorded["checks"])
    for task, target in report.TARGETS.items():
        assert names.count(f"{task}: times SB3") == (target.ratio is not None)
    assert names.count("share of bare physics") == 5
    assert all(part in names for part in ("alone", "GB in a worker", "rise of a run's cost"))
    costs = [check for check in recorded["checks"] if "microseconds a step" in check["what"]]
    assert [check["target"] for check in costs] == list(report.COSTS.values())
    assert not any(check["at_least"] for check in costs)
    recorded["tasks"][0]["ratio"]["sb3"] = 0.1
    assert not report.checks(recorded)[0]["met"]
    recorded["tasks"][0]["ratio"]["sb3"] = 1000.0
    assert report.checks(recorded)[0]["met"]


def test_the_record_has_everything(modules, recorded):
    assert not recorded["quick"]
    assert [row["task"] for row in recorded["tasks"]] == list(modules.report.TARGETS)
    assert [row["lanes"] for row in recorded["scaling"]] == list(modules.speed.SCALING)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", recorded["date"])
    assert {"cpu", "cores", "load_before"} == recorded["machine"].keys()
    for row in [*recorded["tasks"], recorded["alone"]]:
        for contender in ("klip", "sb3", "sbx"):
            assert len(row[contender]["by_round"]) == 3
            assert row[contender]["steps_per_second"] > 0


def test_the_page_shows_the_record(modules, recorded):
    assert modules.report.markdown(recorded) in (BENCHMARKS / "README.md").read_text()


def test_the_tables_fit_a_terminal(modules, recorded):
    console = Console(width=100, record=True, file=io.StringIO())
    modules.report.show(recorded, console)
    text = console.export_text()
    assert "…" not in text
    for grid in modules.report.grids(recorded):
        assert grid.title in text
        assert all(len(row) == len(grid.columns) for row in grid.rows)


def test_a_part_of_the_tasks_makes_a_whole_report(modules, recorded):
    recorded["tasks"] = [row for row in recorded["tasks"] if row["task"] == "CartPole-v1"]
    recorded |= {"alone": None, "scaling": []}
    recorded["checks"] = modules.report.checks(recorded)
    assert len(recorded["checks"]) == 1
    assert modules.report.markdown(recorded).count("CartPole-v1") == 3


def test_command_lines_are_understood(modules):
    command = modules.speed.peer_command("sbx", "Ant-v4", 1)
    assert command[0] == str(modules.speed.PEERS / "bin" / "python")
    given = modules.peers.arguments(command[2:])
    assert (given.peer, given.task, given.core, given.seed) == ("sbx", "Ant-v4", 1, 1)
    import ours

    given = ours.arguments(modules.speed.klip_command("Ant-v4", 1, 20, 40, 5)[2:])
    assert (given.task, given.core, given.seed, given.runs, given.lanes) == ("Ant-v4", 1, 20, 40, 5)
    with pytest.raises(SystemExit):
        modules.peers.arguments(["cleanrl", "Ant-v4"])


def test_contenders_share_one_protocol(modules):
    import ours

    from klip.ppo import config

    c, peer = config("Hopper-v4", **ours.SHARED), modules.peers.PROTOCOL
    same = {"n_steps": c.rollout, "n_epochs": c.epochs, "batch_size": c.minibatch,
            "learning_rate": c.lr, "gamma": c.gamma, "gae_lambda": c.gae_lambda,
            "ent_coef": c.entropy_weight, "vf_coef": c.value_weight,
            "max_grad_norm": c.max_grad_norm}  # fmt: skip
    assert {name: peer[name] for name in same} == same
    assert list(c.hidden) == peer["policy_kwargs"]["net_arch"]["pi"]
    assert c.shape == f"clip(eps={peer['clip_range']})"
    for task in modules.report.TARGETS:
        normalised = config(task).normalise_observations
        assert normalised is (task not in modules.peers.UNNORMALISED)


def test_a_worker_of_ours_trains_when_it_is_asked(modules, tmp_path):
    core = min(os.sched_getaffinity(0))
    command = modules.speed.klip_command("Hopper-v4", core, 0, 2, 2)
    process = modules.speed.Process([*command, "--physics"], tmp_path / "ours")
    try:
        assert {"klip", "jax", "mujoco"} < process.hear()["versions"].keys()
        process.ask()
        answer = process.hear()
    finally:
        process.popen.terminate()
        process.popen.communicate()
    assert answer["steps"] == 2 * 2048
    assert answer["physics"] > 0
    assert 0 < answer["collect"] < answer["seconds"]  # a part of the whole, however busy


def test_a_process_answers_in_turn_and_dies_loudly(modules, tmp_path):
    script = "import sys; print('{}', flush=True); [print('[1]', flush=True) for _ in sys.stdin]"
    process = modules.speed.Process([sys.executable, "-c", script], tmp_path / "good")
    assert process.hear() == {}
    process.ask()
    assert process.hear() == [1]
    process.popen.communicate()
    bad = modules.speed.Process(
        [sys.executable, "-c", "raise SystemExit('no luck')"], tmp_path / "b"
    )
    with pytest.raises(modules.speed.BenchmarkError, match="no luck"):
        bad.hear()
    bad.popen.communicate()
