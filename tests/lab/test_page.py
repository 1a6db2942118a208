"""The page in a real browser: nothing is fetched, nothing fails, and tokens tell of themselves."""

import pytest

from klip.lab.page import render
from klip.lab.results import read_results

pytest_plugins = ["tests.pages.browser"]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_opens_without_network_or_errors(page, trained, width, dark):
    page.open(render(read_results(trained)), width=width, dark=dark)
    page.evaluate("document.querySelectorAll('[data-chart]').forEach(e => e.scrollIntoView())")
    page.wait("document.querySelectorAll('.chart svg').length > 0")
    assert not page.errors
    assert not page.external
    assert page.overflow() == 0
    assert page.evaluate("document.querySelector('h1').textContent").startswith("Which tokens")
    assert page.evaluate("document.querySelectorAll('#samples .sample').length") > 0


def test_a_token_tells_its_ratio_advantage_and_pull(page, trained):
    page.open(render(read_results(trained)))
    page.click("#samples details[open] .sample .token")
    told = page.evaluate("document.querySelector('output.token-says').textContent")
    assert all(name in told for name in ("w ", "A ", "m "))


def test_names_from_a_plan_are_text_and_never_markup(page, trained):
    page.open(render(read_results(trained)))
    assert page.evaluate("document.querySelector('answer')") is None
    assert "sharp <answer>" in page.evaluate("document.body.textContent")
