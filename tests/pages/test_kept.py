"""The page of kept tokens, in a real browser: colours, slider, and hostile text."""

import pytest

import klip
from klip.errors import KlipError
from klip.pages.kept import render, report_of_kept
from klip.pages.reading import thinned
from klip.runs.kept import write_kept
from tests.pages.test_reading import frame
from tests.runs.test_kept import columns

pytest_plugins = ["tests.pages.browser"]

HOSTILE = [
    "</script><script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "\u202egnp.exe\u2066\u2069\u200f",
    "x" * 10_000,
    "{{ 7 * 7 }}",
    "\x00\x1b[31m",
    "\ud800".encode("utf-8", "replace").decode(),
]


def tokens(texts, step=1, **changes):
    count = len(texts)
    one = columns(step)
    spread = {name: [values[1]] * count for name, values in one.items()}
    return spread | {"text": texts, "place": list(range(count))} | changes


def test_hostile_text_does_no_harm(page):
    names = {"shape": ["</script><b>clip"] * len(HOSTILE), "prompt": HOSTILE}
    page.open(render(frame(tokens(HOSTILE, **names)), "</title><script>window.hit = 1</script>"))
    assert page.evaluate("window.hit") is None
    assert not page.errors
    assert not page.external
    assert page.overflow() == 0
    shown = page.evaluate("[...document.querySelectorAll('#samples .token[data-told]')]"
                          ".map(e => e.textContent)")  # fmt: skip
    assert shown[:2] == HOSTILE[:2]
    assert shown[2] == "\\u202egnp.exe\\u2066\\u2069\\u200f"
    assert len(shown[3]) < 200
    assert shown[4] == "{{ 7 * 7 }}"
    assert page.evaluate("document.querySelectorAll('#samples img, main b').length") == 0


def test_the_slider_goes_through_training(page):
    page.open(render(frame(tokens(["early"]), tokens(["late"], step=7)), "run"), width=390)
    text = "document.querySelector('#samples .rows').textContent"
    assert "early" in page.evaluate(text)
    page.set("#samples input[type=range]", 1)
    page.wait(f"{text}.includes('late')")
    assert page.evaluate("document.querySelector('output.step').textContent") == "7"
    assert page.evaluate("document.querySelector('#samples .token.zeroed[data-told]') !== null")
    page.click("#samples .token[data-told]")
    told = page.evaluate("document.querySelector('output.token-says').textContent")
    assert told == "late  zeroed: w 1.5, A +1, kill, answer, m 0"
    assert page.overflow() == 0


def test_a_report_of_a_folder_with_tokens(tmp_path):
    write_kept(tmp_path / "run", 1, columns())
    (written,) = klip.report(tmp_path / "run", tmp_path / "page.html")
    html = written.read_text()
    assert "Which tokens did the trust region let go?" in html
    assert len(html) < 300_000  # without a chart there is no library of charts
    for option in ({"watch": True}, {"figures": tmp_path / "f"}):
        with pytest.raises(KlipError, match="leave out"):
            klip.report(tmp_path / "run", tmp_path / "page.html", **option)


def test_a_page_of_a_long_run_says_that_it_shows_some_steps(monkeypatch):
    monkeypatch.setattr("klip.pages.kept.thinned", lambda frame: thinned(frame, most=4))
    html = render(frame(*(tokens(["a", "b"], step=step) for step in range(1, 8))), "run")
    assert "14 tokens of 7 completions, kept at 7 steps" in html
    assert "goes through 2 of the 7 steps" in html
    assert "goes through" not in render(frame(tokens(["a"])), "run")


def test_a_folder_without_tokens_is_none_of_its_business(tmp_path):
    assert report_of_kept(tmp_path) is None
