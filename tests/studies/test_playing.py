"""`klip.league`: standings, newcomers, quick leagues; mistakes before anything is trained."""

import pytest

import klip
from klip.engine.advance import Keeping
from klip.errors import KlipError
from klip.studies import playing
from klip.studies.playing import play_league, quick_rules
from klip.studies.standings import table
from tests.studies import leagues


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("league")
    leagues.play(leagues.small(), out)
    return out


def test_the_standings_of_a_folder(out):
    assert klip.league(runs=out).rules == leagues.rules()


def test_a_newcomer_is_trained_and_nobody_else(out, tmp_path):
    plans = []

    def play(plan):
        plans.append(plan)
        leagues.play(plan, tmp_path)

    found = play_league(Keeping(tmp_path), play, "ramp", ["eps"], runs=out)
    (plan,) = plans
    assert {c.shape.partition("(")[0] for c in plan.configs} == {"ramp"}
    assert found.newcomers == ("ramp(eps=0.2, width=0.05)",)
    assert [row.newcomer for row in table(found, "tuned")].count(True) == 1


def test_a_quick_league_plays_a_few_shapes(tmp_path, monkeypatch):
    monkeypatch.setattr(playing, "quick_rules", leagues.rules)
    found = play_league(Keeping(tmp_path), lambda plan: leagues.play(plan, tmp_path), quick=True)
    assert len(table(found, "published")) == 4
    monkeypatch.undo()
    assert len(quick_rules().shapes) == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"knob": ["eps"]}, "give its shape, too"),
        ({"quick": True, "runs": "x"}, "give --quick or --runs, not both"),
        ({"quick": True, "shape": "clip + kl-k3"}, "does not say which parameter"),
        ({"runs": "nowhere"}, "there are no standings in nowhere"),
    ],
)
def test_mistakes_are_said_before_anything_is_trained(options, words, tmp_path):
    def play(plan):
        raise AssertionError("nothing may be trained")

    with pytest.raises(KlipError, match=words):
        play_league(Keeping(tmp_path), play, **options)
