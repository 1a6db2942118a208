"""The standings that come with Klip: those of the packed runs, whose control ties with PPO-Clip."""

from pathlib import Path

import pytest

from klip.engine.plan import read_plan
from klip.studies.standings import WHICH, as_text, read_standings, shipped_standings, table
from klip.studies.tallying import standings_in

PACK = Path(__file__).parents[2] / "results" / "league"


@pytest.fixture(scope="module")
def shipped():
    return read_standings(shipped_standings())


def test_they_are_rebuilt_from_the_packed_runs_to_the_same_bytes():
    assert as_text(standings_in(PACK)) == shipped_standings().read_text(encoding="utf-8")


def test_they_are_of_the_plan_that_comes_with_klip(shipped):
    """All of its shapes, tasks and stresses, with its seeds."""
    assert shipped.rules == read_plan("league").course.rules
    assert not shipped.untested


@pytest.mark.parametrize("stage", ["tuning", "testing"])
def test_the_per_sample_form_ties_with_clip_in_every_cell(shipped, stage):
    """Every run of either form has a run of the other with the same learning curve."""
    curves = {
        name: {
            (e.factor, e.cell, e.seed): e.curve
            for e in shipped.entries
            if (e.entrant, e.stage) == (f"{name}(eps=0.2)", stage)
        }
        for name in ("clip", "per-sample")
    }
    per_cell = len(curves["clip"]) / len(shipped.rules.cells)
    assert per_cell == {"tuning": 4 * 2, "testing": 2 * 8}[stage]
    assert curves["clip"] == curves["per-sample"]


def test_twenty_shapes_and_more_have_a_place(shipped):
    for which in WHICH:
        rows = table(shipped, which)
        assert len(rows) >= 20
        assert [row.label for row in rows if row.same] == ["clip", "per-sample"]
