"""The page: what it says, what it copes with, what a browser makes of it."""

import json
import re
import threading
import time

import numpy as np
import pytest

from klip.draw.as_matplotlib import drawn as figure_of
from klip.draw.pictures import pictures
from klip.pages.writing import report_of, watch, write_report, write_tables
from klip.runs import RunFolder, read_run
from klip.studies.findings import find
from klip.studies.packing import pack
from klip.studies.reading import read_study
from klip.studies.study import Study
from tests.studies.folders import FORMS, config, make_pooled, make_run, make_study, small

pytest_plugins = ["tests.pages.browser"]

SECTIONS = ("answer", "curves", "sweeps", "partition", "beta", "table", "returns", "differences",
            "identity", "shapes", "run", "runs", "explorer-section", "reading")  # fmt: skip
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u2028'\"&"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A bit of everything."""
    out = tmp_path_factory.mktemp("runs")
    make_study(out, shapes=FORMS[:2], seeds=3)
    make_study(out, ["Hopper-v4"], (*FORMS, "clip(eps=0.3)"), 2, **small())
    make_run(out, config(shape="spo(eps=0.2)"), 7, "diverged", "the ratio is not finite")
    make_run(out, config(shape="spo(eps=0.2)", seed=1), 9, "running")
    return read_study(out)


@pytest.fixture(scope="module")
def html(study):
    return render(study)


def render(study):
    return report_of(study).page()


def text_of(html):
    """What a person reads: no scripts, no styles, no tags."""
    bare = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", html)
    return " ".join(re.sub(r"<[^>]+>", " ", bare).split())


def test_old_samples_have_a_section_that_says_how_they_were_learned_from(tmp_path, html):
    for fields in ({}, {"replay": 2}, {"lag": 1}):
        make_run(tmp_path, config(**small(**fields)))
    study = read_study(tmp_path)
    for run in study.runs:
        if run.settings["replay"] == 2:
            names = [f"age.{name}" for name in ("samples", "zeroed", "pull", "ess")]
            run.metrics.update({name: np.tile([0.5, 0.4], (run.rows, 1)) for name in names})
    page = render(study)
    said = text_of(page)
    assert "clip, replay 2 : an iteration collects 64 samples and learns from 128, in 10" in said
    assert "as many as without replay" in said
    assert "clip, lag 1 : the policy of 1 iteration ago acts" in said
    for name in ("staleness-0", "staleness-1", "ages-0"):
        assert f'"{name}"' in page
    first = page[page.index('<section id="answer">') : page.index('<section id="curves">')]
    assert first.index('"staleness-0"') < first.index('"intervals-0"')
    assert 'id="ages"' not in html


def test_the_whole_is_said(html):
    said = text_of(html)
    for sentence in (
        "16 runs of 5 shapes on 2 tasks",
        "14 of 16 runs are done; 1 stopped; 1 diverged",
        "5 of 5 seeds: PPO-Clip and its other forms trained to the same bytes",
        "It holds for all 5.",
        "the ratio is not finite",
        "2 to 3 seeds behind an interval",
        "paper 478 ± 18",
        "steps 1,280 (paper: 1,000,000)",
        "2 at 0.2, 2 at 0.3",
        "Klip 0.1.0",
        "numpy",
    ):
        assert sentence in said, sentence
    for section in SECTIONS:
        assert html.count(f'<section id="{section}">') == 1
        assert html.count(f'href="#{section}"') == 1


def test_every_interval_says_its_seeds(html):
    rows = re.findall(r"<tr>(?:(?!</tr>).)*?<td class=\"wide\">.*?</tr>", html, re.DOTALL)
    assert len(rows) == 2 + 1 * 0 + 4 + 1 + 3
    for row in rows:
        assert re.search(r'<td class="num">[123]</td>', row), row


def test_one_changed_array_breaks_the_identity(tmp_path):
    make_study(tmp_path, shapes=FORMS, seeds=2, **small())
    (path,) = tmp_path.glob("*/per-sample*/seed-1-*")
    record = read_run(path)
    arrays = {**record.arrays, "policy/w": np.array(record.arrays["policy/w"])}
    arrays["policy/w"][0, 0] += 1e-12
    folder = RunFolder(path, record.config)
    folder.save(record.iteration, arrays, "done")
    folder.close()
    said = text_of(render(read_study(tmp_path)))
    assert "1 of 2 seeds break the identity" in said
    assert "It does not hold for 1 of 2" in said
    assert "per-sample has the metrics of clip, but not its parameters and statistics" in said
    rows = re.findall(r"eps=0\.2, steps[^|]*? (identical|differs)", said)
    assert rows == ["identical", "differs"]


def test_the_same_bytes_from_folders_and_from_a_pack(study, html, tmp_path):
    pack(study, tmp_path / "packed")
    again = read_study(tmp_path / "packed")
    assert render(again) == html
    first, second = (
        write_tables(report_of(one), tmp_path / name) for one, name in ((study, "a"), (again, "b"))
    )
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name


def test_nothing_in_a_name_can_act(tmp_path, page):
    """The names of a config, and the reason that a task's own error gave."""
    task, shape = f"{EVIL[:-4]}-v0", f"my.py:{EVIL[:-4]}"
    make_run(tmp_path, config(task=task, shape=shape, **small()))
    make_run(tmp_path, config(task=task, shape=shape, seed=1, **small()), 3, "diverged", EVIL)
    html = render(read_study(tmp_path))
    assert "<img" not in html.partition("plotly.js v")[0]
    assert "executes nothing" in text_of(html)
    trap = "<script>window.alert = () => { window.hit = 1 }</script>"
    page.open(html.replace("<head>", f"<head>{trap}"))
    drawn(page, "learning-curves-0")
    assert page.evaluate("[window.hit, document.images.length]") == [None, 0]
    assert page.evaluate("document.querySelector('#run tbody th').textContent") == task
    assert page.errors == []


@pytest.mark.parametrize(
    "make",
    [
        lambda out: None,
        lambda out: make_run(out, config(**small())),
        lambda out: make_run(out, config(**small()), 0, "running"),
        lambda out: make_run(out, config(**small()), 1, "running"),
        lambda out: make_run(out, config(**small()), 3, "diverged", "nan"),
        lambda out: make_run(out, config(**small()), 3, "failed", "raised"),
        lambda out: [make_run(out, config(seed=s, **small()), 2 + s, "running") for s in (0, 9)],
        lambda out: make_run(out, config(**small()), without=("kill", "pass", "beta", "beta_kill")),
        lambda out: make_run(out, config(shape="no-such(a=1)", task="Gone-v9", **small())),
        lambda out: [make_run(out, config(shape=s, **small(steps=n)))
                     for s, n in zip(FORMS, (640, 1280, 1920), strict=True)],
    ],
    ids=["empty", "one", "begun", "one row", "diverged", "failed", "lengths", "metrics", "unknown",
         "steps"],
)  # fmt: skip
def test_whatever_there_is(make, tmp_path, page):
    (tmp_path / "runs").mkdir()
    make(tmp_path / "runs")
    path = tmp_path / "report.html"
    study = read_study(tmp_path / "runs")
    write_report(study, path, None)
    write_tables(report_of(study), tmp_path / "files")
    for picture in pictures(find(study)).values():
        figure_of(picture)
    page.open(path)
    page.settle()
    assert not page.errors
    assert not page.external


def test_pictures_come_before_tables(html):
    assert html.index('id="answer"') < html.index('id="curves"') < html.index("<table")
    assert "running mean over 5 % of training" in text_of(html)


# -- in a browser ---------------------------------------------------------------------------------


def visible(page, chart, label):
    return page.evaluate(
        f"""document.querySelector('[data-chart="{chart}"]').data
        .filter(t => t.meta && t.meta[0] === {json.dumps(label)}).map(t => t.visible)"""
    )


def drawn(page, chart):
    page.evaluate(f"""document.querySelector('[data-chart="{chart}"]').scrollIntoView()""")
    page.wait(f"""document.querySelector('[data-chart="{chart}"] .main-svg')""")
    page.settle()


def test_it_opens_without_a_network(page, html):
    page.open(html)
    for element in page.evaluate(
        "[...document.querySelectorAll('[data-chart]')].map(e => e.dataset.chart)"
    ):
        drawn(page, element)
    assert page.errors == []
    assert page.external == []
    assert len(page.requests) == 1 or all(r.startswith(("file:", "data:")) for r in page.requests)


def test_a_shape_is_hidden_everywhere(page, html):
    page.open(html)
    drawn(page, "learning-curves-0")
    drawn(page, "learning-curves-1")
    assert set(visible(page, "learning-curves-0", "clip")) == {True}
    page.click('#curves figure:first-child button[data-label="clip"]')
    assert set(visible(page, "learning-curves-0", "clip")) == {False}
    assert set(visible(page, "learning-curves-1", "clip")) == {False}
    assert set(visible(page, "learning-curves-0", "per-sample")) == {True}
    pressed = page.evaluate(
        """[...document.querySelectorAll('button[data-label="clip"]')]
        .map(b => b.getAttribute('aria-pressed'))"""
    )
    assert set(pressed) == {"false"}
    page.click('#curves figure:first-child button[data-label="clip"]')
    assert set(visible(page, "learning-curves-1", "clip")) == {True}


def test_dragging_zooms(page, html):
    page.open(html)
    drawn(page, "learning-curves-0")
    ask = """document.querySelector('[data-chart="learning-curves-0"]').layout.xaxis.range"""
    before = page.evaluate(ask)
    x, y, width, height = page.evaluate(
        """(() => { const b = document.querySelector('[data-chart="learning-curves-0"] .nsewdrag')
        .getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"""
    )
    page.mouse("mouseMoved", x + 0.3 * width, y + 0.5 * height)
    page.mouse("mousePressed", x + 0.3 * width, y + 0.5 * height)
    page.mouse("mouseMoved", x + 0.6 * width, y + 0.52 * height)
    page.mouse("mouseReleased", x + 0.6 * width, y + 0.52 * height)
    page.wait(f"JSON.stringify({ask}) !== '{json.dumps(before, separators=(',', ':'))}'")
    after = page.evaluate(ask)
    assert before[0] < after[0] < after[1] < before[1]


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(page, html, width):
    page.open(html, width=width)
    page.settle()
    assert page.overflow() == 0
    assert page.errors == []


def test_the_dark_page_has_its_own_colours(page, html):
    found = []
    for dark in (False, True):
        page.open(html, dark=dark)
        drawn(page, "learning-curves-0")
        found.append(page.evaluate(
            """[getComputedStyle(document.body).backgroundColor,
            document.querySelector('[data-chart="learning-curves-0"]').data.at(-1).line.color]"""
        ))  # fmt: skip
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_what_was_smoothed_is_shown_on_demand(page, tmp_path):
    make_study(tmp_path, shapes=["clip(eps=0.2)"], seeds=2, **small(steps=200 * 64))
    page.open(render(read_study(tmp_path)))
    drawn(page, "learning-curves-0")
    count = """document.querySelector('[data-chart="learning-curves-0"]').data.length"""
    before = page.evaluate(count)
    page.click("#raw")
    assert page.evaluate(count) == before + 1
    page.click("#raw")
    assert page.evaluate(count) == before


def test_the_page_says_what_is_pooled(page, tmp_path):
    study = read_study(make_pooled(tmp_path / "runs"))
    html = render(study)
    (section,) = re.findall(r'(?s)<section id="across">.*?</section>', html)
    assert html.index('id="curves"') < html.index('id="across"') < html.index('id="differences"')
    assert html.count('href="#across"') == 1
    said = text_of(section)
    for sentence in (
        "Final returns of 2 tasks × 3 seeds of each shape",
        "1 is PPO-Clip’s mean final return in this study",
        "1 run diverged and counts at the lowest score of its task, 0 or less",
        "3 at other seeds",
        "1 without a final return",
        "Tasks left out: Ant-v4 (without spo); Walker2d-v4 (PPO-Clip has not ended there).",
        "2 left out: other settings than those pooled, or not on every pooled task",
        "clip, lr 1; clip(eps=0.3).",
        "same scores",
        "2 × 3 1 diverged",
    ):
        assert sentence in said, sentence
    page.open(html, width=390, dark=True)
    page.evaluate("document.getElementById('across').scrollIntoView()")
    page.wait("document.querySelector('[data-chart=across-tasks-0] .main-svg')")
    traces = "document.querySelector('[data-chart=across-tasks-0]').data"
    assert page.evaluate(f"{traces}.map(t => t.line.shape)") == ["hv"] * 7
    page.click("#across .legend button[data-label=spo]")
    assert page.evaluate(f"{traces}.map(t => t.visible)") == [True] * 4 + [False] * 3
    assert page.errors == []
    assert page.external == []
    assert page.overflow() == 0


# -- while runs go on ------------------------------------------------------------------------------


def test_watching_ends_with_the_runs(tmp_path):
    fields = config(**small())
    path = make_run(tmp_path / "runs", fields, 3, "running")
    page, said = tmp_path / "report.html", []
    folder = RunFolder(path, fields)

    def finish():
        while not said:
            time.sleep(0.01)
        assert "Kept fresh" in page.read_text()
        folder.save(3, {"w": np.zeros(2)}, "done")
        folder.close()

    other = threading.Thread(target=finish)
    other.start()
    study = watch(tmp_path / "runs", page, 0.05, said.append, {})
    other.join()
    assert [run.status for run in study.runs] == ["done"]
    assert [line.rpartition(": ")[2] for line in said] == ["0 of 1 runs done", "1 of 1 runs done"]


def test_watching_an_empty_folder_waits(tmp_path):
    said = []
    watch(tmp_path, tmp_path / "report.html", 0.01, said.append, {}, times=3)
    assert said == [f"wrote {tmp_path / 'report.html'}: 0 of 0 runs done"]
    assert render(Study(())).count("There are no runs here yet") == 1
