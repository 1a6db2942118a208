"""Over tasks: what is pooled, what is left out, what the numbers are, and where they are shown."""

import csv
import re

import numpy as np
import pytest

from klip.draw.figures import across_tasks
from klip.draw.style import save
from klip.pages.report import render
from klip.pages.writing import write_tables
from klip.studies.across import across, records, thresholds
from klip.studies.packing import pack
from klip.studies.scores import Scores
from klip.studies.statistics import iqm, mean, probability_of_improvement
from klip.studies.study import Study, read_study
from tests.pages.test_report import text_of
from tests.studies.folders import FORMS, config, make_run, make_study, small

pytest_plugins = ["tests.pages.browser"]

TASKS = ("CartPole-v1", "Hopper-v4")
SHAPES = (*FORMS[:2], "spo(eps=0.2)")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two tasks with three shapes and some that do not fit; one run diverged."""
    out = tmp_path_factory.mktemp("runs")
    make_study(out, TASKS[:1], SHAPES, 4, **small())
    make_study(out, TASKS[1:], SHAPES[:2], 3, **small())
    for seed in range(2):
        make_run(out, config(TASKS[1], SHAPES[2], seed, **small()))
    make_run(out, config(TASKS[1], SHAPES[2], 2, **small()), 5, "diverged", "not finite")
    make_run(out, config(TASKS[1], SHAPES[2], 3, **small()), 5, "running")
    make_run(out, config(TASKS[0], "clip(eps=0.3)", **small()))
    make_run(out, config(TASKS[0], SHAPES[0], **small(lr=1.0)))
    make_study(out, ["Ant-v4"], SHAPES[:2], 2, **small())
    make_study(out, ["Walker2d-v4"], SHAPES[1:], 3, **small())
    return read_study(out)


@pytest.fixture(scope="module")
def pool(study):
    return across(study)


def variant(study, task, shape):
    return next(v for v in study.of(task) if v.shape == shape and v.settings["lr"] != 1.0)


def test_a_table_without_holes(pool):
    assert [part.task for part in pool.tasks] == list(TASKS)
    assert [row.shape for row in pool.shapes] == list(SHAPES)
    assert [part.seeds for part in pool.tasks] == [(0, 1, 2)] * 2
    assert pool.seeds == 3
    assert [(part.spare, part.unended) for part in pool.tasks] == [(3, 0), (0, 1)]


def test_what_is_left_out_is_named(pool):
    assert pool.tasks_left == (
        ("Ant-v4", "without spo"),
        ("Walker2d-v4", "PPO-Clip has not ended there"),
    )
    assert pool.shapes_left == ("clip, lr 1", "clip(eps=0.3)")


def test_zero_is_the_first_iteration_and_one_is_clip(study, pool):
    for part in pool.tasks:
        firsts = [r.metrics["return_mean"][0] for r in study.runs if r.task == part.task]
        assert part.zero == pytest.approx(np.mean(firsts), rel=1e-12)
        clip = variant(study, part.task, SHAPES[0])
        assert part.one == pytest.approx(np.mean(list(clip.scores.values())), rel=1e-12)


def test_scores_and_statistics_are_those_of_the_module(study, pool):
    clip, per_sample, spo = pool.shapes
    for row in pool.shapes:
        for part, values in zip(pool.tasks, row.scores.values, strict=True):
            known = variant(study, part.task, row.shape).scores
            raw = [known[seed] for seed in part.seeds if known[seed] is not None]
            scaled = np.sort((np.array(raw) - part.zero) / (part.one - part.zero))
            np.testing.assert_allclose(values[len(values) - len(raw) :], scaled, rtol=1e-12)
        assert row.iqm == iqm(row.scores)
        assert row.mean == mean(row.scores)
        assert row.iqm.method == "expanded-percentile bootstrap"
    assert clip.better is None
    assert per_sample.same
    assert per_sample.better.estimate == 0.5
    assert spo.better == probability_of_improvement(spo.scores, clip.scores)


def test_a_diverged_run_counts_at_the_lowest_score(pool):
    spo = pool.shapes[2]
    assert (pool.diverged, spo.scores.diverged, spo.scores.counted) == (1, 1, 1)
    lowest = min(row.scores.values[1].min() for row in pool.shapes)
    assert spo.scores.values[1, 0] == lowest <= 0
    assert spo.iqm.diverged == 1


def test_profiles_fall_from_all_to_none(pool):
    for row in pool.shapes:
        p = row.profile
        assert (p.fraction[0], p.fraction[-1]) == (1, 0)
        assert (np.diff(p.fraction) <= 0).all()
        assert (p.low <= p.fraction).all()
        assert (p.fraction <= p.high).all()
    taus = thresholds([Scores.of([-35.0, 12.5])])
    assert taus[0] < -35
    assert taus[-1] > 12.5
    assert 80 < taus.size < 200


@pytest.mark.parametrize(
    "make",
    [
        lambda out: make_study(out, TASKS[:1], SHAPES, 2, **small()),
        lambda out: make_study(out, TASKS, SHAPES[:1], 2, **small()),
        lambda out: make_study(out, TASKS, SHAPES[1:], 2, **small()),
        lambda out: [make_run(out, config(t, s, seed, **small()))
                     for seed, s in enumerate(SHAPES) for t in TASKS],
        lambda out: [make_run(out, config(t, s, **small(lr=lr))) for t in TASKS
                     for s, lr in zip(SHAPES, (0.1, 0.2, 0.3), strict=True)],
        lambda out: [make_run(out, config(t, s, **small()), level=-100.0)
                     for t in TASKS for s in SHAPES],
        lambda out: [make_run(out, config(t, s, **small()), 3, "running")
                     for t in TASKS for s in SHAPES],
        lambda out: [make_run(out, config(t, s, **small()), 3, "diverged", "nan")
                     for t in TASKS for s in SHAPES],
    ],
    ids=["one task", "one shape", "no clip", "no seed shared", "settings", "no progress",
         "running", "diverged"],
)  # fmt: skip
def test_nothing_to_pool(make, tmp_path):
    make(tmp_path)
    study = read_study(tmp_path)
    assert across(study) is None
    assert across_tasks(study) is None
    assert "across.csv" not in [path.name for path in write_tables(study, tmp_path / "out")]


def test_no_runs():
    assert across(Study(())) is None


def test_one_seed_has_no_interval(tmp_path):
    make_study(tmp_path, TASKS, SHAPES, 1, **small())
    study = read_study(tmp_path)
    row = across(study).shapes[2]
    assert row.iqm.low is None
    assert row.better.low is None
    assert row.profile.low is None
    assert across_tasks(study) is not None
    assert "one seed: nothing can be said about the next" in text_of(render(study))


def test_a_task_with_one_seed_does_not_cost_the_others_theirs(tmp_path):
    make_study(tmp_path, TASKS, SHAPES, 3, **small())
    make_study(tmp_path, ["Ant-v4"], SHAPES, 1, **small())
    found = across(read_study(tmp_path))
    assert [part.task for part in found.tasks] == list(TASKS)
    assert found.seeds == 3
    assert found.tasks_left == (("Ant-v4", "only 1 seed at which all shapes have ended"),)


def test_a_shape_that_always_diverges_is_pooled(tmp_path):
    make_study(tmp_path, TASKS, SHAPES[:1], 2, **small())
    for task in TASKS:
        for seed in range(2):
            made = config(task, SHAPES[2], seed, **small())
            make_run(tmp_path, made, 3, "diverged", "nan")
    row = across(read_study(tmp_path)).shapes[1]
    assert (row.scores.diverged, row.better.estimate) == (4, 0.0)
    assert row.iqm.estimate <= 0


def test_every_number_is_in_the_csv(study, pool, tmp_path):
    (path,) = (p for p in write_tables(study, tmp_path) if p.name == "across.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(records(pool))
    kinds = {row["statistic"] for row in rows}
    assert kinds == {"zero", "one", "iqm", "mean", "improvement", "profile"}
    (found,) = (r for r in rows if (r["statistic"], r["label"]) == ("improvement", "spo"))
    assert float(found["estimate"]) == pool.shapes[2].better.estimate
    assert (found["tasks"], found["seeds"], found["diverged"]) == ("2", "3", "1")


def test_the_figure_draws_the_profiles(pool, study):
    (axes,) = across_tasks(study).axes
    lines = dict(zip((r.label for r in pool.shapes), axes.get_lines(), strict=True))
    assert list(lines) == ["clip", "per-sample", "spo"]
    np.testing.assert_array_equal(lines["spo"].get_ydata(), pool.shapes[2].profile.fraction)
    assert lines["per-sample"].get_linestyle() == "--"


def test_the_page_says_it(study, page, tmp_path):
    html = render(study)
    (section,) = re.findall(r'(?s)<section id="across">.*?</section>', html)
    assert html.index('id="paired"') < html.index('id="across"') < html.index('id="curves"')
    assert html.count('href="#across"') == 1
    said = text_of(section)
    for sentence in (
        "Final returns of 2 tasks × 3 seeds of each shape",
        "1 is PPO-Clip’s mean final return in this study",
        "1 run diverged and counts at the lowest score of its task, 0 or less",
        "3 at other seeds",
        "1 without a final return",
        "Tasks left out: Ant-v4 (without spo); Walker2d-v4 (PPO-Clip has not ended there).",
        "enough seeds: clip, lr 1; clip(eps=0.3).",
        "same scores",
        "2 × 3 1 diverged",
    ):
        assert sentence in said, sentence
    pack(study, tmp_path / "packed")
    again = read_study(tmp_path / "packed")
    assert render(again) == html
    for a, b in zip(
        write_tables(study, tmp_path / "a"), write_tables(again, tmp_path / "b"), strict=True
    ):
        assert a.read_bytes() == b.read_bytes(), a.name
    for name, made in (("a", study), ("b", again)):
        save(across_tasks(made), tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    page.open(html, width=390, dark=True)
    page.evaluate("document.getElementById('across').scrollIntoView()")
    page.wait("document.querySelector('[data-chart=across] .main-svg')")
    traces = "document.querySelector('[data-chart=across]').data"
    assert page.evaluate(f"{traces}.map(t => t.line.shape)") == ["hv"] * 7
    page.click("#across .legend button[data-label=spo]")
    assert page.evaluate(f"{traces}.map(t => t.visible)") == [True] * 4 + [False] * 3
    assert page.errors == []
    assert page.external == []
    assert page.overflow() == 0
