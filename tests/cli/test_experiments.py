"""`klip run` and `klip plans`: options reach the plan, mistakes are a line, nothing is repeated."""

import json

import pytest

from klip.cli import main
from klip.engine import read_plan, shipped_plans
from klip.engine.advance import CHECKPOINT_EVERY, Keeping

PLAN = """
about = "Mine."
seeds = [3, 7]
[[runs]]
tasks = ["CartPole-v1"]
shapes = ["clip", "clip(eps=0.2)"]
config = { rollout = 16, envs = 2, steps = 64, minibatch = 16, epochs = 1, hidden = [8] }
"""


def test_options_reach_the_plan(followed, tmp_path, capsys):
    code = main([
        "run", "paper", "--task", "Hopper-v4", "Ant-v4", "--shape", "clip", "--seeds", "2",
        "--steps", "2.048e5", "--out", str(tmp_path), "--workers", "1", "--dry-run",
        "--checkpoint-every", "9", "--accept-changes", "--start-over", "--iteration-limit", "30",
    ])  # fmt: skip
    assert code == 7
    part = read_plan("paper").only(["Hopper-v4", "Ant-v4"], ["clip"], seeds=2, steps=204_800)
    keeping = Keeping(tmp_path, 9.0, True, True)
    assert followed == [(part.configs, keeping, 1, None, True, 30.0)]
    assert f"plan paper: {part.about}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("given", "address"),
    [([], None), (["--ray"], "auto"), (["--ray", "10.0.0.1:6379"], "10.0.0.1:6379")],
)
def test_a_cluster_is_asked_for_with_or_without_its_address(followed, given, address):
    main(["run", "soft-clip", *given])
    ((jobs, keeping, workers, ray, dry_run, _),) = followed
    assert jobs == read_plan("soft-clip").configs
    assert (workers, ray, dry_run) == (None, address, False)
    assert (keeping.every, keeping.out.name) == (CHECKPOINT_EVERY, "runs")


def test_arms_of_a_token_plan_are_asked_for_by_their_names(followed):
    main(["run", "scratchpad", "--arm", "hard drop", "--seeds", "1"])
    ((jobs, *_),) = followed
    assert [(job.arm, job.seed) for job in jobs] == [("hard drop", 0)]


def test_plans_as_json(capsys):
    assert main(["plans", "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)
    assert plans.keys() == set(shipped_plans())
    assert (plans["paper"]["runs"], plans["paper"]["kind"]) == (140, "ppo")
    assert plans["scratchpad"]["kind"] == "tokens"
    assert "hard drop" in plans["scratchpad"]["names"]
    assert all(plan["about"] and plan["names"] for plan in plans.values())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["papr"], f"one of {', '.join(shipped_plans())}, or the path"),
        (["paper", "--task", "Hoper-v4"], "has no task 'Hoper-v4'; it has Ant-v4"),
        (["paper", "--shape", "spo"], "has no shape 'spo(eps=0.2)'"),
        (["paper", "--seeds", "0"], "--seeds 0 leaves nothing"),
        (["paper", "--seeds", "6"], "the plan paper has 5 seeds, not 6"),
        (["paper", "--task", "CartPole-v1", "--steps", "10"], "less than one rollout"),
        (["paper", "--workers", "99"], "must lie between 1 and"),
        (["paper", "--ray", "a", "b"], "give one address"),
        (["paper", "--ray", "a", "--workers", "1"], "give one of them"),
        (["paper", "--have", "nowhere"], "nowhere is no packed study: give a folder that `klip"),
    ],
)
def test_mistakes_on_the_command_line(args, message, tmp_path, capsys):
    pytest.importorskip("ray") if "--ray" in args else None
    assert main(["run", *args, "--out", str(tmp_path / "never")]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "never").exists()


def test_it_says_beforehand_what_it_would_do(tmp_path, capsys, monkeypatch):
    """With a time, here that of the machine on which costs were measured."""
    monkeypatch.setattr("klip.tasks.pace.pace", lambda: 1.0)
    out = str(tmp_path / "runs")
    assert main(["run", "paper", "--dry-run", "--out", out]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "140 of 140 runs are missing, 121.9 million steps: about 2 h" in text
    assert not (tmp_path / "runs").exists()
    assert main(["plans"]) == 0
    assert "195" in capsys.readouterr().out


def test_a_plan_goes_on_from_packs(in_this_process, tmp_path, capsys):
    path, pack = tmp_path / "mine.toml", str(tmp_path / "pack")
    path.write_text(PLAN)
    args = ["run", str(path), "--out"]
    assert main([*args, str(tmp_path / "a"), "--seeds", "1"]) == 0
    assert main(["pack", str(tmp_path / "a"), "-o", pack]) == 0
    capsys.readouterr()
    assert main([*args, str(tmp_path / "b"), "--have", pack, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 runs are missing" in said
    assert "1 from " in said
    assert " is taken as packed" in said
    assert main([*args, str(tmp_path / "b"), "--have", pack]) == 0
    assert "the runs are in " in capsys.readouterr().out
    (trained,) = (tmp_path / "b").rglob("seed-*")
    assert trained.name.startswith("seed-7-")
    assert main(["pack", str(tmp_path / "b"), pack, "-o", pack]) == 0
    assert "2 runs in" in capsys.readouterr().out
    assert main([*args, str(tmp_path / "c"), "--have", pack]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "all 2 runs have ended; 2 from " in said
    assert not (tmp_path / "c").exists()


def test_numbers_of_a_plan_may_be_written_as_floats(followed, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(PLAN.replace("steps = 64", "steps = 6.4e1").replace("[3, 7]", "2.0"))
    main(["run", str(path)])
    ((jobs, *_),) = followed
    assert [(job.steps, job.seed) for job in jobs] == [(64, 0), (64, 1)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("steps = 64", "steps = 64.5", "steps=64.5 must be a whole number"),
        ("epochs = 1", "anneal = 'no'", "anneal='no' must be true or false"),
        ("[3, 7]", "[3, 9223372036854775808]", "seeds must be a count or a list of seeds"),
        ("[3, 7]", "true", "seeds must be a count or a list of seeds"),
        ("epochs = 1", "task_args = { a = 1979-05-27 }", "task_args has a="),
    ],
)
def test_a_plan_is_checked_whole(old, new, message, tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(PLAN.replace(old, new))
    assert main(["run", str(path), "--out", str(tmp_path / "never")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "never").exists()


def test_settings_that_differ_are_rows_of_the_final_table(in_this_process, tmp_path, capsys):
    path, out = tmp_path / "mine.toml", str(tmp_path / "runs")
    path.write_text(PLAN + PLAN[PLAN.index("[[runs]]") :].replace("{ ", "{ lr = 1e-3, "))
    assert main(["run", str(path), "--out", out]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "CartPole" in line]
    clip, other = (" ".join(row[1:]) for row in rows[-2:])
    assert clip.startswith("clip 2 2 - ")
    assert other.startswith("clip, lr 0.001 2 2 - ")
    assert main(["runs", out]) == 0
    assert capsys.readouterr().out.count("lr 0.001") == 2


def test_a_plan_runs_and_is_not_repeated(in_this_process, tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(PLAN)
    args = ["run", str(path), "--out", str(tmp_path / "runs"), "--workers", "1"]
    assert main(args) == 0
    assert "2 of 2 runs are missing" in capsys.readouterr().out
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("*") if p.is_file()}
    assert main(args) == 0
    assert "all 2 runs have ended" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in times} == times
