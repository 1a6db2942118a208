"""`klip train`, `resume`, `runs` and `bench`, as one types them."""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from klip.cli import main, training
from klip.engine.advance import Keeping
from klip.engine.listing import list_runs
from klip.ppo.config import OWN, Config
from klip.ppo.train import plan
from klip.runs import final_return
from klip.runs.store import METRICS, NEWEST, PREVIOUS
from tests.engine.test_listing import flip
from tests.ppo import troubled
from tests.runs.folders import fields, make, row

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_options_reach_the_configs(followed, tmp_path):
    code = main([
        "train", "CartPole-v1", "--shape", "clip", "spo(eps=0.3)", "--seeds", "2", "--workers", "1",
        "--out", str(tmp_path), "--checkpoint-every", "9", "--accept-changes", "--start-over",
        "--lr", "0.01", "--hidden", "8", "4", "--steps", "1.024e3", "--normalise-rewards",
        "--no-anneal", "--lag", "1", "--replay", "2", "--ratio", "decoupled",
    ])  # fmt: skip
    assert code == 7
    given = {"lr": 0.01, "hidden": (8, 4), "steps": 1024, "normalise_rewards": True,
             "anneal": False, "lag": 1, "replay": 2, "ratio": "decoupled"}  # fmt: skip
    jobs = plan("CartPole-v1", ["clip", "spo(eps=0.3)"], 2, **given)
    assert followed == [(jobs, Keeping(tmp_path, 9.0, True, True), 1, None)]


def test_every_field_of_the_config_is_an_option_that_says_what_it_is(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    named = [field for field in dataclasses.fields(Config) if field.name not in OWN]
    for field in named:
        assert f"--{field.name.replace('_', '-')} " in text, field.name
    options = dataclasses.fields(training.Overrides)
    flags = {f"no_{field.name}" for field in named if isinstance(field.default, bool)}
    expected = {"preset", *flags, *(field.name for field in named)}
    assert {option.name for option in options} == expected
    assert all(option.default is None for option in options)  # the task's own, unless given


def test_resume_goes_on_with_what_has_not_ended(followed, tmp_path):
    (job,) = plan("CartPole-v1", "clip", 1, steps=640, envs=2, rollout=32, minibatch=32)
    make(tmp_path, job.stored, 4, (2, 4))
    make(tmp_path, {**job.stored, "seed": 1}, 4, (2, 4), "done")
    options = ["--workers", "1", "--checkpoint-every", "3", "--accept-changes", "--start-over"]
    assert main(["resume", str(tmp_path), *options]) == 7
    assert followed == [([job], Keeping(tmp_path.resolve(), 3.0, True, True), 1, None)]


@pytest.mark.parametrize("command", ["resume", "runs"])
def test_a_folder_without_runs_is_a_line(command, tmp_path, capsys):
    for path, message in ((tmp_path, "there are no runs in"), (tmp_path / "x", "there is no ")):
        assert main([command, str(path)]) == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1


def test_train_writes_runs(tmp_path, capsys):
    out = tmp_path / "runs"
    args = ["train", "CartPole-v1", "--shape", "clip", "spo(eps=0.3)", "--seeds", "1", "--steps",
            "1024", "--minibatch", "32", "--epochs", "2", "--out", str(out)]  # fmt: skip
    assert main(args) == 0
    text = capsys.readouterr().out
    assert "spo(eps=0.3)" in text
    assert str(out) in text
    (path,) = out.glob("CartPole-v1/spo_eps=0.3/seed-0-*")
    config = json.loads((path / "config.json").read_text())
    assert config["minibatch"] == 32
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [512, 1024]
    for key in ("return_mean", "return_iqm", "length_mean", "episodes", "zeroed", "beta", "lr",
                "zeroed_mass", "kl", "k1", "k3", "entropy", "grad_norm", "policy_grad_norm",
                "explained_variance", "value_loss", "ratio_max"):  # fmt: skip
        assert key in rows[0]
    assert len(rows[0]["beta"]) == 9
    assert json.loads((path / "status.json").read_text())["status"] == "done"
    assert main(["report", str(out), "-o", str(tmp_path / "report.html"), "--page-only"]) == 0


def test_a_run_that_diverges_is_exit_code_1(in_this_process, tmp_path, capsys):
    size = ["--rollout", "16", "--envs", "2", "--steps", "64", "--minibatch", "16", "--epochs", "1",
            "--hidden", "8"]  # fmt: skip
    out = ["--out", str(tmp_path)]
    assert main(["train", "CartPole-v1", "--seeds", "1", "--lr", "1e30", *size, *out]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "diverged: CartPole-v1 clip seed 0: the " in said
    assert f"the runs are in {tmp_path}" in said


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["CartPol-v1"], "CartPole"),
        (["CartPole-v1", "--steps", "10"], "less than one rollout"),
        (["CartPole-v1", "--minibatch", "4096"], "larger than a rollout"),
        (["CartPole-v1", "--shape", "position-aware"], "needs length"),
        (["CartPole-v1", "--shape", "clap"], "did you mean clip"),
        (["CartPole-v1", "--seeds", "0"], "nothing to train"),
        (["CartPole-v1", "--shape", "clip", "clip(eps=0.2)"], "named twice"),
        (["CartPole-v1", "--workers", "999"], "must lie between 1 and"),
        (["CartPole-v1", "--anneal", "--no-anneal"], "--anneal and --no-anneal were both given"),
        (["CartPole-v1", "--lag", "999"], "lag=999 is longer than the run of 195 iterations"),
        (["CartPole-v1", "--shape", "age-conditioned"], "there is none with lag=0 and replay=1"),
        (["Humanoid-v4", "--replay", "90000", "--steps", "1e9"], "give a smaller replay"),
        (["CartPole-v1", "--processes", "2"], "steps all its copies in one call"),
        (["Pendulum-v1", "--task-args", "colour"], "write name=value"),
        (["nosuch.py:Env-v0"], "there is no file nosuch.py"),
    ],
)
def test_mistakes_are_told_before_anything_starts(args, message, tmp_path, capsys):
    assert main(["train", *args, "--out", str(tmp_path / "never")]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("written", ["1e3x", "1.5", "1e400", "nan"])
def test_what_is_no_whole_number(written, capsys):
    with pytest.raises(SystemExit):
        main(["train", "CartPole-v1", "--steps", written])
    assert "it must be a whole number, such as 1000000 or 1e6" in capsys.readouterr().err


def test_a_failed_run_says_where_its_traceback_is(in_this_process, tmp_path, capsys):
    size = ["--rollout", "24", "--envs", "2", "--steps", "240", "--minibatch", "20", "--epochs",
            "1", "--hidden", "8", "--seeds", "2"]  # fmt: skip
    assert main(["train", troubled.task("step"), *size, "--out", str(tmp_path)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "the wheel came off" in said
    (path,) = tmp_path.rglob("traceback.txt")
    assert f"its traceback is in {path}" in said


def test_runs_is_exit_code_1_where_one_is_damaged(tmp_path, capsys):
    whole = make(tmp_path, fields(seed=0), 10, (5, 10), "done")
    lost = make(tmp_path, fields(seed=1), 4, (2, 4))
    for name in (NEWEST, PREVIOUS):
        flip(lost / name)
    assert main(["runs", str(tmp_path), "--json"]) == 1
    entries = json.loads(capsys.readouterr().out)["runs"]
    assert [(entry["seed"], entry["status"]) for entry in entries] == [(0, "done"), (1, "damaged")]
    assert main(["runs", str(lost)]) == 1
    assert main(["runs", str(whole)]) == 0


def test_damage_is_said(tmp_path, capsys):
    """The metrics are read from the checkpoint, and a line says so."""
    path = make(tmp_path, fields(), 4, (2, 4), "done")
    (path / METRICS).write_text("")
    assert main(["runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert METRICS in out
    assert "read from the checkpoint" in " ".join(out.split())
    assert list_runs(tmp_path)[0]["return"] == final_return([row(fields(), k) for k in range(1, 5)])


def hostile_folder(tmp_path):
    """A whole run below a folder whose name would clear the screen, and one that is no text."""
    for name in ("a\x1b[2J\x07\nb", os.fsdecode(b"\xff\xfe")):
        path = make(tmp_path / name, fields(), 4, (2, 4))
        flip(path / NEWEST)
    return tmp_path


def test_control_characters_in_names_of_folders(tmp_path, capsys):
    folder = hostile_folder(tmp_path / "plain")
    assert main(["runs", str(folder)]) == 0
    seen = capsys.readouterr()
    assert "\x1b" not in seen.out + seen.err
    assert "\x07" not in seen.out + seen.err
    assert seen.out.encode()
    assert main(["runs", str(folder / "a\x1b[2J\x07\nb")]) == 0
    seen = capsys.readouterr()
    assert "\x1b" not in seen.out + seen.err


def test_control_characters_as_json(tmp_path, capsys):
    folder = hostile_folder(tmp_path / "plain")
    assert main(["runs", str(folder), "--json"]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert len(json.loads(out)["runs"]) == 2


def test_the_command_passes_its_options_on(monkeypatch, capsys, tmp_path):
    seen = []

    def run(command, check):
        seen.append(command)
        return SimpleNamespace(returncode=7)

    monkeypatch.setattr(training.subprocess, "run", run)
    assert main(["bench", "--task", "Ant-v4", "CartPole-v1", "--quick", "--json"]) == 7
    assert seen[0][1:] == [
        str(BENCHMARKS / "speed.py"), "--task", "Ant-v4", "CartPole-v1", "--quick", "--json"
    ]  # fmt: skip


def test_where_processes_cannot_be_pinned_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert main(["bench"]) == 2
    assert "as only Linux can" in capsys.readouterr().err


def test_without_a_checkout_the_command_says_so(monkeypatch, capsys, tmp_path):
    (tmp_path / "klip").mkdir()
    monkeypatch.setattr(
        training,
        "__file__",
        str(shutil.copy(training.__file__, tmp_path / "klip")),
    )
    assert main(["bench"]) == 2
    assert "needs a checkout" in capsys.readouterr().err
