"""Where shapes stand: from runs to a file to tables, in any order, with newcomers."""

import dataclasses
import random

import numpy as np
import pytest

from klip.errors import KlipError
from klip.shapes import parse
from klip.studies.league import course
from klip.studies.standings import (
    FILE,
    Standings,
    as_text,
    name_of,
    read_standings,
    records,
    sensitivity,
    table,
)
from klip.theory.portrait import portrait, to_json
from tests.studies.leagues import play, small


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("league")
    play(small(), out)
    return out


@pytest.fixture(scope="module")
def standings(out):
    return read_standings(out)


def shuffled(standings):
    entries = list(standings.entries)
    random.Random(1).shuffle(entries)
    return dataclasses.replace(standings, entries=tuple(entries))


def test_the_best_stands_first(standings):
    published, tuned = table(standings, "published"), table(standings, "tuned")
    assert tuned[0].label == "spo"
    assert tuned[0].spelling == "spo(eps=0.4)"
    assert tuned[0].ranks == (1, 1)
    assert published[-1].label == "is"
    assert tuned[0].iqm.estimate > 1.3 > 1.2 > published[0].iqm.estimate


def test_forms_of_one_shape_are_the_same_and_share_their_ranks(standings):
    for which in ("published", "tuned"):
        rows = {row.label: row for row in table(standings, which)}
        clip, form = rows["clip"], rows["per-sample"]
        assert form.same
        assert (form.better.p, clip.better) == (None, None)
        assert clip.ranks == form.ranks
        assert clip.iqm == form.iqm


def test_shapes_are_compared_under_each_stress_alone(standings):
    """Its probability of improvement is that of its cells, corrected for its shapes."""
    rows = {row.label: row for row in table(standings, "tuned")}
    assert rows["clip"].stress["K = 1"].better is None
    assert rows["per-sample"].stress["K = 1"].better.p is None
    for name in ("K = 1", "K = 2"):
        own = {label: row.stress[name].better for label, row in rows.items() if label != "clip"}
        assert all(better.tasks == 2 for better in own.values())
        least = min(("is", "spo"), key=lambda label: own[label].p)
        assert own[least].p_holm == min(1.0, 2 * own[least].p)
    both = rows["spo"].stress.values()
    mean = np.mean([each.better.estimate for each in both])
    assert rows["spo"].better.estimate == pytest.approx(mean)


def test_the_file_is_rebuilt_to_the_same_bytes_from_any_order(out, standings):
    text = (out / FILE).read_text()
    assert as_text(standings) == text
    assert as_text(shuffled(standings)) == text


def test_no_order_changes_a_table(standings):
    for which in ("published", "tuned"):
        assert records(table(standings, which)) == records(table(shuffled(standings), which))


def test_a_newcomer_changes_nobodys_score(out, standings):
    alone = standings.rules.with_newcomer("ramp(eps=0.3)")
    play(course("new", "", alone, standings.scales["tuning"]), out)
    joined = standings.joined(read_standings(out / name_of(alone)))
    before = {row.entrant: row for row in table(standings, "tuned")}
    rows = {row.entrant: row for row in table(joined, "tuned")}
    assert rows.keys() - before.keys() == {*alone.shapes}
    new = rows[alone.shapes[0]]
    assert new.newcomer
    assert 1 <= new.ranks[0] <= new.ranks[1] <= 5
    for name, row in before.items():
        assert rows[name].iqm == row.iqm
        assert np.array_equal(rows[name].scores.values, row.scores.values)
    turned = shuffled(joined)
    assert records(table(turned, "tuned")) == records(table(joined, "tuned"))


def test_a_picture_of_somebodys_shape_goes_with_the_standings(standings, tmp_path):
    drawn = dataclasses.replace(portrait(parse("spo"), profiled=False), spelling="my.py:Mine")
    file = tmp_path / "standings-new.json"
    file.write_text(as_text(dataclasses.replace(standings, portraits={"my.py:Mine": drawn})))
    again = read_standings(file)
    assert to_json(again.portraits["my.py:Mine"]) == to_json(drawn)
    assert standings.joined(again).portraits.keys() == {"my.py:Mine"}
    file.write_text(as_text(dataclasses.replace(standings, portraits={"my.py:Other": drawn})))
    with pytest.raises(KlipError, match="a picture of another shape"):
        read_standings(file)


def test_sensitivity_is_what_one_radius_for_all_costs(standings):
    assert sensitivity(standings.frozen["is"]) == 0.0
    assert sensitivity(standings.frozen["spo(eps=0.2)"]) >= 0.0


def test_missing_tests_are_an_error(standings):
    last = max(i for i, entry in enumerate(standings.entries) if entry.stage == "testing")
    kept = standings.entries[:last] + standings.entries[last + 1 :]
    fewer = dataclasses.replace(standings, entries=kept)
    with pytest.raises(KlipError, match="tests in"):
        [table(fewer, which) for which in ("published", "tuned")]


def test_a_run_that_diverged_is_counted(standings):
    first = next(e for e in standings.entries if (e.entrant, e.stage) == ("is", "testing"))
    entries = [e._replace(final=None) if e is first else e for e in standings.entries]
    changed = Standings(standings.rules, standings.frozen, tuple(entries))
    row = next(row for row in table(changed, "published") if row.label == "is")
    assert row.diverged == 1
    assert row.scores.counted == 1


def test_damaged_and_missing_files_are_a_line(out, tmp_path):
    with pytest.raises(KlipError, match="there are no standings in"):
        read_standings(tmp_path)
    broken = tmp_path / "broken.json"
    broken.write_text((out / FILE).read_text().replace("100", "101", 1))
    with pytest.raises(KlipError, match="damaged or no file of standings"):
        read_standings(broken)
    broken.write_text("[" * 9999)
    with pytest.raises(KlipError, match="nested too deeply"):
        read_standings(broken)


@pytest.mark.parametrize(
    ("place", "value"), [("factor", "1"), ("seed", []), ("final", 10**400), ("task", 5)]
)
def test_a_run_that_is_none_is_refused_though_the_seal_is_right(standings, tmp_path, place, value):
    entry = standings.entries[0]._replace(**{place: value})
    forged = dataclasses.replace(standings, entries=(entry,))
    (tmp_path / FILE).write_text(as_text(forged))
    with pytest.raises(KlipError, match="is no run of a league"):
        read_standings(tmp_path)
