"""`klip report` and `klip pack`: options reach the functions, and what was written is said."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from klip.cli import main
from klip.pages import making
from tests.studies.folders import FORMS, make_study, small
from tests.studies.token_folders import make_experiment


@pytest.mark.parametrize(
    ("args", "given"),
    [
        ([], (Path("runs"), Path("report.html"), None, False, False, 10.0)),
        (["--watch"], (Path("runs"), Path("report.html"), None, False, True, 10.0)),
        (
            ["there", "-o", "a.html", "--figures", "b", "--page-only", "--watch", "--every", "3"],
            (Path("there"), Path("a.html"), Path("b"), True, True, 3.0),
        ),
    ],
    ids=["none", "one", "all"],
)
def test_options_reach_the_report(args, given, monkeypatch, capsys):
    calls = []

    def report(*args):
        *options, say = args
        calls.append(tuple(options))
        say("a line")
        return [Path("a.html"), Path("b/x.csv"), Path("b/y.pdf"), Path("b/z.csv")]

    monkeypatch.setattr(making, "report", report)
    assert main(["report", *args]) == 0
    assert calls == [given]
    assert capsys.readouterr().out.splitlines() == [
        "a line", "wrote a.html", "wrote b/*.csv: x, z", "wrote b/*.pdf: y",
    ]  # fmt: skip


def test_options_reach_the_pack(monkeypatch, capsys):
    packed = SimpleNamespace(files=[Path("b/runs.json")], runs=12, size=3_456_789)
    monkeypatch.setattr(making, "pack", lambda *args: calls.append(args) or packed)
    calls = []
    assert main(["pack"]) == 0
    assert main(["pack", "there", "-o", "b"]) == 0
    assert main(["pack", "here", "there", "-o", "b", "--ended"]) == 0
    here, there, to = Path("here"), Path("there"), Path("b")
    assert calls == [
        ((Path("runs"),), Path("packed"), False),
        ((there,), to, False),
        ((here, there), to, True),
    ]
    assert capsys.readouterr().out.splitlines()[-2:] == ["wrote b/runs.json", "12 runs in 3.5 MB"]


def test_a_page_from_runs_and_from_their_pack(tmp_path, capsys):
    make_study(tmp_path / "runs", shapes=FORMS[:2], seeds=1, **small())
    page = tmp_path / "out" / "report.html"
    assert main(["report", str(tmp_path / "runs"), "-o", str(page), "--page-only"]) == 0
    assert capsys.readouterr().out == f"wrote {page}\n"
    assert not page.with_suffix("").exists()
    assert main(["pack", str(tmp_path / "runs"), "-o", str(tmp_path / "packed")]) == 0
    assert "2 runs in" in capsys.readouterr().out
    before = page.read_bytes()
    assert main(["report", str(tmp_path / "packed"), "-o", str(page), "--page-only"]) == 0
    assert page.read_bytes() == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["report", "{}/nothing"], "there is no folder"),
        (["report", "{}", "-o", "{}/report.pdf"], "must end in .html"),
        (["report", "{}", "-o", "/proc/report.html"], "cannot write"),
        (["report", "{}", "--watch", "--every", "0"], "more than 0"),
        (["pack", "{}", "-o", "{}/p"], "there are no runs"),
    ],
)
def test_mistakes_are_one_line(args, message, tmp_path, capsys):
    assert main([arg.replace("{}", str(tmp_path)) for arg in args]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_token_experiment_is_known_by_its_configs(tmp_path, capsys):
    trained = make_experiment(tmp_path / "runs")
    page, packed = tmp_path / "page.html", tmp_path / "packed"
    assert main(["pack", str(trained), "-o", str(packed)]) == 0
    assert main(["report", str(packed), "-o", str(page)]) == 0
    said = capsys.readouterr().out
    assert "10 runs in" in said
    for kind in ("pdf", "svg", "png", "csv"):
        assert f"*.{kind}: " in said
        assert list(page.with_suffix("").glob(f"*.{kind}"))
    assert "*.csv: arms" in said
    assert "position-accuracy" in said
    assert "Which tokens" in page.read_text()
