"""What W&B is given, read back with its own messages."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from klip.errors import KlipError
from klip.runs import config_id
from klip.runs.sinks import sync
from tests.runs.synced import (
    config_of,
    expected,
    row,
    rows_of,
    train,
    training,
)

WANDB = """
import json, os, sys
from pathlib import Path
from klip.runs.sinks import sync
before = dict(os.environ)
done = sync(Path(sys.argv[1]), "wandb")
again = sync(Path(sys.argv[1]), "wandb")
assert dict(os.environ) == before
assert [(d.outcome, d.new, d.output) for d in again] == [("unchanged", 0, d.output) for d in done]
print(json.dumps([[d.outcome, d.rows, d.new, str(d.output), d.notes] for d in done]))
"""


def wandb_sync(runs):
    """In a process of its own, which must end soon and leave none behind."""
    env = os.environ | {"WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9"}
    env["KLIP_TEST"] = str(runs)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WANDB, str(runs)],
        capture_output=True, text=True, timeout=300, env=env, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def history_of(folder):
    """tag -> [(step, value)] and the other records of W&B's file, by its own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    from klip.runs.sink_wandb import records_in

    (file,) = Path(folder).glob("*.wandb")
    found, others = {}, {}
    for data in records_in(file):
        record = Record.FromString(data)
        kind = record.WhichOneof("record_type")
        others.setdefault(kind, []).append(getattr(record, kind))
        if kind == "history":
            for tag, value in items(record.history.item):
                if not tag.startswith("_"):
                    found.setdefault(tag, []).append((record.history.step.num, value))
    return found, others


def items(found):
    return [("/".join(i.nested_key) or i.key, json.loads(i.value_json)) for i in found]


def left_running(mark):
    """Processes that carry a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "comm").read_text().strip())
        except OSError:  # another user's, or gone
            continue
    return found


class TestWandb:
    """Offline: no account, no network, nothing left running."""

    @pytest.fixture(autouse=True)
    def _extra(self):
        pytest.importorskip("wandb")

    def test_a_run_is_one_offline_folder_with_all_rows(self, tmp_path):
        """Written once, cut back, and gone on with."""
        runs = tmp_path / "runs"
        path = train(runs, 3)
        with training(runs, 5):
            ((outcome, rows, new, output, notes),) = wandb_sync(runs)
            assert (outcome, rows, new, notes) == ("added", 5, 5, [])
            found, others = history_of(output)
            assert found == expected(rows_of(path), float)
        self.is_described(others)
        train(runs, 4, lift=1.0)
        ((outcome, rows, _, output, notes),) = wandb_sync(runs)
        assert (outcome, rows) == ("written anew", 4)
        assert "cut back" in notes[0]
        assert history_of(output)[0] == expected(rows_of(path), float)
        train(runs, 8, "done")
        ((outcome, rows, new, output, _),) = wandb_sync(runs)
        assert (outcome, rows, new) == ("added", 8, 4)
        found, others = history_of(output)
        assert found == expected(rows_of(path), float)
        summary = {
            key: value for record in others["summary"] for key, value in items(record.update)
        }
        assert summary["status"] == "done"
        assert summary["final_return"] == row(8)["return_mean"]
        assert [p.name for p in (tmp_path / "wandb").iterdir()] == [Path(output).name]
        assert left_running(f"KLIP_TEST={runs}") == []
        self.lost_rows_are_noticed(output)

    def is_described(self, others):
        (run,) = others["run"]
        assert (run.run_id, run.project) == (config_id(config_of()), "klip")
        assert run.display_name == "clip(eps=0.2) seed 0"
        assert run.run_group == "Hopper-v4 clip(eps=0.2)"
        assert list(run.tags) == ["Hopper-v4", "clip(eps=0.2)"]
        config = dict(items(run.config.update))
        assert config["hidden"] == [64, 64]
        assert "numpy" in config["versions"]

    def lost_rows_are_noticed(self, output):
        """W&B says nothing when the disk is full."""
        from klip.runs.sink_wandb import rows_in

        (file,) = Path(output).glob("*.wandb")
        assert rows_in(file) == 8
        data = file.read_bytes()
        for size in (0, 5, 7, 100, len(data) // 2, len(data) - 1):
            file.write_bytes(data[:size])
            assert rows_in(file) == -1
        assert rows_in(file.with_name("none")) == -1


class Fake:
    """W&B online as far as it is used: it keeps what runs were sent, by their ids."""

    Error = RuntimeError
    Settings = SimpleNamespace
    run = None

    def __init__(self):
        self.runs = {}

    def init(self, **given):
        assert given["mode"] == "online"
        assert given["resume"] == "allow"
        history = self.runs.setdefault(given["id"], [])
        return SimpleNamespace(
            resumed=bool(history),
            starting_step=history[-1][0] + 1 if history else 0,
            log=lambda values, step: history.append((step, values)),
            summary={},
            finish=lambda exit_code: None,
        )

    def teardown(self):
        pass


class TestOnline:
    """Only when asked for; a row is sent once."""

    @pytest.fixture
    def fake(self, monkeypatch):
        fake = Fake()
        monkeypatch.setitem(sys.modules, "wandb", fake)
        return fake

    def steps(self, fake):
        return [step // 64 for step, _ in fake.runs[config_id(config_of())]]

    def test_a_second_sync_goes_on(self, tmp_path, fake):
        for upto, new in ((3, 3), (5, 2), (5, 0)):
            train(tmp_path / "runs", upto)
            (done,) = sync(tmp_path / "runs", "wandb", online=True)
            assert (done.new, done.rows) == (new, upto)
        assert self.steps(fake) == [1, 2, 3, 4, 5]

    def test_a_lost_state_doubles_nothing(self, tmp_path, fake):
        train(tmp_path / "runs", 3)
        sync(tmp_path / "runs", "wandb", online=True)
        shutil.rmtree(tmp_path / "wandb")
        train(tmp_path / "runs", 5)
        sync(tmp_path / "runs", "wandb", online=True)
        assert self.steps(fake) == [1, 2, 3, 4, 5]

    def test_rows_cut_back_are_waited_for_and_other_rows_refused(self, tmp_path, fake):
        train(tmp_path / "runs", 2)
        with training(tmp_path / "runs", 5):
            sync(tmp_path / "runs", "wandb", online=True)
        train(tmp_path / "runs", 3)
        (done,) = sync(tmp_path / "runs", "wandb", online=True)
        assert "W&B has 5 rows" in done.notes[0]
        train(tmp_path / "runs", 6)
        (done,) = sync(tmp_path / "runs", "wandb", online=True)
        assert done.new == 1
        assert self.steps(fake) == [1, 2, 3, 4, 5, 6]
        shutil.rmtree(tmp_path / "runs")
        train(tmp_path / "runs", 7, lift=1.0)
        (done,) = sync(tmp_path / "runs", "wandb", online=True)
        assert done.outcome == "left out"
        assert "delete run" in done.notes[0]

    def test_no_account(self, tmp_path, fake, monkeypatch):
        def refuse(**given):
            raise fake.Error("no API key\nconfigured")

        monkeypatch.setattr(fake, "init", refuse)
        train(tmp_path / "runs", 2)
        with pytest.raises(KlipError, match=r"no API key configured.*wandb login"):
            sync(tmp_path / "runs", "wandb", online=True)
