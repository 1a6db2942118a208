"""`klip guarantee` as a person meets it."""

import json

import pytest

from klip.cli import main

MINE = """
from dataclasses import dataclass
from klip.shapes import Shape

@dataclass(frozen=True)
class Mine(Shape):
    def multiplier(self, s):
        return {}
"""


@pytest.fixture
def run(capsys):
    def run(*args):
        code = main(args)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_it_says_each_claim_and_replays_what_it_kept(run, tmp_path):
    code, out, _ = run("guarantee", "dual-clip", "--keep", str(tmp_path / "kept"))
    assert code == 0
    assert "T1 no, T2 yes, T3 no" in out
    assert "refuted by a bandit of 3 arms" in out
    assert "checked by exact fractions and simulation" in out
    (path,) = (tmp_path / "kept").glob("*.json")
    code, out, _ = run("guarantee", "--replay", str(path))
    assert code == 0
    assert "dual-clip(eps=0.2, cap=3.0): 25 steps of rate 0.2" in out
    code, out, _ = run("guarantee", "--replay", str(path), "--json")
    assert json.loads(out)["change"] < 0


def test_somebodys_own_shape_as_json(run, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE.format("s.w * s.advantage"))
    code, out, _ = run("guarantee", f"{path}:Mine", "--json", "--seed", "3")
    assert code == 0
    (found,) = json.loads(out)["shapes"]
    outcomes = [verdict["outcome"] for verdict in found["verdicts"]]
    assert outcomes[:3] == ["holds", "holds", "refuted"]


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("1 / len(())", "division by zero"),
        ("s.w * s.advantage / (s.w - s.w)", "a guarantee needs a finite m"),
        ("None", "a guarantee needs a finite m"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, formula, says):
    path = tmp_path / "mine.py"
    path.write_text(MINE.format(formula))
    code, _, err = run("guarantee", f"{path}:Mine")
    assert code == 2
    assert err.count("\n") == 1
    assert says in err


def test_what_names_nothing_is_one_line(run):
    assert run("guarantee")[0] == 2
    assert "did you mean clip" in run("guarantee", "clap")[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed=-1"], "seed=-1 must be 0 or more"),
        (["-o", "arms.txt"], "a figure is a .png, .svg or .pdf file"),
        (["--keep", "/proc/nowhere"], "/proc/nowhere"),
    ],
)
def test_bad_options_are_a_line_before_anything_is_computed(run, monkeypatch, words, said):
    monkeypatch.setattr("klip.draw.guarantee.examined", None)
    code, _, err = run("guarantee", "clip", *words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
