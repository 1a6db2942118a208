"""The commands as a person meets them: output, JSON, exit codes, and one-line errors."""

import json
import re
from pathlib import Path

import pytest

import klip
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
    assert clip["guarantees"] == "T1 yes, T2 yes, T3 no"


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
    assert found["ok"] is True
    assert found["headline"] == f"{loss} (torch, mean) is clip(eps=0.2)"
    assert found["profile"]["anchor"]["outcome"] == "exact"


def test_the_probe_prints_headline_findings_and_caveats(run):
    """A line each; the profile only if it is asked for."""
    pytest.importorskip("torch")
    loss = f"{ROOT}/examples/my_loss.py:grpo_loss"
    code, out, _ = run("probe", loss)
    headline, verdict, caveats = out.splitlines()
    assert code == 0
    assert headline == f"{loss} (torch, masked token mean) is clip-higher(low=0.2, high=0.28)"
    assert verdict == "nothing looks wrong"
    assert caveats.startswith("caveats: the same function as ")
    _, longer, _ = run("probe", loss, "--profile")
    assert longer.startswith(out)
    assert "redescending above" in longer


def test_a_loss_that_looks_wrong_has_exit_code_1(run):
    pytest.importorskip("torch")
    loss = f"{ROOT}/examples/my_loss.py:suspicious_loss"
    code, out, _ = run("probe", loss)
    headline, *findings = out.splitlines()
    assert code == 1
    assert " is none of the catalogue; the nearest is " in headline
    assert {line.partition(":")[0] for line in findings} == {"batch-dependent", "pass-killed"}
    assert "nothing looks wrong" not in out
    code, out, _ = run("probe", loss, "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


COARSE = """
import torch


def loss(new, old, advantages):
    ratio = torch.exp((new - old).mul(64).round() / 64 + (new - old) - (new - old).detach())
    return -(ratio * advantages).mean()
"""


def test_a_table_lists_no_more_than_a_few_jumps(run, tmp_path):
    """A staircase has hundreds."""
    pytest.importorskip("torch")
    (tmp_path / "stairs.py").write_text(COARSE)
    _, out, _ = run("probe", f"{tmp_path}/stairs.py:loss", "--profile")
    assert re.search(r"and \d{3,4} more", " ".join(out.split()))
    assert len(out) < 8000


RAISING = """
from dataclasses import dataclass
from klip.shapes import Shape


@dataclass(frozen=True)
class Boom(Shape):
    def multiplier(self, s):
        return s.advantage * {}["temperature"]


@dataclass(frozen=True)
class Nothing(Shape):
    def multiplier(self, s):
        return None


@dataclass(frozen=True)
class NoBand(Shape):
    def multiplier(self, s):
        return s.w * s.advantage

    def band(self, context=None, like=0.0):
        raise ValueError("no band here")
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Boom", "raises KeyError: 'temperature' (raising.py, line 9)"),
        ("Nothing", ""),
        ("NoBand", "raises ValueError: no band here (raising.py, line 24)"),
    ],
)
def test_a_shape_that_raises_is_named_in_one_line(run, tmp_path, name, words):
    (tmp_path / "raising.py").write_text(RAISING)
    shape = f"{tmp_path}/raising.py:{name}"
    for args in (["profile", shape], ["show", "clip", shape, "-o", f"{tmp_path}/x.png"]):
        code, out, err = run(*args)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"klip: {shape} ")
        assert words in err
    with pytest.raises(klip.KlipError, match=f"raising.py:{name} "):
        klip.profile(shape)


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
