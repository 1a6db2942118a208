"""What TensorBoard is given, read back with its own reader."""

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing

import numpy as np
import pytest

from klip.runs import RunFolder, sink_tensorboard, sinks
from klip.runs.files import DiskTrouble
from klip.runs.sinks import STATE, followed, sync
from tests.runs.synced import (
    config_of,
    events_of,
    expected,
    files_of,
    path_of,
    row,
    rows_of,
    train,
    training,
)


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

    def test_the_bytes_do_not_depend_on_the_process(self, tmp_path):
        """Protobuf's maps come in an order of their own in each."""
        path = train(tmp_path / "runs", 2, "done")
        code = "import sys, klip; klip.sync(sys.argv[1], 'tensorboard', sys.argv[2])"
        for name in ("a", "b", "c"):
            subprocess.run([sys.executable, "-c", code, path, tmp_path / name], check=True)
        found = {p.read_bytes() for p in tmp_path.rglob("events.out.*")}
        assert len(found) == 1

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
        "damage",
        [
            b"",
            b"{",
            b"[]",
            b"{}",
            b"\xff",
            b'{"format": 1, "rows": "3"}',
            b"[" * 9999,
            b" " * 20_000,
        ],
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
        assert done.outcome == "no rows"
        assert "line 1" in done.notes[0]

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
        steps = list(followed(out, "tensorboard", every=0.04))
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
        steps = list(followed(tmp_path / "runs", "tensorboard"))
        folder.close()
        assert [each.rows for each in steps] == [1, 2]


def test_two_commands_at_once_do_not_double_rows(tmp_path, monkeypatch):
    path = train(tmp_path / "runs", 5)
    encode = sink_tensorboard._encode

    def slowly(events):
        time.sleep(0.3)
        return encode(events)

    monkeypatch.setattr(sink_tensorboard, "_encode", slowly)
    both = [
        threading.Thread(target=sync, args=(path, "tensorboard", tmp_path / "out"))
        for _ in range(2)
    ]
    for each in both:
        each.start()
    for each in both:
        each.join()
    (folder,) = (tmp_path / "out").glob("*/*/*")
    assert len(events_of(folder)[1]["kl/kl"]) == 5
