"""`klip league` and `klip run league`: tables, JSON, newcomers; mistakes are a line."""

import json

import pytest

from klip.cli import experiments, main
from klip.engine import run
from tests.studies import leagues


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    out = tmp_path_factory.mktemp("league")
    leagues.play(leagues.small(), out)
    return out


@pytest.fixture
def made_up(monkeypatch):
    """Runs are written, not trained."""

    def follow(jobs, keeping, *options):
        leagues.train([job for job in jobs if job.id not in keeping.have.runs], keeping.out)
        return 0

    monkeypatch.setattr(experiments, "follow", follow)
    monkeypatch.setattr(run, "site", lambda workers, ray, limit=None: run.Site(None, 2, "here"))


def test_the_tables_are_printed(played, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["league", "--runs", str(played), "--figures", "figures"]) == 0
    said = capsys.readouterr().out
    assert "wrote figures/*.svg: league, ranks, knobs, stress, properties" in said
    published, tuned = said.index("as published"), said.index("tuned: one setting")
    assert published < tuned
    assert "spo x 2" in said[tuned:]
    assert "the same" in said


def test_a_newcomer_as_json(played, made_up, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["league", "ramp", "--knob", "width", "--runs", str(played), "--json"]) == 0
    said = capsys.readouterr()
    assert "all stages: " in said.err
    tables = json.loads(said.out)
    (line,) = [line for line in tables["tuned"] if line["newcomer"]]
    assert line["label"] == "ramp"
    assert line["rank_low"] <= line["place"]
    assert len(tables["tuned"]) == 5


def test_a_league_is_run_from_its_plan_to_its_end(made_up, tmp_path, capsys):
    plan = tmp_path / "mine.toml"
    fields = "steps = 1280, envs = 2, rollout = 32, minibatch = 16"
    plan.write_text(
        'kind = "league"\nabout = "Mine."\ntasks = ["CartPole-v1"]\nshapes = ["clip", "spo"]\n'
        'factors = [1, 2]\n[[stress]]\nname = "K = 1"\nconfig = { epochs = 1 }\n'
        f"[tuning]\nseeds = [1000]\nconfig = {{ {fields} }}\n"
        f"[testing]\nseeds = 3\nconfig = {{ {fields} }}\n"
    )
    assert main(["run", str(plan), "--out", str(tmp_path / "runs")]) == 0
    said = capsys.readouterr().out
    assert said.index("all stages: 16 of 16 runs") < said.index("stage tuning")
    assert said.index("stage tuning") < said.index("stage testing")
    assert main(["league", "--runs", str(tmp_path / "runs"), "--json"]) == 0
    assert main(["run", str(plan), "--out", str(tmp_path / "runs"), "--dry-run"]) == 0
    assert "all stages: all " in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_what_cannot_be_played_is_said_before_the_first_stage(options, tmp_path, capsys):
    plan = tmp_path / "mine.toml"
    plan.write_text(
        'kind = "league"\ntasks = ["CartPole-v1", "Nope-v9"]\nshapes = ["clip", "spo"]\n'
        '[[stress]]\nname = "K = 1"\n[tuning]\nseeds = [1000]\n[testing]\nseeds = 3\n'
    )
    out = tmp_path / "runs"
    assert main(["run", str(plan), "--out", str(out), *options]) == 2
    error = capsys.readouterr().err
    assert "there is no environment Nope-v9" in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_a_newcomer_goes_on_from_a_pack(played, made_up, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    newcomer = ["league", "ramp", "--runs", str(played), "--json"]
    assert main(newcomer) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["pack", "runs", "-o", "packed"]) == 0
    capsys.readouterr()
    assert main([*newcomer, "--out", "again", "--have", "packed"]) == 0
    said = capsys.readouterr()
    assert "from packed are taken as packed" in said.err
    assert json.loads(said.out) == first
    assert not list((tmp_path / "again").rglob("seed-*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["clip + kl-k3"], "does not say which parameter sets its radius"),
        (["ramp", "--knob", "length"], "ramp has no parameter 'length' to tune"),
        (["clip"], "plays in the league already"),
        (["nix"], "no shape is called 'nix'"),
        (["ramp", "--have", "nowhere"], "nowhere is no packed study: give a folder that"),
        (["ramp", "--knob", "eps", "--figures", __file__], "Not a directory"),
    ],
)
def test_mistakes_are_a_line_before_anything_starts(words, said, played, tmp_path, capsys):
    out = tmp_path / "runs"
    assert main(["league", *words, "--runs", str(played), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not out.exists()
