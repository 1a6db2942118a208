"""The token page: what it says, and what a real browser makes of it."""

import shutil

import polars as pl
import pytest

from klip.draw import arms as arm_pictures
from klip.draw.as_matplotlib import write
from klip.pages.tokens import conclusion
from klip.pages.words import points, verdict
from klip.pages.writing import report_of, write_report
from klip.runs.kept import SCHEMA
from klip.studies.arms import find_arms
from klip.studies.packing import pack
from klip.studies.reading import read_study
from klip.studies.scores import Estimate
from klip.studies.study import Study
from tests.studies.test_arms import fake
from tests.studies.token_folders import make_experiment

pytest_plugins = ["tests.pages.browser"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return make_experiment(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def copy(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "copy")


def render(folder):
    return report_of(read_study(folder)).page()


def test_the_conclusion_says_what_the_intervals_allow_and_no_more():
    arms = [
        fake("plain", [0.70, 0.72, 0.71, 0.69, 0.73], place=0),
        fake("better", [0.80, 0.83, 0.81, 0.80, 0.84], place=1),
        fake("worse", [0.50, 0.55, 0.52, 0.50, 0.51], place=2),
        fake("unclear", [0.60, 0.85, 0.71, 0.75, 0.66], place=3),
    ]
    (group,) = find_arms(Study(tuple(run for arm in arms for run in arm.runs))).groups
    told = conclusion(group)
    higher, lower, left = (
        next(line for line in told if line.startswith(how))
        for how in ("Shown to end higher", "Shown to end lower", "Not told apart")
    )
    assert "“better” (" in higher
    assert "“worse” (" in lower
    assert "“unclear” (" in left
    assert "better" not in left


@pytest.mark.parametrize(
    ("estimate", "p", "p_holm", "said"),
    [(0.1, 0.01, 0.04, "higher"), (-0.1, 0.01, 0.04, "lower"), (0.1, 0.01, 0.06, "open"),
     (0.1, 0.01, None, "higher"), (0.1, None, None, "open"), (0.1, 0.2, 0.2, "open")],
)  # fmt: skip
def test_a_verdict_needs_a_p_value_that_outlives_the_correction(estimate, p, p_holm, said):
    assert verdict(Estimate(estimate, 0.0, 0.2, 5, "t", 0.95, p=p, p_holm=p_holm)) == said


def test_points_have_a_sign():
    assert [points(x) for x in (0.1, -0.1, 0.0, None)] == ["+10.0", "−10.0", "0.0", "–"]


def test_the_packed_form_is_small_and_gives_the_same_page(trained, tmp_path):
    made = pack(read_study(trained), tmp_path / "packed")
    assert made.size < 200_000
    assert render(tmp_path / "packed") == render(trained)
    shutil.copytree(trained, tmp_path / "elsewhere")
    assert render(tmp_path / "elsewhere") == render(trained)


def test_figures_are_written_and_are_the_same_twice(trained, tmp_path):
    study = read_study(trained)
    described = arm_pictures.pictures(find_arms(study))
    stems = {picture.stem for kinds in described.values() for picture in kinds.values()}
    assert {"position-accuracy", "position-differences", "age-by-age"} <= stems
    one = write(report_of(study).figures(), tmp_path / "one")
    two = write(report_of(study).figures(), tmp_path / "two")
    assert len(one) == 3 * len(stems)
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True))
    assert write_report(study, tmp_path / "page.html", None) == [tmp_path / "page.html"]


def test_the_tokens_of_the_page_are_written_as_parquet(trained, tmp_path):
    study = read_study(trained)
    written = write_report(study, tmp_path / "page.html", tmp_path / "figures")
    (path,) = [path for path in written if path.suffix == ".parquet"]
    kept = pl.read_parquet(path)
    assert kept.columns == ["arm", "seed", *SCHEMA]
    assert dict(kept.select(list(SCHEMA)).schema) == SCHEMA
    shown = [run for run in study.runs if run.seed == 0 and run.status == "done"]
    assert set(kept["shape"]) <= {run.shape for run in shown}
    assert kept["part"].is_null().all()  # these runs did not keep it
    first = kept.filter(pl.col("arm") == kept["arm"][0], pl.col("sequence") == 0)
    assert "".join(first["text"]) == "4+5=9#9$"


def test_a_metrics_file_that_was_changed_is_said_on_the_page(copy):
    path = next(copy.rglob("metrics.jsonl"))
    path.write_text(path.read_text().replace('"iteration": 2', '"iteration": 9'))
    assert "metrics.jsonl is damaged" in render(copy)


def test_a_run_that_lost_its_checkpoint_is_said_on_the_page(copy):
    folder = next(copy.rglob("metrics.jsonl")).parent
    (folder / "checkpoint.safetensors").write_bytes(b"nothing")
    (folder / "previous.safetensors").unlink(missing_ok=True)
    assert [run.status for run in read_study(copy).runs].count("damaged") == 1
    assert "9 of 10" in render(copy)


def test_a_page_can_be_made_while_runs_go_on(copy):
    """An arm without a run that is done, and ages that never came up, leave the page whole."""
    for folder in [p.parent for p in copy.rglob("config.json") if "hard_drop" in str(p)]:
        shutil.rmtree(folder)
    for path in copy.rglob("config.json"):
        if "wide_clip" in str(path):
            (path.parent / "checkpoint.safetensors").unlink()
            (path.parent / "previous.safetensors").unlink(missing_ok=True)
    assert "Without a seed that is done in both: “wide clip”" in render(copy)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_opens_without_network_or_errors(page, trained, width, dark):
    page.open(render(trained), width=width, dark=dark)
    page.evaluate("document.querySelectorAll('[data-chart]').forEach(e => e.scrollIntoView())")
    page.wait("document.querySelectorAll('.chart svg').length > 0")
    assert not page.errors
    assert not page.external
    assert page.overflow() == 0
    assert page.evaluate("document.querySelector('h1').textContent").startswith("Which tokens")
    assert page.evaluate("document.querySelectorAll('#samples .sample').length") > 0


def test_a_token_tells_its_ratio_advantage_and_pull(page, trained):
    page.open(render(trained))
    page.click("#samples details[open] .sample .token")
    told = page.evaluate("document.querySelector('output.token-says').textContent")
    assert all(name in told for name in ("w ", "A ", "m "))


def test_names_from_a_plan_are_text_and_never_markup(page, trained):
    page.open(render(trained))
    assert page.evaluate("document.querySelector('answer')") is None
    assert "sharp <answer>" in page.evaluate("document.body.textContent")
