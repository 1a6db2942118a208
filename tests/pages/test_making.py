"""`klip.report` and `klip.pack`: from a folder of runs to files, and the same from a pack."""

import time

import pytest

import klip
from klip.errors import KlipError
from klip.pages import making
from tests.studies.folders import FORMS, config, make_run, make_study, small


@pytest.fixture(autouse=True)
def _one_process(monkeypatch):
    """Folders this small are read here."""
    monkeypatch.setattr(making, "_processes", lambda: 1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("runs"), shapes=FORMS[:2], seeds=1, **small())


def test_a_report_is_a_page_with_tables_and_figures(runs, tmp_path):
    page, figures = tmp_path / "new" / "folder.v2.html", tmp_path / "new" / "folder.v2"
    written = klip.report(runs, page)
    assert written[0] == page
    assert page.read_text().startswith("<!doctype html>")
    assert {path.parent for path in written[1:]} == {figures}
    assert sorted(written[1:]) == sorted(figures.iterdir())
    assert {path.suffix for path in written[1:]} == {
        ".csv",
        ".json",
        ".tex",
        ".pdf",
        ".svg",
        ".png",
    }


def test_a_pack_gives_the_same_bytes(runs, tmp_path):
    """The page and the tables, from a folder with nothing but the pack in it."""
    packed = klip.pack(runs, tmp_path / "packed")
    assert packed.runs == 2
    assert sorted(packed.files) == sorted((tmp_path / "packed").iterdir())
    assert packed.size == sum(path.stat().st_size for path in packed.files)
    pages = [
        klip.report(str(source), str(tmp_path / name), page_only=True)
        for source, name in ((runs, "one.html"), (tmp_path / "packed", "two.HTM"))
    ]
    assert pages == [[tmp_path / "one.html"], [tmp_path / "two.HTM"]]
    assert pages[0][0].read_bytes() == pages[1][0].read_bytes()
    assert not (tmp_path / "one").exists()


def test_figures_go_where_they_are_asked_for(runs, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(making.writing, "write_report", lambda *args: calls.append(args[1:]) or [])
    page = tmp_path / "page.html"
    klip.report(runs, page, tmp_path / "figures")
    klip.report(runs, page)
    klip.report(runs, page, tmp_path / "figures", page_only=True)
    assert calls == [(page, tmp_path / "figures"), (page, tmp_path / "page"), (page, None)]


def test_nothing_is_written_into_the_runs(tmp_path, monkeypatch):
    """`klip report r1 -o r1.html`: the folder of the page's name is that of the runs."""
    monkeypatch.chdir(tmp_path)
    make_study(tmp_path / "r1", shapes=FORMS[:1], seeds=1, **small())
    before = sorted(tmp_path.rglob("*"))
    written = klip.report("r1", "r1.html")
    assert {path.parent.name for path in written[1:]} == {"r1-figures"}
    new = {path.relative_to(tmp_path).parts[0] for path in set(tmp_path.rglob("*")) - {*before}}
    assert new == {"r1.html", "r1-figures"}
    for taken in ("r1", "r1/CartPole-v1"):
        with pytest.raises(KlipError, match="holds runs: give a folder of its own"):
            klip.report("r1", "page.html", figures=taken)
    klip.pack("r1", "packed")
    assert klip.report("packed", "packed.html")[1].parent.name == "packed-figures"


@pytest.mark.parametrize("name", ["report.pdf", "report", "html"])
def test_a_page_must_be_called_one(runs, tmp_path, name):
    with pytest.raises(KlipError, match=rf"{name} must end in .html; figures go to a folder"):
        klip.report(runs, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_looks_need_time_between_them(runs, tmp_path):
    with pytest.raises(KlipError, match="--every 0 must be more than 0 seconds"):
        klip.report(runs, tmp_path / "page.html", watch=True, every=0)


def test_where_there_are_no_runs_there_is_nothing_to_pack(tmp_path):
    with pytest.raises(KlipError, match=r"there are no runs in .*; `klip train` makes some"):
        klip.pack(tmp_path, tmp_path / "packed")
    with pytest.raises(KlipError, match="there is no folder"):
        klip.pack(tmp_path / "nowhere", tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_ctrl_c_ends_watching(tmp_path, monkeypatch):
    """The page that is left does not load itself again."""
    make_run(tmp_path / "runs", config(**small()), 3, "running")

    def pressed(seconds):
        assert seconds == 2.5
        assert "Kept fresh" in page.read_text()
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pressed)
    page, said = tmp_path / "report.html", []
    written = klip.report(tmp_path / "runs", page, watch=True, every=2.5, say=said.append)
    assert written == [page]
    assert [line.partition(" ")[0] for line in said] == ["watching", "wrote", "stopped"]
    assert "Kept fresh" not in page.read_text()
    assert not page.with_suffix("").exists()


def test_watching_runs_that_have_ended_is_a_report(runs, tmp_path):
    page, said = tmp_path / "page.html", []
    assert klip.report(runs, page, None, True, True, every=0.01, say=said.append) == [page]
    assert said[0] == f"watching {runs}; Ctrl-C ends it"
    assert said[-1] == f"wrote {page}: 2 of 2 runs done"
    assert "Kept fresh" not in page.read_text()
