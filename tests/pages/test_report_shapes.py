"""Somebody's own shapes on the page: first, drawn, measured, never hidden; and on paper."""

import re

import pytest

from klip.pages.template import asset
from klip.pages.writing import report_of
from klip.studies.packing import pack
from klip.studies.reading import read_study
from tests.studies.folders import FORMS, config, keep, make_run, make_study, small

pytest_plugins = ["tests.pages.browser"]

OWN = ["my.py:Mine(scale=0.1)", "my.py:Mine(scale=0.3)"]
CATALOGUE = [*FORMS[:2], "kl(b=1.0)", "sapo", "spo(eps=0.2)", "is"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Six shapes of the catalogue and two of somebody's own, whose code is nowhere."""
    out = make_study(tmp_path_factory.mktemp("runs"), shapes=CATALOGUE, seeds=2, **small())
    for seed in (0, 1):
        for shape, scale in zip(OWN, (0.1, 0.3), strict=True):
            made = config(shape=shape, code="abc", seed=seed, **small())
            keep(make_run(out, made), made, scale=scale)
    return out


@pytest.fixture(scope="module")
def html(runs):
    return report_of(read_study(runs)).page()


def card(html, label):
    (found,) = re.findall(rf"(?s)<article>\s*<h3>{re.escape(label)}</h3>.*?</article>", html)
    return found


def test_an_own_shape_has_formula_picture_profile_and_knob_chart(html):
    for shape in OWN:
        own = card(html, shape)
        assert "<svg" in own
        assert '<p class="formula">mine</p>' in own
        assert "<dt>equilibrium</dt>" in own
        assert re.search(r"<dt[^>]*>guarantees</dt>\s*<dd>T1 (yes|no), T2", own)
    assert "CartPole-v1, my.py:Mine</b>" in html
    assert "2 at 0.1, 2 at 0.3" in html


def test_own_shapes_come_right_after_the_reference(html):
    for section in ("curves", "samples", "training"):
        (text,) = re.findall(rf'(?s)<section id="{section}">.*?</section>', html)
        labels = re.findall(r'data-label="([^"]*)" aria-pressed="(\w+)"', text)
        assert [label for label, _ in labels[:3]] == ["clip", *OWN]
        assert {pressed for _, pressed in labels} == {"true"}  # nobody's is hidden
    rows = re.findall(r'<th scope="row">(?:<svg.*?</svg>)([^<]*)</th>', html)
    assert rows[:3] == ["clip", *OWN]  # the final returns


def test_a_pack_draws_them_too(runs, html, tmp_path):
    pack(read_study(runs), tmp_path / "packed")
    assert report_of(read_study(tmp_path / "packed")).page() == html


def test_without_a_picture_the_page_says_so(tmp_path):
    make_run(tmp_path, config(shape=OWN[0], code="abc", **small()))
    own = card(report_of(read_study(tmp_path)).page(), OWN[0])
    assert "executes nothing, and these runs kept no picture" in own


SHOWN = """document.querySelector('[data-chart="learning-curves-0"]').data
    .filter(t => t.visible).map(t => t.meta[0])"""


def test_a_reader_chooses_which_shapes_are_shown(page, html):
    page.open(html)
    page.evaluate("document.getElementById('curves').scrollIntoView()")
    page.wait("document.querySelector('[data-chart=learning-curves-0] .main-svg')")
    assert set(page.evaluate(SHOWN)) >= {"clip", "sapo", *OWN}
    page.click("#curves [data-show=own]")
    assert set(page.evaluate(SHOWN)) == {"clip", *OWN}
    page.click("#curves [data-show=none]")
    assert page.evaluate(SHOWN) == []
    page.click("#curves [data-show=all]")
    assert set(page.evaluate(SHOWN)) >= {"clip", "is", *OWN}
    assert page.errors == []


def test_a_chart_whose_shapes_are_all_hidden_is_no_empty_frame(page, html):
    chart = "document.querySelector('[data-chart=learning-curves-0]')"
    page.open(html)
    page.evaluate("document.getElementById('curves').scrollIntoView()")
    page.wait(f"{chart}.querySelector('.main-svg')")
    width = page.evaluate(f"{chart}.querySelector('.main-svg').clientWidth")
    page.click("#curves [data-show=none]")
    assert page.evaluate(f"{chart}.offsetHeight") == 0
    assert page.evaluate(f"{chart}.parentElement.querySelector('.legend').offsetHeight") > 0
    page.click("#curves [data-show=all]")
    assert page.evaluate(f"{chart}.querySelector('.main-svg').clientWidth") == width > 0


FOLDED = "<details><summary>More</summary><table></table></details>"


def test_paper_is_light_has_its_legends_and_whole_tables(page, html):
    page.open(html.replace("</main>", FOLDED + "</main>"), dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(21, 23, 26)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    folded = "document.querySelectorAll('details:not(.listing, [open]) table').length"
    assert page.evaluate(folded) == 0
    assert page.evaluate("document.querySelectorAll('details.listing[open]').length") == 0
    every = "[...document.querySelectorAll('[data-chart]')]"
    page.wait(f"{every}.every(e => e.querySelector('.main-svg'))")
    widths = page.evaluate(
        f"{every}.map(e => [e.querySelector('.main-svg').clientWidth, e.clientWidth])"
    )
    assert all(drawn == place <= 340 for drawn, place in widths)  # two beside each other on A4
    curves = "document.querySelector('[data-chart=learning-curves-0]')"
    assert "#0072B2" in page.evaluate(f"{curves}.data.map(t => t.line.color)")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ground) == "rgb(21, 23, 26)"
    assert page.evaluate(folded) > 0


def test_a_printed_page_keeps_backgrounds_and_what_would_scroll():
    printed = str(asset("page.css")).partition("@media print")[2]
    assert "print-color-adjust: exact" in printed  # bars and keys are backgrounds
    assert ".scroll { overflow: visible" in printed
