"""A prepared folder with links in it: output does not follow them, and stays in its folder."""

import shutil

import pytest

import klip
from klip.cli import main
from klip.errors import KlipError
from tests.policies.runs import write_run
from tests.runs.synced import train
from tests.studies.token_folders import make_token_run, token_config


@pytest.fixture
def victim(tmp_path):
    """A folder elsewhere, with a file in it; nothing in there may change."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "precious").write_text("precious")
    yield folder
    assert [path.name for path in folder.rglob("*")] == ["precious"]
    assert (folder / "precious").read_text() == "precious"


@pytest.fixture
def prepared(tmp_path):
    folder = tmp_path / "prepared"
    folder.mkdir()
    return folder


def refuses(capsys, words):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "link" in err
    return err


@pytest.mark.parametrize("to", ["tensorboard", "wandb"])
def test_a_sinks_folder(to, prepared, victim, capsys):
    """The folder beside the runs, one that was named, and each folder below."""
    pytest.importorskip(to)
    run = train(prepared / "runs", 3, "done")
    words = ["sync", str(run), "--to", to]
    link = prepared / to
    link.symlink_to(victim)
    assert f"{link} is a link to {victim}" in refuses(capsys, words)
    if to == "tensorboard":
        link.unlink()
        (link / "Hopper-v4").mkdir(parents=True)
        (link / "Hopper-v4" / "clip_eps=0.2").symlink_to(victim)
        assert "clip_eps=0.2 is a link" in refuses(capsys, words)
    named = prepared / "named"
    named.symlink_to(victim)
    refuses(capsys, [*words, "--to-dir", str(named)])


def test_event_files(prepared, victim):
    """Appended to, or emptied: a link in their place is neither."""
    pytest.importorskip("tensorboard")
    runs = prepared / "runs"
    (done,) = klip.sync(train(runs, 3), "tensorboard")
    (events,) = done.output.glob("events.*")
    kept = victim.parent / "kept"
    shutil.copy(events, kept)  # as long as the event file: it would be appended to
    content = kept.read_bytes()
    events.unlink()
    events.symlink_to(kept)
    (done.output / "events.out.tfevents.0000000007.klip").symlink_to(victim / "precious")
    (again,) = klip.sync(train(runs, 5), "tensorboard")
    assert (again.outcome, again.rows) == ("written anew", 5)
    assert kept.read_bytes() == content
    assert [path.name for path in done.output.glob("events.*")] == [
        "events.out.tfevents.0000000008.klip"
    ]
    state = done.output / ".sync.json"
    state.unlink()
    state.symlink_to(victim / "precious")
    klip.sync(train(runs, 6), "tensorboard")
    assert not state.is_symlink()


def test_a_run_that_is_a_link_is_written_beside_what_was_named(prepared, victim):
    """Its output does not go where the link leads."""
    pytest.importorskip("tensorboard")
    true = train(victim.parent / "others" / "runs", 3, "done")
    link = prepared / "runs" / true.relative_to(victim.parent / "others" / "runs")
    link.parent.mkdir(parents=True)
    link.symlink_to(true)
    (done,) = klip.sync(prepared / "runs", "tensorboard")
    assert done.output.is_relative_to(prepared / "tensorboard")
    assert [path.name for path in (victim.parent / "others").iterdir()] == ["runs"]


def test_an_offline_run_of_wandb(prepared, victim):
    pytest.importorskip("wandb")
    path = train(prepared / "runs", 2, "done")
    id = path.name.rpartition("-")[2]
    (prepared / "wandb").mkdir()
    (prepared / "wandb" / f"offline-run-20200101_000000-{id}").symlink_to(victim)
    (done,) = klip.sync(path, "wandb")
    assert done.rows == 2
    assert [p.resolve().parent for p in (prepared / "wandb").iterdir()] == [prepared / "wandb"]


def test_tables_and_figures(prepared, victim, monkeypatch, capsys):
    """The folder beside the page, a figure's file, and a group whose name is a path."""
    monkeypatch.chdir(prepared)
    config = token_config("../../x/y", "plain clip", "clip(eps=0.1)")
    make_token_run(prepared / "runs", config)
    (prepared / "report").symlink_to(victim)
    assert "report is a link" in refuses(capsys, ["report", "runs"])
    (prepared / "report").unlink()
    (prepared / "report").mkdir()
    (prepared / "report" / "arms.csv").symlink_to(victim / "precious")
    written = klip.report("runs")
    assert all(path.parent.resolve() == prepared / "report" for path in written[1:])
    assert len(written) > 3
    assert not (prepared / "report" / "arms.csv").is_symlink()
    picture = prepared / "clip.png"
    picture.symlink_to(victim / "precious")
    assert main(["show", "clip", "-o", str(picture)]) == 0
    assert not picture.is_symlink()
    (prepared / "figures").symlink_to(victim)
    with pytest.raises(KlipError, match="figures is a link"):
        klip.figures()


def test_packs_exports_and_films(prepared, victim, capsys):
    run = write_run(prepared / "runs", "CartPole-v1", saves=2)
    link = prepared / "out"
    link.symlink_to(victim)
    with pytest.raises(KlipError, match="is not empty"):
        klip.pack(prepared / "runs", link)
    with pytest.raises(KlipError, match="is not a folder"):
        klip.export(run, link, episodes=0, onnx=False)
    empty = prepared / "empty"
    (victim.parent / "void").mkdir()
    empty.symlink_to(victim.parent / "void")
    with pytest.raises(KlipError, match="empty is a link"):
        klip.pack(prepared / "runs", empty)
    assert list((victim.parent / "void").iterdir()) == []
    pytest.importorskip("imageio_ffmpeg")
    (prepared / ".film.part.mp4").symlink_to(victim / "precious")
    film = klip.video(run, prepared / "film.mp4", seconds=0.2)
    assert film.path.stat().st_size > 0
