"""`klip sync`: options reach the sinks, a line a run, the way on, exit codes."""

import json
from pathlib import Path

import pytest

from klip.cli import main
from klip.runs import sinks
from klip.runs.sinks import Synced
from tests.runs.synced import train

RUN = Path("runs/Hopper-v4/clip/seed-0-1")
WRITTEN = Path("tensorboard/Hopper-v4/clip/seed-0-1")


def synced(outcome="added", new=3, rows=3, output=WRITTEN, notes=(), run=RUN, status="done"):
    return Synced(run, "1", status, rows, new, outcome, output, notes)


@pytest.fixture
def steps(monkeypatch):
    """What the sinks say; the calls that they were given are kept under the name of each."""
    calls, steps = {}, []
    for name in ("sync", "followed"):

        def answer(*args, name=name, **options):
            calls[name] = (*args, options)
            return iter(steps)

        monkeypatch.setattr(sinks, name, answer)
    steps_and_calls = (steps, calls)
    return steps_and_calls


def test_options_reach_the_sinks(steps):
    _, calls = steps
    assert main(["sync", "runs", "--to", "tensorboard"]) == 0
    assert calls == {"sync": (Path("runs"), "tensorboard", None, {"online": False})}
    calls.clear()
    options = ["--to-dir", "there", "--follow", "--online"]
    assert main(["sync", "runs", "--to", "wandb", *options]) == 0
    assert calls == {"followed": (Path("runs"), "wandb", Path("there"), {"online": True})}


@pytest.mark.parametrize(
    ("each", "line"),
    [
        (synced(), f"{RUN}: 3 rows added, 3 in all (done)"),
        (synced("unchanged", 0, 5), f"{RUN}: unchanged, 5 rows (done)"),
        (synced("written anew", 5, 5), f"{RUN}: written anew, 5 rows (done)"),
        (synced("no rows", 0, 0, None, status="running"), f"{RUN}: no rows (running)"),
        (synced("left out", 0, 0, None, ("because",), status=""), f"{RUN}: left out\n  because"),
    ],
    ids=lambda x: x.outcome if isinstance(x, Synced) else "",
)
def test_a_line_says_what_became_of_a_run(steps, each, line, capsys):
    steps[0].append(each)
    assert main(["sync", "runs", "--to", "tensorboard"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(line + "\n")
    assert ("to look at them: tensorboard --logdir 'tensorboard'" in out) == bool(each.output)


def test_a_run_that_cannot_be_read_is_exit_code_1(steps, capsys):
    steps[0].extend([synced(), synced("cannot be read", 0, 0, None, run=Path("runs/other"))])
    assert main(["sync", "runs", "--to", "tensorboard"]) == 1
    assert "runs/other: cannot be read" in capsys.readouterr().out


def test_rows_of_a_run_that_goes_on_add_up(steps, capsys):
    steps[0].extend([synced(new=3, rows=3), synced(new=2, rows=5, status="running")])
    assert main(["sync", "runs", "--to", "tensorboard", "--follow", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["new"], run["rows"], run["status"]) == (5, 5, "running")
    assert (run["run"], run["output"]) == (str(RUN), str(WRITTEN))


def test_what_was_kept_for_wandb_can_be_sent(steps, capsys):
    steps[0].append(synced(output=Path("wandb/offline-run-1")))
    assert main(["sync", "runs", "--to", "wandb"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "nothing was sent; to send them: wandb sync 'wandb'/offline-run-*"


def test_tensorboard(tmp_path, capsys):
    pytest.importorskip("tensorboard")
    path = train(tmp_path / "runs", 3, "done")
    assert main(["sync", str(tmp_path / "runs"), "--to", "tensorboard"]) == 0
    out = capsys.readouterr().out
    assert f"{path}: 3 rows added, 3 in all (done)" in out
    assert f"tensorboard --logdir '{tmp_path / 'tensorboard'}'" in out
    assert main(["sync", str(path), "--to", "tensorboard", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["outcome"], run["rows"], run["new"]) == ("unchanged", 3, 0)
    (path / "checkpoint.safetensors").write_bytes(b"")
    assert main(["sync", str(path), "--to", "tensorboard"]) == 1
    assert "cannot be used" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["{runs}", "--to", "neptune"], "choose tensorboard or wandb"),
        (["{runs}", "--to", "tensorboard", "--online"], "--online is for --to wandb"),
        (["{runs}/nowhere", "--to", "tensorboard"], "there is no folder"),
        (["{empty}", "--to", "tensorboard"], "there are no runs"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, args, said):
    pytest.importorskip("tensorboard")
    train(tmp_path / "runs", 1)
    (tmp_path / "empty").mkdir()
    names = {"runs": tmp_path / "runs", "empty": tmp_path / "empty"}
    assert main(["sync", *(arg.format(**names) for arg in args)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
