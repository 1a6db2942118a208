"""The commands as a person meets them: output, JSON, exit codes, and one-line errors."""

import json
from pathlib import Path

import pytest

from klip.cli import main
from klip.shapes import Controller, Shape, catalogue

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(capsys):
    def run(*args):
        code = main(args)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_shapes_lists_the_catalogue(run):
    code, out, _ = run("shapes")
    assert code == 0
    for name in (*catalogue(Shape), *catalogue(Controller)):
        assert f" {name} " in out
    code, out, _ = run("shapes", "--json")
    listed = json.loads(out)["shapes"]
    assert {entry["name"] for entry in listed} == {*catalogue(Shape), *catalogue(Controller)}
    for entry in listed:
        assert {"name", "family", "parameters", "needs", "reference"} <= entry.keys()
    clip = next(entry for entry in listed if entry["name"] == "clip")
    assert clip["parameters"] == {"eps": 0.2}
    assert clip["needs"] == []


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_show_writes_a_picture(run, tmp_path, suffix):
    path = tmp_path / f"picture.{suffix}"
    mine = f"{ROOT}/examples/my_shapes.py:Cauchy(scale=0.2)"
    code, out, _ = run("show", "clip(eps=0.3)", mine, "-o", str(path))
    assert code == 0
    assert str(path) in out
    assert path.stat().st_size > 5000


def test_show_names_its_file_after_the_shapes(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("show", "clip", "spo")
    assert (tmp_path / "clip-spo.png").exists()


def test_show_takes_context(run, tmp_path):
    path = tmp_path / "aged.png"
    code, _, _ = run("show", "age-conditioned", "-o", str(path), "--context", "age=4")
    assert code == 0
    assert path.exists()


def test_profile(run):
    code, out, _ = run("profile", "ramp")
    assert code == 0
    assert "1.25" in out
    code, out, _ = run("profile", "ramp", "--json")
    properties = json.loads(out)
    assert properties["shape"] == "ramp(eps=0.2, width=0.05)"
    assert properties["anchor"]["outcome"] == "exact"
    assert properties["equilibrium"]["1"] == 1.25
    code, out, _ = run("profile", "position-aware", "--json", "--context", "position=0", "length=9")
    assert json.loads(out)["equilibrium"]["1"] == pytest.approx(1.4)


def test_probe(run, tmp_path):
    pytest.importorskip("torch")
    picture = tmp_path / "probe.png"
    loss = f"{ROOT}/examples/my_loss.py:ppo_loss"
    code, out, _ = run("probe", loss, "-o", str(picture))
    assert code == 0
    assert "clip" in out
    assert picture.exists()
    code, out, _ = run("probe", loss, "--json")
    found = json.loads(out)
    assert found["match"]["shape"] == "clip"
    assert found["match"]["parameters"] == pytest.approx({"eps": 0.2}, abs=5e-4)
    assert found["match"]["max_difference"] < 1e-6
    assert found["findings"] == []
    assert found["profile"]["anchor"]["outcome"] == "exact"


def test_verify(run):
    code, out, _ = run("verify", "--json", "--samples", "16384")
    certificate = json.loads(out)
    assert code == 0
    assert certificate["ok"] is True
    assert all(check["ok"] for check in certificate["checks"])


def test_verify_fails_with_exit_code_1(run, monkeypatch):
    from klip.theory import identity

    wrong = identity.Certificate((identity.Check("one", False, 1, 1.0, 0.0),))
    monkeypatch.setattr(identity, "verify", lambda **_: wrong)
    assert run("verify")[0] == 1
    code, out, _ = run("verify", "--json")
    assert code == 1
    assert json.loads(out)["ok"] is False


def test_figures(run, tmp_path):
    code, out, _ = run("figures", "-o", str(tmp_path))
    assert code == 0
    stems = {path.stem for path in tmp_path.iterdir()}
    assert stems == {"clip-function", "surrogate", "multiplier", "morph", "beta-map"}
    assert out.count("wrote") == 10


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["show", "clap"], "did you mean clip"),
        (["show"], "name at least one shape"),
        (["show", "clip", "-o", "picture.bmp"], "bmp"),
        (["show", "clip", "-o", "/dev/null/x.png"], "/dev/null"),
        (["show", "clip", "--context", "age"], "FIELD=NUMBER"),
        (["show", "age-conditioned", "--context", "colour=1"], "colour"),
        (["profile", "clip(eps=-0.2)"], "eps=-0.2 must be greater than 0"),
        (["profile", "clip(eps=0.2"], "cannot read the shape"),
        (["profile", "missing.py:MyShape"], "there is no file missing.py"),
        (["probe", "missing.py:loss"], "there is no file missing.py"),
        (["probe", "loss"], "loss"),
        (["verify", "--samples", "10"], "at least 4096"),
    ],
)
def test_mistakes_get_one_line(run, args, message):
    """What was wrong and what to do, on standard error, with exit code 2; never a traceback."""
    code, out, err = run(*args)
    assert code == 2
    assert out == ""
    assert err.startswith("klip: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_thing", "does not import"),
        ("def loss(new, old, advantage):\n    return 1.0", "no gradient"),
        ("loss = 3", "callable"),
    ],
)
def test_a_bad_loss_gets_one_line(run, tmp_path, text, message):
    pytest.importorskip("torch")
    path = tmp_path / "bad.py"
    path.write_text(text)
    code, _, err = run("probe", f"{path}:loss")
    assert code == 2
    assert err.count("\n") == 1
    assert message in err
