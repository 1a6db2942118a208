"""The standings of a league: at its end, and so far."""

import json
import shutil
from dataclasses import replace

import pytest

from klip.cli import main
from klip.errors import KlipError
from klip.pages.league import render
from klip.studies.freezing import FILE as FROZEN
from klip.studies.packing import pack
from klip.studies.reading import read_study
from klip.studies.standings import FILE, as_text, read_standings, table
from klip.studies.tallying import so_far, standings_in
from tests.studies.leagues import play, rules, small, train


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("league")
    play(small(), out)
    return out


@pytest.fixture
def halfway(whole, tmp_path):
    """One of two tasks is tested whole, the other but for a run."""
    out = shutil.copytree(whole, tmp_path / "runs")
    (out / FILE).unlink()
    shutil.rmtree(next((out / "Acrobot-v1").rglob("seed-3-*")))
    return out


def scores(standings, which):
    return {row.entrant: row.cells for row in table(standings, which)}


def test_the_file_at_the_end_is_what_is_told_so_far(whole):
    """A league that is over, and whose file is gone, has the same standings."""
    ended = read_standings(whole)
    assert as_text(so_far(whole)) == as_text(ended) == (whole / FILE).read_text()
    assert ended.untested == ()


def test_tasks_that_are_tested_whole_are_told(whole, halfway):
    """With the scores that they keep to the end."""
    found, ended = standings_in(halfway), standings_in(whole)
    assert found.rules.tasks == ("CartPole-v1",)
    assert found.untested == ("Acrobot-v1, K = 1", "Acrobot-v1, K = 2")
    for which in ("published", "tuned"):
        last = scores(ended, which)
        for entrant, cells in scores(found, which).items():
            assert cells == {cell: last[entrant][cell] for cell in found.rules.cells}


def test_a_pack_is_told_alike(halfway, tmp_path):
    pack(read_study(halfway), tmp_path / "packed")
    assert as_text(so_far(tmp_path / "packed")) == as_text(so_far(halfway))


def test_page_and_command_say_that_it_goes_on(halfway, capsys, tmp_path):
    assert "A league on its way" in render(so_far(halfway))
    page = str(tmp_path / "league.html")
    assert main(["league", "--runs", str(halfway), "-o", page]) == 0
    assert "this league goes on: Acrobot-v1, K = 1; Acrobot" in " ".join(
        capsys.readouterr().out.split()
    )


def test_where_no_task_is_tested_whole_nothing_is_told(halfway):
    shutil.rmtree(next((halfway / "CartPole-v1").rglob("seed-0-*")))
    with pytest.raises(KlipError, match=r"no task .* tested whole: 78 of 80 tests have ended"):
        so_far(halfway)


def test_before_anything_is_frozen_there_are_no_standings(tmp_path):
    train(small().configs, tmp_path)
    with pytest.raises(KlipError, match="there are no standings in"):
        standings_in(tmp_path)


def test_an_edited_choice_is_refused(halfway):
    text = (halfway / FROZEN).read_text()
    (halfway / FROZEN).write_text(text.replace("CartPole-v1", "CartPole-v0"))
    with pytest.raises(KlipError, match="damaged or was edited"):
        so_far(halfway)
    enormous = json.loads(text)
    enormous["frozen"]["rules"]["factors"] = [10**400]
    for other in ({"frozen": 3}, enormous):
        (halfway / FROZEN).write_text(json.dumps(other))
        with pytest.raises(KlipError, match="damaged or was edited"):
            so_far(halfway)


def test_code_that_a_folder_names_is_not_run(halfway, monkeypatch):
    """Whoever looks at somebody's folder has not named the shapes in it."""
    named = replace(rules(), shapes=("clip", "evil.py:Mine"))
    monkeypatch.setattr("klip.studies.tallying.rules_frozen", lambda keeping: named)
    with pytest.raises(KlipError, match=r"a shape of somebody's own, evil\.py:Mine"):
        so_far(halfway)
