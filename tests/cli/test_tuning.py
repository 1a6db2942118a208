"""`klip tune`: a plan, pictures and a table; killed or not; mistakes are a line."""

import json

import pytest

from klip.cli import main
from klip.engine import read_plan

TINY = ("--steps", "256", "--envs", "2", "--rollout", "64", "--minibatch", "64", "--hidden", "8")
SEARCH = ("tune", "CartPole-v1", "--over", "lr", "eps=0.1..0.3", "--trials", "3", "--batch", "2",
          "--epochs", "1", *TINY)  # fmt: skip


def test_a_search_from_the_command_line(tmp_path, monkeypatch, capsys, in_this_process):
    monkeypatch.chdir(tmp_path)
    assert main([*SEARCH]) == 0
    said = capsys.readouterr().out
    assert "trials 0 to 1: 2 of 2 runs are missing" in said
    assert "3 trials: the best is trial" in said
    assert "test it on other seeds: klip run tuned.toml" in said
    assert (tmp_path / "tuned.svg").read_text().startswith("<?xml")
    assert read_plan("tuned.toml").configs[0].epochs == 1
    assert main([*SEARCH, "--json", "-o", "more/again.toml"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["over"] == ["lr=3e-05..0.003", "eps=0.1..0.3"]
    assert found["seeds"] == [1000]
    assert len(found["trials"]) == 3
    again = (tmp_path / "more" / "again.toml").read_text()
    assert again == (tmp_path / "tuned.toml").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["CartPole-v1", "--over", "lr=2..1"], "lr=2..1 is empty"),
        (["CartPole-v1", "--over", "width"], "'width' is no config field"),
        (["CartPole-v1", "--over", "lr", "--lr", "1e-3"], "lr is given and searched over"),
        (["CartPole-v1", "--over", "lr", "-o", "a.json"], "the plan is a TOML file"),
        (["CartPole-v1", "--over", "lr", "--trials", "0"], "trials=0 must be at least 1"),
        (["CartPole-v1", "--over", "lr", "--metric", "best"], "metric='best' must be one of"),
        (["Nope-v9", "--over", "lr"], "there is no environment Nope-v9"),
    ],
)
def test_mistakes_are_a_line_before_anything_starts(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *words]) == 2
    out, error = capsys.readouterr()
    assert said in error
    assert (out, error.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []
