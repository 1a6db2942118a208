"""What the page says of step sizes."""

import re

import pytest

from klip.pages.step_sizes import answer, context
from klip.pages.writing import report_of
from klip.studies.findings import find
from klip.studies.reading import read_study
from klip.studies.study import Study
from tests.studies.folders import config, make_run, small
from tests.studies.test_step_sizes import make

pytest_plugins = ["tests.pages.browser"]


def told(tmp_path, levels, **more):
    return context(find(read_study(make(tmp_path, levels, **more))))


def test_a_shape_that_reverses_and_breaks_early_is_found_out(tmp_path):
    levels = {"clip(eps=0.2)": (900, 900, 900), "spo(eps=0.2)": (900, 20, 20)}
    said = told(tmp_path, levels, seeds=4)
    assert said["answer"] == (
        "Step sizes survived by shapes that reverse (T2 does not hold: spo), less those of shapes "
        "that do not (clip): −2.00 [−2.00, −2.00]; those that reverse are shown to break earlier, "
        "as T2 and T4 say."
    )
    t2 = said["told"][0]
    assert t2["claim"].name.startswith("T2")
    assert t2["says"] == "those that keep it survive longer"


def test_one_that_reverses_and_survives_longer_is_said_too(tmp_path):
    levels = {"clip(eps=0.2)": (900, 20, 20), "spo(eps=0.2)": (900, 900, 900)}
    said = told(tmp_path, levels, seeds=4)
    assert "(clip): +2.00 [+2.00, +2.00]; those that reverse" in said["answer"]
    assert "shown to survive longer, against what T2 and T4 say" in said["answer"]


def test_what_does_not_differ_is_open(tmp_path):
    levels = {"clip(eps=0.2)": (900, 900, 20), "spo(eps=0.2)": (900, 900, 20)}
    said = told(tmp_path, levels, epochs=(10,))
    assert "shown to break neither earlier nor later" in said["answer"]
    assert {line["says"] for line in said["told"]} == {"open: these seeds do not tell"}


def test_nothing_is_claimed_from_one_seed(tmp_path):
    levels = {"clip(eps=0.2)": (900, 900, 900), "spo(eps=0.2)": (900, 20, 20)}
    said = told(tmp_path, levels, epochs=(10,), seeds=1)
    assert "neither earlier nor later" in said["answer"]
    assert said["told"][0]["says"] == "one seed: nothing can be said about the next"


def test_without_one_that_reverses_there_is_no_answer(tmp_path):
    said = told(tmp_path, {"clip(eps=0.2)": (900, 900), "sapo": (900, 20)}, epochs=(10,))
    assert said["answer"] == ""
    assert answer([]) == ""
    assert context(find(Study(()))) is None


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = make(tmp_path_factory.mktemp("runs"), seeds=2)
    make_run(out, config("Hopper-v4", "is", **small(lr=3e-4, epochs=10)))
    make_run(out, config("Hopper-v4", "is", **small(lr=3e-3, epochs=10)))
    return report_of(read_study(out))


def test_the_page_has_the_curves_the_breaks_and_the_verdicts(report):
    page = report.page()
    section = re.search(r'(?s)<section id="step-sizes">.*?</section>', page).group()
    said = " ".join(re.sub(r"<[^>]+>", " ", section).split())
    assert "Breaks on Hopper-v4, epochs 40" in said
    assert "spo T1 yes, T2 no, T3 yes at 0.03 at 0.03 2.00" in said
    assert "sapo T1 no, T2 yes, T3 no at 0.003 at 0.003 1.00" in said
    assert "not run" in said
    assert "because not every step size of theirs has ended: is." in said
    assert "shapes that reverse (T2 does not hold: spo)" in said
    for name in ("step-sizes-0", "step-sizes-1", "endurance-0", "promises-2"):
        assert f'"{name}"' in page
    assert '<a href="#step-sizes">' in page


def test_files_beside_the_page(report):
    assert report.tables()["step-sizes.csv"].startswith("task,settings,shape,label,lr,return")
    assert {"step-sizes", "endurance", "promises"} <= report.figures().keys()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_draws_it(page, report, width):
    page.open(report.page(), width=width)
    for chart in ("step-sizes-0", "endurance-0", "promises-2"):
        page.evaluate(f"""document.querySelector('[data-chart="{chart}"]').scrollIntoView()""")
        page.wait(f"""document.querySelector('[data-chart="{chart}"] .main-svg')""")
    assert (page.errors, page.external, page.overflow()) == ([], [], 0)
