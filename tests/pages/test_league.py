"""The league's page: from the standings alone, to the same bytes, with newcomers in their place."""

import dataclasses
import json

import pytest

from klip.errors import KlipError
from klip.pages.league import pictures, render, says, shown, write, write_figures
from klip.pages.words import fixed
from klip.studies.league import course
from klip.studies.standings import WHICH, name_of, read_standings, table
from tests.studies import leagues

pytest_plugins = ["tests.pages.browser"]

SPO = "spo × 2".replace(" ", "\N{NO-BREAK SPACE}")
"""As sentences have it: a name stays in its line."""


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("league")
    leagues.play(leagues.small(), out)
    return out


@pytest.fixture(scope="module")
def standings(out):
    return read_standings(out)


def test_the_page_is_rebuilt_to_the_same_bytes_from_any_order(standings, tmp_path):
    page = write(standings, tmp_path / "league.html").read_text()
    turned = dataclasses.replace(standings, entries=standings.entries[::-1])
    assert render(turned) == page
    assert page.index('id="scores"') < page.index('id="ranks"') < page.index('id="tables"')
    for words in ("spo × 2", "the same runs", "failed in", "Does theory predict practice?"):
        assert words in page
    cards = page.partition('id="shapes"')[2]
    assert cards.count("T1 yes, T2 yes, T3 no") >= 2 * 2  # clip and per-sample: seen, and in full
    assert "rank 1 to 1" not in page
    assert "http" not in page.partition("<script")[0].replace("http-equiv", "")


def test_what_is_said_follows_from_the_table(standings):
    lines = says(table(standings, "tuned"))
    assert f"Shown to be better than PPO-Clip: {SPO}." in lines
    assert f"The first place may be that of {SPO}." in lines
    assert "The same runs as PPO-Clip’s: per-sample." in lines


def test_who_is_told_apart_under_a_stress_is_said_of_that_stress(standings):
    """In the table SPO is best everywhere; here it is made the worst under one stress."""
    cut = [
        e._replace(final=e.final - 500) if (e.entrant, e.stress) == ("spo(eps=0.2)", "K = 2") else e
        for e in standings.entries
    ]
    rows = table(dataclasses.replace(standings, entries=tuple(cut)), "tuned")
    assert f"Shown to be better than PPO-Clip: {SPO}." in shown(rows, "K = 1")
    (line,) = [line for line in shown(rows, "K = 2") if "worse" in line]
    assert SPO in line
    page = render(standings)
    assert page.index('id="stress"') < page.index("<b>K = 1.</b>") < page.index("<b>K = 2.</b>")


def test_a_control_does_not_count_twice_where_properties_are_weighed(standings):
    tables = {which: table(standings, which) for which in WHICH}
    picture = next(p for p in pictures(standings, tables) if p.stem == "properties")
    assert {mark.label for panel in picture.panels for mark in panel.marks} == {"clip", "is", "spo"}


def test_every_shape_has_its_score_in_every_cell(standings):
    part = render(standings).partition('id="cells"')[2].partition("</section>")[0]
    assert part.count('class="num heat"') == 2 * len(standings.entrants) * 4
    row = next(row for row in table(standings, "tuned") if row.label == "spo")
    assert all(f">{fixed(score)}</td>" in part for score in row.cells.values())


@pytest.mark.parametrize(("estimate", "word"), [(0.9, "better"), (0.1, "worse")])
def test_what_cannot_be_chance_at_all_is_shown(standings, estimate, word):
    """A p-value may be so small that it is 0."""
    rows = table(standings, "published")
    sure = [
        dataclasses.replace(
            row, better=dataclasses.replace(row.better, estimate=estimate, p_holm=0.0)
        )
        if row.label == "is"
        else row
        for row in rows
    ]
    (line,) = [line for line in says(sure) if line.startswith(f"Shown to be {word} than PPO-Clip")]
    assert "is" in line.partition(": ")[2].rstrip(".").split(", ")


def test_a_newcomer_is_named_and_cannot_open_a_tag(out, standings):
    alone = standings.rules.with_newcomer("ramp(eps=0.3)")
    leagues.play(course("new", "", alone, standings.scales["tuning"]), out)
    page = render(standings.joined(read_standings(out / name_of(alone))))
    assert "ramp(eps=0.3) ranks between" in page
    assert "(new)" in page


def test_a_smoke_test_says_that_it_is_one(tmp_path):
    stress = leagues.PLAN["stress"][:1]
    leagues.play(leagues.small(tasks=["CartPole-v1"], stress=stress), tmp_path)
    page = render(read_standings(tmp_path))
    assert "A smoke test: one cell" in page
    assert 'id="stress"' not in page


def test_pictures_and_tables_are_written_to_the_same_bytes_from_any_order(standings, tmp_path):
    turned = dataclasses.replace(standings, entries=standings.entries[::-1])
    first, again = (write_figures(s, tmp_path / str(i)) for i, s in enumerate([standings, turned]))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    stems = ("ranks", "knobs", "stress", "properties", "league")
    assert {f"{stem}.{kind}" for stem in stems for kind in ("pdf", "svg", "png")} < {
        path.name for path in first
    }
    lines = json.loads((tmp_path / "0" / "league.json").read_text())
    assert [line["iqm"] for line in lines] == [
        row.iqm.estimate for which in WHICH for row in table(standings, which)
    ]
    csv = (tmp_path / "0" / "league.csv").read_text()
    assert csv.count("\n") == 1 + 2 * len(standings.entrants)


def test_a_page_ends_in_html(standings, tmp_path):
    with pytest.raises(KlipError, match=r"must end in \.html"):
        write(standings, tmp_path / "league.svg")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_draws_it_without_a_network(standings, page, width):
    page.open(render(standings), width=width, height=900)
    page.wait("document.querySelectorAll('.chart .main-svg').length > 6")
    assert (page.errors, page.external, page.overflow()) == ([], [], 0)
