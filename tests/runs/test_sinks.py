"""What TensorBoard and W&B are given, read back with their own readers."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from klip.cli import main
from klip.errors import KlipError
from klip.ppo.diagnostics import QUANTILES
from klip.runs import RunFolder, config_id, folder_of, sinks
from klip.runs.files import DiskTrouble
from klip.runs.sinks import PERCENTILES, STATE, follow, scalars, sync


def config_of(seed=0, shape="clip(eps=0.2)"):
    config = {"task": "Hopper-v4", "shape": shape, "seed": seed, "steps": 64 * 8}
    return config | {"envs": 1, "rollout": 64, "hidden": [64, 64], "anneal": True}


def row(k, lift=0.0):
    """A row as the trainer writes it: numbers, None, lists."""
    rng = np.random.default_rng(k)
    return {
        "iteration": k,
        "step": 64 * k,
        "episodes": k % 3,
        "return_mean": None if k % 3 == 0 else 10.0 * k + 1 / 3 + lift,
        "kl": 1e-3 / k,
        "inside": 0.75,
        "kill_positive": 0.1,
        "grad_norm": 0.1 + k,
        "beta": np.sort(rng.normal(size=9)).tolist(),
        "beta_kill": None if k == 1 else np.sort(rng.normal(size=9)).tolist(),
        "epoch.kill": [0.0, 0.1, None],
        "controller.beta": 1.5,
    }


def path_of(out, seed=0, shape="clip(eps=0.2)"):
    config = config_of(seed, shape)
    return folder_of(out, config["task"], config["shape"], seed, config_id(config))


@contextmanager
def training(out, upto, seed=0, lift=0.0):
    """A run that is being trained, gone on with from its checkpoint to iteration `upto`."""
    folder = RunFolder(path_of(out, seed), config_of(seed))
    for k in range(folder.checkpoint.iteration if folder.checkpoint else 0, upto):
        folder.append(row(k + 1, lift))
    yield folder
    folder.close()


def train(out, upto, status="running", seed=0, lift=0.0):
    """The folder of a run that nobody trains, with a checkpoint at iteration `upto`."""
    with training(out, upto, seed, lift) as folder:
        folder.save(upto, {"w": np.zeros(2)}, status)
    return folder.path


def rows_of(path):
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def events_of(folder):
    """Every scalar of a folder as TensorBoard reads it: tag -> [(step, value)]."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    return found, {
        tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]
    }


def expected(rows, cast=np.float32):
    found = {}
    for each in rows:
        for tag, value in scalars(each).items():
            found.setdefault(tag, []).append((each["step"], float(cast(value))))
    return found


def files_of(folder):
    found = (path for path in folder.iterdir() if "tfevents" in path.name)
    return sorted(path for path in found if path.stat().st_size)


def test_tags():
    """Grouped; a number for each quantile and epoch; None is skipped, and is never 0."""
    assert PERCENTILES == QUANTILES
    found = scalars(row(1))
    assert found["partition/kill_positive"] == 0.1
    assert found["update/grad_norm"] == 1.1
    assert found["return/return_mean"] == 10 + 1 / 3
    assert found["beta/beta_p05"] == row(1)["beta"][1]
    assert found["epoch/kill_02"] == 0.1
    assert not any(tag in found for tag in ("epoch/kill_03", "beta/beta_kill_p50", "update/step"))
    assert "return/return_mean" not in scalars(row(3))
    assert scalars({"a": "text", "b": {"c": 1}, "d": 10**400, "lr": True}) == {"update/lr": 1.0}


class TestTensorBoard:
    """Read back with TensorBoard's own accumulator."""

    @pytest.fixture(autouse=True)
    def _extra(self):
        pytest.importorskip("tensorboard")

    def test_every_number_at_its_step(self, tmp_path):
        path = train(tmp_path / "runs", 8, "done")
        (done,) = sync(path, "tensorboard")
        assert (done.new, done.rows, done.outcome, done.status) == (8, 8, "added", "done")
        assert done.output == tmp_path / "tensorboard" / path.relative_to(tmp_path / "runs")
        reader, found = events_of(done.output)
        assert found == expected(rows_of(path))
        assert [step for step, _ in found["return/return_mean"]] == [
            64 * k for k in (1, 2, 4, 5, 7, 8)
        ]
        config, end = (
            reader.Tensors(tag)[-1].tensor_proto.string_val[0].decode()
            for tag in ("run/config", "run/end")
        )
        assert "| shape | `clip(eps=0.2)` |" in config
        assert "| status | `done` |" in end
        assert "numpy" in end

    def test_config_as_hyperparameters(self, tmp_path):
        from tensorboard.plugins.hparams import metadata

        path = train(tmp_path / "runs", 2, "diverged")
        reader, _ = events_of(sync(path, "tensorboard")[0].output)
        about = reader.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
        start = metadata.parse_session_start_info_plugin_data(about)
        assert start.hparams["shape"].string_value == "clip(eps=0.2)"
        assert start.hparams["rollout"].number_value == 64
        assert start.hparams["anneal"].bool_value is True
        about = reader.SummaryMetadata(metadata.SESSION_END_INFO_TAG).plugin_data.content
        assert metadata.parse_session_end_info_plugin_data(about).status == 2  # failure

    def test_only_new_rows_are_added_and_the_bytes_are_the_runs_alone(self, tmp_path):
        """In three parts or at once, today or tomorrow: the same file."""
        outputs = []
        for upto, new, status in ((3, 3, "running"), (6, 3, "running"), (8, 2, "done")):
            path = train(tmp_path / "runs", upto, status)
            (done,) = sync(tmp_path / "runs", "tensorboard")
            assert (done.new, done.rows, done.outcome) == (new, upto, "added")
            outputs.append(files_of(done.output))
            (again,) = sync(tmp_path / "runs", "tensorboard")
            assert (again.new, again.outcome) == (0, "unchanged")
            assert again.notes == ()
        assert outputs[0] == outputs[1] == outputs[2]
        _, found = events_of(done.output)
        assert found == expected(rows_of(path))
        (once,) = sync(path, "tensorboard", tmp_path / "elsewhere")
        (a,), (b,) = files_of(done.output), files_of(once.output)
        assert a.read_bytes() == b.read_bytes()

    def test_rows_that_a_resume_cut_back_are_not_doubled(self, tmp_path):
        path = train(tmp_path / "runs", 3)
        with training(tmp_path / "runs", 6):  # three rows after the checkpoint
            (first,) = sync(path, "tensorboard")
        assert (first.rows, first.status) == (6, "running")
        train(tmp_path / "runs", 4, lift=1.0)  # cut back to 3, then another 4th row
        (second,) = sync(path, "tensorboard")
        assert (second.outcome, second.rows) == ("written anew", 4)
        assert "cut back" in second.notes[0]
        assert len(files_of(second.output)) == 1
        assert files_of(second.output)[0].name.endswith("0000000002.klip")
        assert events_of(second.output)[1] == expected(rows_of(path))

    def test_a_watching_tensorboard_forgets_what_was_cut_back(self, tmp_path):
        path = train(tmp_path / "runs", 3)
        with training(tmp_path / "runs", 6):
            (done,) = sync(path, "tensorboard")
        reader, _ = events_of(done.output)
        train(tmp_path / "runs", 4, lift=1.0)
        sync(path, "tensorboard")
        reader.Reload()
        found = [(e.step, e.value) for e in reader.Scalars("kl/kl")]
        assert found == expected(rows_of(path))["kl/kl"]

    def test_going_on_after_it_had_ended(self, tmp_path):
        train(tmp_path / "runs", 3, "failed")
        sync(tmp_path / "runs", "tensorboard")
        path = train(tmp_path / "runs", 5, "done")
        (done,) = sync(tmp_path / "runs", "tensorboard")
        assert "it went on after it was failed" in done.notes[0]
        assert events_of(done.output)[1] == expected(rows_of(path))

    @pytest.mark.parametrize(
        "damage", [b"", b"{", b"[]", b"{}", b"\xff", b'{"format": 1, "rows": "3"}']
    )
    def test_a_damaged_state_means_a_rewrite_and_is_said(self, tmp_path, damage):
        path = train(tmp_path / "runs", 3)
        (done,) = sync(path, "tensorboard")
        (done.output / STATE).write_bytes(damage)
        (done,) = sync(path, "tensorboard")
        assert done.outcome == "written anew"
        assert "damaged" in done.notes[0]
        assert len(files_of(done.output)) == 1
        assert events_of(done.output)[1] == expected(rows_of(path))

    def test_an_event_file_that_is_not_as_it_was_left(self, tmp_path):
        path = train(tmp_path / "runs", 3)
        (done,) = sync(path, "tensorboard")
        with files_of(done.output)[0].open("ab") as file:
            file.write(b"half a record")
        (done,) = sync(path, "tensorboard")
        assert "not as it was left" in done.notes[0]
        files_of(done.output)[0].unlink()
        (done,) = sync(path, "tensorboard")
        assert "is gone" in done.notes[0]
        assert events_of(done.output)[1] == expected(rows_of(path))

    def test_files_of_others_are_left_alone(self, tmp_path):
        path = train(tmp_path / "runs", 3)
        (done,) = sync(path, "tensorboard")
        other = done.output / "events.out.tfevents.1700000000.host.1.0"
        other.write_bytes(b"theirs")
        (done.output / STATE).unlink()
        sync(path, "tensorboard")
        assert other.exists()
        assert len(files_of(done.output)) == 2

    def test_damaged_runs_are_said_and_their_neighbours_written(self, tmp_path):
        good, hurt, gone, empty = (train(tmp_path / "runs", 3, seed=s) for s in range(4))
        with (hurt / "metrics.jsonl").open("r+b") as file:
            file.write(b"x")
        for name in ("checkpoint.safetensors", "config.json"):
            (gone / name).write_bytes(b"nothing")
        shutil.rmtree(empty)
        RunFolder(empty, config_of(3)).close()
        done = {each.run: each for each in sync(tmp_path / "runs", "tensorboard")}
        assert done[good].outcome == "added"
        assert (done[hurt].outcome, done[hurt].rows) == ("added", 3)
        assert "read from the checkpoint" in done[hurt].notes[0]
        assert done[gone].outcome == "cannot be read"
        assert done[empty].outcome == "no rows"
        assert done[empty].output is None

    def test_a_copy_of_a_run_is_left_out(self, tmp_path):
        path = train(tmp_path / "runs", 3)
        shutil.copytree(path, tmp_path / "runs" / "copy" / path.name)
        first, second = sync(tmp_path / "runs", "tensorboard")
        assert {first.outcome, second.outcome} == {"added", "left out"}

    def test_a_run_that_was_moved_is_synced_beside_it(self, tmp_path):
        path = train(tmp_path / "runs", 3)
        moved = tmp_path / "moved" / path.name
        shutil.copytree(path, moved)
        (done,) = sync(moved, "tensorboard")
        assert (tmp_path / "moved" / "tensorboard") in done.output.parents

    def test_a_row_without_a_step(self, tmp_path):
        folder = RunFolder(path_of(tmp_path), config_of())
        folder.append({"iteration": 1, "step": 0.5, "return_mean": None})
        folder.save(1, {"w": np.zeros(2)})
        folder.close()
        (done,) = sync(tmp_path, "tensorboard", tmp_path / "out")
        assert done.outcome == "cannot be read"
        assert "row 1" in done.notes[0]

    def test_neither_tensorflow_nor_torch_nor_jax_is_loaded(self, tmp_path):
        train(tmp_path / "runs", 2)
        code = (
            "import sys\nfrom pathlib import Path\nfrom klip.runs.sinks import sync\n"
            f"sync(Path({str(tmp_path / 'runs')!r}), 'tensorboard')\n"
            "assert not {'tensorflow', 'torch', 'jax', 'wandb'} & sys.modules.keys()\n"
        )
        subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=300)

    def test_a_read_only_run(self, tmp_path, monkeypatch):
        path = train(tmp_path / "runs", 3, "done")
        before = {p: p.read_bytes() for p in path.iterdir()}
        for each in (path, *path.iterdir()):
            each.chmod(each.stat().st_mode & ~0o222)
        (done,) = sync(path, "tensorboard", tmp_path / "out")
        assert done.outcome == "added"
        assert {p: p.read_bytes() for p in path.iterdir()} == before

    def test_a_target_that_cannot_be_written(self, tmp_path):
        path = train(tmp_path / "runs", 3)
        (tmp_path / "file").write_text("")
        with pytest.raises(DiskTrouble, match="cannot write"):
            sync(path, "tensorboard", tmp_path / "file")

    def test_a_full_disk_leaves_what_was_there(self, tmp_path, monkeypatch):
        path = train(tmp_path / "runs", 3)
        (done,) = sync(path, "tensorboard")
        (file,) = files_of(done.output)
        before = file.read_bytes()
        train(tmp_path / "runs", 5)
        real = os.write

        def full(handle, data):
            real(handle, bytes(data)[:10])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("klip.runs.sink_tensorboard.os.write", full)
        with pytest.raises(DiskTrouble, match=r"No space left.*the disk is full"):
            sync(path, "tensorboard")
        monkeypatch.undo()
        assert file.read_bytes() == before
        (done,) = sync(path, "tensorboard")
        assert (done.new, done.outcome) == (2, "added")
        assert events_of(done.output)[1] == expected(rows_of(path))

    def test_following(self, tmp_path):
        """Rows as they come, runs that appear later, and an end when nobody trains."""
        out = tmp_path / "runs"
        out.mkdir()

        def trains():
            with ExitStack() as held:  # until the end: there is no moment at which nobody trains
                for seed in (0, 1):
                    folder = RunFolder(path_of(out, seed), config_of(seed))
                    held.enter_context(closing(folder))
                    for k in range(1, 5):
                        folder.append(row(k))
                        time.sleep(0.05)
                    folder.save(4, {"w": np.zeros(2)}, "done")

        thread = threading.Thread(target=trains)
        thread.start()
        steps = list(follow(out, "tensorboard", every=0.04))
        thread.join()
        for seed in (0, 1):
            mine = [each for each in steps if each.run == path_of(out, seed)]
            assert sum(each.new for each in mine) == mine[-1].rows == 4
            assert mine[-1].status == "done"
            assert len([each for each in mine if each.new]) > 1
            assert events_of(mine[-1].output)[1] == expected(rows_of(mine[-1].run))

    def test_following_ends_with_an_interrupt_after_the_last_rows(self, tmp_path, monkeypatch):
        folder = RunFolder(path_of(tmp_path / "runs"), config_of())
        folder.append(row(1))

        def interrupted(_):
            folder.append(row(2))
            raise KeyboardInterrupt

        monkeypatch.setattr(sinks.time, "sleep", interrupted)
        steps = list(follow(tmp_path / "runs", "tensorboard"))
        folder.close()
        assert [each.rows for each in steps] == [1, 2]

    def test_the_command(self, tmp_path, capsys):
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


class TestMistakes:
    """One line each, exit code 2."""

    @pytest.mark.parametrize(
        ("args", "said"),
        [
            (["{runs}", "--to", "neptune"], "choose tensorboard or wandb"),
            (["{runs}", "--to", "tensorboard", "--online"], "--online is for --to wandb"),
            (["{runs}/nowhere", "--to", "tensorboard"], "there is no folder"),
            (["{empty}", "--to", "tensorboard"], "there are no runs"),
        ],
    )
    def test_lines(self, tmp_path, capsys, args, said):
        pytest.importorskip("tensorboard")
        train(tmp_path / "runs", 1)
        (tmp_path / "empty").mkdir()
        names = {"runs": tmp_path / "runs", "empty": tmp_path / "empty"}
        assert main(["sync", *(arg.format(**names) for arg in args)]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1

    @pytest.mark.parametrize("extra", ["tensorboard", "wandb"])
    def test_an_extra_that_is_missing(self, tmp_path, monkeypatch, extra):
        monkeypatch.delitem(sys.modules, "klip.runs.sink_tensorboard", raising=False)
        monkeypatch.delattr("klip.runs.sink_tensorboard", raising=False)
        for name in [name for name in sys.modules if name.split(".")[0] == extra]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, extra, None)
        with pytest.raises(KlipError, match=rf'pip install "klip\[{extra}\]"'):
            sync(tmp_path, extra)


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
