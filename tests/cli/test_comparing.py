"""`klip compare`: the answer in a sentence, as JSON and as a picture; mistakes are a line."""

import json

import pytest

from klip.cli import main
from klip.cli.comparing import bar, sentence
from klip.studies.answering import Pair, Reading, Readings
from klip.studies.compare import ask

TINY = ("--steps", "64", "--envs", "2", "--rollout", "16", "--minibatch", "16", "--epochs", "1",
        "--hidden", "8")  # fmt: skip
FORMS = ("compare", "clip", "per-sample", "--task", "CartPole-v1")


def test_two_forms_of_one_shape_are_equivalent_at_the_first_look(
    tmp_path, monkeypatch, capsys, in_this_process
):
    monkeypatch.chdir(tmp_path)
    assert main([*FORMS, *TINY]) == 0
    said = capsys.readouterr().out
    assert "per-sample is equivalent to clip: every run is the same, after 6 seeds" in said
    assert (tmp_path / "comparison.svg").read_text().startswith("<?xml")
    assert main([*FORMS, *TINY, "--json", "-o", "again.png"]) == 0
    found = json.loads(capsys.readouterr().out)
    (pair,) = found["pairs"]
    assert {"answer": "equivalent", "difference": 0, "low": 0, "high": 0, "seeds": 6}.items() <= (
        pair.items()
    )
    assert pair["tasks"]["CartPole-v1"]["answer"] == "equivalent"
    assert (tmp_path / "again.png").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["clip", "--task", "CartPole-v1"], "give two shapes or more"),
        (["clip", "spo"], "a comparison needs a task"),
        (["clip", "spo", "--task", "Nope-v9"], "there is no environment Nope-v9"),
        (["clip", "spo", "--task", "CartPole-v1", "--budget", "soon"], "budget='soon' must be a"),
        (["clip", "spo", "--task", "CartPole-v1", "--budget", "1s"], "too small for the first"),
        (["clip", "spo", "--task", "CartPole-v1", "-o", "a.gif"], "cannot write a.gif"),
        (["clip", "spo", "--task", "CartPole-v1", "--ray", "a", "b"], "give one address"),
    ],
)
def test_mistakes_are_a_line_before_anything_starts(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def pair(look):
    looks = Readings({"final": look, "area": look}, {})
    return Pair("spo(eps=0.2)", "clip(eps=0.2)", "final", 0.05, (looks,))


@pytest.mark.parametrize(
    ("look", "said"),
    [
        (Reading(8, 5.0, 1.0, 9.0, 2.0, "better", 3.0), "spo is better than clip, after 8 seeds"),
        (
            Reading(8, 0.1, -1.0, 1.2, 2.0, "equivalent", 1.0),
            "equivalent to clip, within 5%",
        ),
        (Reading(8, 1.0, -8.0, 9.0, 2.0, "open", 9.0), "more seeds would settle it"),
        (Reading(8, 1.0, None, None, 2.0, "open", 0.0), "every seed has the same difference"),
        (Reading(8, 0.0, -8.0, 8.0, 1e-9, "open", 9.0), "more seeds than 10,000"),
    ],
)
def test_answers_are_sentences(look, said):
    assert said in sentence(pair(look), ask(["clip", "spo"], "CartPole-v1"))


def test_without_a_look_it_says_so():
    nothing = Pair("spo(eps=0.2)", "clip(eps=0.2)", "final", 0.05)
    assert "ended before the first look" in sentence(nothing, ask(["clip", "spo"], "CartPole-v1"))


def test_a_bar_keeps_the_scale_of_the_first_interval():
    wide = Reading(6, 0.0, -10.0, 10.0, 1.0, "open", 9.0)
    narrow = Reading(60, 0.0, -2.0, 2.0, 1.0, "open", 9.0)
    assert bar([wide]).count("━") > 4 * bar([wide, narrow]).count("━")
    assert len(bar([Reading(6, 50.0, None, None, 1.0, "open", 0.0)])) == 41
