"""The pictures of a league, each described once."""

import pytest

from klip.draw import league as draw
from klip.draw.as_matplotlib import drawn
from klip.draw.panel import Whisker
from klip.draw.properties import PROPERTIES, PROVEN, has
from klip.studies.predicting import predictions
from klip.studies.standings import WHICH, read_standings, table
from tests.studies import leagues


@pytest.fixture(scope="module")
def standings(tmp_path_factory):
    out = tmp_path_factory.mktemp("league")
    leagues.play(leagues.small(), out)
    return read_standings(out)


@pytest.fixture(scope="module")
def tables(standings):
    return {which: table(standings, which) for which in WHICH}


def test_both_tables_are_intervals_the_highest_first(standings, tables):
    picture = draw.scores(standings, tables)
    assert [panel.title for panel in picture.panels] == [*draw.TITLES.values()]
    for panel in picture.panels:
        values = [mark.estimate for mark in panel.marks if isinstance(mark, Whisker)]
        assert values == sorted(values, reverse=True)
    assert picture.panels[1].y.ticks[0][1] == "spo × 2"


def test_a_rank_lies_within_its_interval(standings, tables):
    for panel in draw.ranks(standings, tables).panels:
        for mark in panel.marks:
            assert 1 <= mark.low <= mark.estimate <= mark.high <= len(panel.marks)


def test_shapes_without_a_knob_have_no_line(standings):
    tuning, cost = draw.knobs(standings).panels
    assert {line.label for line in tuning.legend} == {"clip", "per-sample", "spo"}
    assert len(cost.marks) == 4
    assert all(mark.estimate >= 0 for mark in cost.marks)


def test_each_shape_has_a_row_with_its_score_under_each_stress(standings, tables):
    picture = draw.under_stress(standings, tables)
    for panel, rows in zip(picture.panels, tables.values(), strict=True):
        marks = [mark for mark in panel.marks if isinstance(mark, Whisker)]
        assert len(marks) == 2 * len(rows) == 2 * len(panel.y.ticks)
        for mark in marks:
            row = rows[round(mark.at)]
            stress = mark.label.rpartition(", ")[2]
            assert (mark.estimate, panel.y.ticks[round(mark.at)][1]) == (
                row.stress[stress].iqm.estimate,
                draw.names(rows)[row.entrant],
            )
            assert mark.look == draw.stress_looks(standings)[stress]


def test_one_stress_is_not_compared_with_itself(tmp_path):
    leagues.play(leagues.small(stress=leagues.PLAN["stress"][:1]), tmp_path)
    one = read_standings(tmp_path)
    assert draw.under_stress(one, {which: table(one, which) for which in WHICH}) is None


def test_properties_divide_the_shapes(standings, tables):
    rows = tables["tuned"]
    had = {row.entrant: has(row.spelling) for row in rows}
    assert had["is"]["m is bounded"] is False
    assert had["clip(eps=0.2)"]["m has no jump"] is False
    assert [had["spo(eps=0.2)"][name] for name in PROVEN.values()] == [True, False, True]
    found = predictions(
        {row.entrant: row.iqm.estimate for row in rows},
        {name: {e: of[name] for e, of in had.items()} for name in PROPERTIES},
    )
    assert [each.lack for each in found[:3]] == [
        (), ("spo(eps=0.2)",), ("clip(eps=0.2)", "is", "per-sample(eps=0.2)")
    ]  # fmt: skip
    picture = draw.properties(standings, rows, found)
    assert len(picture.panels) == len(PROPERTIES)
    assert all(len(panel.marks) == 4 for panel in picture.panels)
    assert drawn(picture).axes
