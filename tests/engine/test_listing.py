"""What lies in a folder of runs, as a table and as JSON."""

import io

import pytest
from rich.console import Console

from klip.engine.listing import list_runs, runs_table
from klip.errors import KlipError
from klip.runs import RunFolder, final_return
from klip.runs.store import METRICS, NEWEST, PREVIOUS
from tests.runs.folders import arrays, fields, go_on, make, row, where


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def table(found, folder, width=400):
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    screen.print(runs_table(found, folder))
    return screen.file.getvalue()


def test_every_status(tmp_path):
    """Done, stopped, running, diverged, failed, damaged: each with what one wants to know."""
    make(tmp_path, fields(seed=0), 10, (5, 10), "done")
    make(tmp_path, fields(seed=1), 7, (2, 5))
    live = RunFolder(where(tmp_path, fields(seed=2)), fields(seed=2))
    go_on(live, 3, (1, 2))
    make(tmp_path, fields(seed=3), 4, (2, 4), "diverged", "the loss is nan")
    make(tmp_path, fields(seed=4), 4, (2, 4), "failed", "the environment broke")
    lost = make(tmp_path, fields(seed=5), 4, (2, 4))
    for name in (NEWEST, PREVIOUS):
        flip(lost / name)
    unknown = make(tmp_path, fields(seed=6), 4, ())
    (unknown / "config.json").write_text("")
    found = list_runs(tmp_path)
    live.close()
    by_seed = {int(entry["path"].rpartition("/")[2].split("-")[1]): entry for entry in found}
    assert {seed: entry["status"] for seed, entry in by_seed.items()} == {
        0: "done", 1: "stopped", 2: "running", 3: "diverged", 4: "failed", 5: "damaged",
        6: "damaged",
    }  # fmt: skip
    assert [by_seed[seed]["iteration"] for seed in range(7)] == [10, 5, 3, 4, 4, 0, 0]
    assert [by_seed[seed]["progress"] for seed in range(7)] == [1, 0.5, 0.3, 0.4, 0.4, 0, 0]
    assert [by_seed[seed]["step"] for seed in range(3)] == [640, 320, 192]
    rows = [row(fields(), k) for k in range(1, 11)]
    assert by_seed[0]["return"] == final_return(rows)
    assert by_seed[1]["return"] == row(fields(seed=1), 4)["return_mean"]  # the last that is known
    assert by_seed[3]["reason"] == "the loss is nan"
    assert NEWEST in by_seed[5]["reason"]
    assert by_seed[6]["task"] is None
    assert "config.json" in by_seed[6]["reason"]
    shown = table(found, tmp_path)
    for text in ("7 runs in", "done", "stopped", "running", "the loss is nan", "50%", "?"):
        assert text in shown


def test_in_order_of_task_shape_and_seed(tmp_path):
    for config in (
        fields(10),
        fields(2),
        fields(1, shape="spo(eps=0.2)"),
        fields(9, task="Ant-v4"),
    ):
        make(tmp_path, config, 1, (1,))
    found = [(entry["task"], entry["shape"], entry["seed"]) for entry in list_runs(tmp_path)]
    assert found == [
        ("Ant-v4", "clip(eps=0.2)", 9),
        ("CartPole-v1", "clip(eps=0.2)", 2),
        ("CartPole-v1", "clip(eps=0.2)", 10),
        ("CartPole-v1", "spo(eps=0.2)", 1),
    ]


def test_settings_that_differ_are_named(tmp_path):
    """Two learning rates are no duplicates."""
    for k, config in enumerate((fields(0), fields(1), fields(0, lr=1e-3), fields(0, lr=1e-2))):
        make(tmp_path, config, k + 1, (k + 1,))
    found = [(entry["name"], entry["seed"]) for entry in list_runs(tmp_path)]
    names = [name for name, _ in found]
    assert len(set(found)) == 4
    assert len(set(names)) == 3
    assert any(name.endswith("lr 0.001") for name in names)
    assert "lr 0.01" in table(list_runs(tmp_path), tmp_path)


def test_reading_changes_nothing(tmp_path):
    path = make(tmp_path, fields(), 5, (2, 4))
    flip(path / NEWEST)
    flip(path / METRICS)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in path.iterdir()}
    list_runs(tmp_path)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in path.iterdir()} == before


def test_markup_in_names_is_text(tmp_path):
    """Rich would take it for a colour, or stumble over a closing tag."""
    for k, name in enumerate(("[red]x", "[/]", "[bold", "[link=file:///etc/passwd]y[/link]")):
        config = fields(seed=k, task=name, shape=f"{name}()")
        folder = RunFolder(where(tmp_path / name.replace("/", "|"), config), config)
        go_on(folder, 1)
        folder.save(1, arrays(config, 1), "failed", f"because of {name}")
        folder.close()
    found = list_runs(tmp_path)
    shown = table(found, tmp_path / "[green]here[/]")
    for entry in found:
        assert entry["task"] in shown
        assert f"because of {entry['task']}" in shown
    assert "[green]here[/]" in shown
    assert "\x1b" not in shown


def test_nothing_there(tmp_path):
    with pytest.raises(KlipError, match="there are no runs in"):
        list_runs(tmp_path)
    with pytest.raises(KlipError, match="there is no folder"):
        list_runs(tmp_path / "none")


def test_one_run(tmp_path):
    path = make(tmp_path, fields(), 4, (2, 4))
    assert [entry["path"] for entry in list_runs(path)] == [str(path)]
    assert "1 run in" in table(list_runs(path), path)
