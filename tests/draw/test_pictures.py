"""Pictures of a report: which lines they have, and that they are what the runs say."""

import numpy as np
import pytest

from klip.draw.as_matplotlib import drawn
from klip.draw.panel import Line, Whisker
from klip.draw.pictures import (
    PICTURES,
    across_tasks,
    identity,
    intervals,
    knob_sweeps,
    learning_curves,
    pictures,
)
from klip.studies.findings import find
from klip.studies.learning import band
from klip.studies.reading import read_study
from klip.studies.study import Study
from tests.studies.folders import FORMS, config, keep, make_pooled, make_run, make_study, small


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    make_study(out, ["CartPole-v1", "Hopper-v4"], (*FORMS, "spo(eps=0.2)"), 2, **small())
    make_study(out, ["CartPole-v1"], ["clip(eps=0.1)", "clip(eps=0.3)"], 2, **small())
    make_run(out, config(shape="my.py:Mine", **small()))
    return read_study(out)


@pytest.fixture(scope="module")
def findings(study):
    return find(study)


def lines(panel):
    return {mark.label: mark for mark in panel.marks if isinstance(mark, Line)}


def test_every_variant_has_a_line_and_the_first_are_shown(study, findings):
    cartpole, hopper = learning_curves(findings).panels
    assert [panel.title for panel in (cartpole, hopper)] == ["CartPole-v1", "Hopper-v4"]
    assert set(lines(cartpole)) == {v.label for v in study.of("CartPole-v1")}
    shown = [mark.label for mark in cartpole.marks if mark.shown]
    assert shown == ["clip", "my.py:Mine", "clip-phi", "spo", "per-sample"]
    expected = band(study.of("CartPole-v1")[0].runs, "return_mean")
    np.testing.assert_array_equal(lines(cartpole)["clip"].y, expected.mean)
    assert [lines(cartpole)[name].below for name in ("clip", "clip-phi", "per-sample")] == [0, 1, 2]


def test_published_curves_lie_below_the_papers_config_only(tmp_path):
    make_run(tmp_path, config(shape="clip(eps=0.2)"))
    make_run(tmp_path, config(task="Hopper-v4", **small()))
    cartpole, hopper = learning_curves(find(read_study(tmp_path))).panels
    assert [mark.published for mark in cartpole.marks] == [True, False]
    assert [mark.published for mark in hopper.marks] == [False]


def test_curves_are_smoothed_and_say_so(tmp_path):
    make_study(tmp_path, shapes=["clip(eps=0.2)"], seeds=2, **small(steps=200 * 64))
    study = read_study(tmp_path)
    (panel,) = learning_curves(find(study)).panels
    (mark,) = panel.marks
    smooth = band(study.runs, "return_mean", 0.05)
    np.testing.assert_array_equal(mark.y, smooth.mean)
    np.testing.assert_array_equal(mark.high, smooth.mean + smooth.std)
    raw = band(study.runs, "return_mean")
    np.testing.assert_array_equal(mark.raw, (raw.steps, raw.mean))
    assert "running mean over 5 %" in panel.x.label


def test_short_runs_are_not_smoothed_and_do_not_say_so(findings):
    panel = learning_curves(findings).panels[0]
    assert panel.x.label == "environment steps"
    assert all(mark.raw is None for mark in panel.marks)


def test_the_identity_shows_its_forms_alone(findings):
    assert set(lines(identity(findings).panels[0])) == {"clip", "per-sample", "clip-phi"}


def test_sweeps_have_a_panel(findings):
    (panel,) = knob_sweeps(findings).panels
    assert panel.x.label == "eps"
    assert [name for _, name in panel.x.ticks] == ["0.1", "0.2", "0.3"]
    assert panel.note == "Seeds: 2 at 0.1, 2 at 0.2, 2 at 0.3."


def test_a_knob_of_ones_own_shape_has_a_panel(tmp_path):
    for scale in (0.1, 0.3):
        made = config(shape=f"my.py:Mine(scale={scale})", code="abc", **small())
        keep(make_run(tmp_path, made), made, scale=scale)
    (panel,) = knob_sweeps(find(read_study(tmp_path))).panels
    assert (panel.title, panel.x.label) == ("CartPole-v1, my.py:Mine", "scale")
    assert [name for _, name in panel.x.ticks] == ["0.1", "0.3"]


def test_no_interval_is_left_out_however_many_there_are(tmp_path):
    shapes = [f"kl(b={k}.0)" for k in range(2, 36)]
    make_study(tmp_path, shapes=[*shapes, "my.py:Mine"], seeds=1, **small())
    (panel,) = intervals(find(read_study(tmp_path))).panels
    assert len(panel.y.ticks) == 35


def test_intervals_have_a_panel_a_task_and_a_line_at_clip(study, findings):
    pooled, cartpole, hopper = intervals(findings).panels
    assert (pooled.title, cartpole.title, hopper.title) == ("All 2 tasks", *study.tasks)
    level, *whiskers = cartpole.marks
    row = findings.of("CartPole-v1")[0]
    assert (level.at, level.axis) == (row.mean.estimate, "x")
    assert [mark.label for mark in whiskers] == [name for _, name in cartpole.y.ticks]
    assert "clip(eps=0.1)" not in {mark.label for mark in whiskers}
    assert isinstance(whiskers[0], Whisker)
    assert (whiskers[0].low, whiskers[0].high) == (row.mean.low, row.mean.high)
    assert pooled.marks[0].at == 1.0


def test_the_line_at_clip_is_where_its_dot_is_though_the_pool_has_fewer_seeds(tmp_path):
    pooled, *_ = intervals(find(read_study(make_pooled(tmp_path)))).panels
    line, clip, *_ = pooled.marks
    assert line.at == clip.estimate != 1.0


def test_on_one_task_the_best_stands_first(tmp_path):
    make_study(tmp_path, shapes=[*FORMS, "spo(eps=0.2)", "kl(b=0.1)", "kl(b=1.0)"], **small())
    (panel,) = intervals(find(read_study(tmp_path))).panels
    found = [mark.estimate for mark in panel.marks if isinstance(mark, Whisker)]
    assert len(found) == 6
    assert found == sorted(found, reverse=True)


def test_profiles_are_drawn_as_they_are(tmp_path):
    findings = find(read_study(make_pooled(tmp_path)))
    (panel,) = across_tasks(findings).panels
    assert list(lines(panel)) == ["clip", "per-sample", "spo"]
    spo = lines(panel)["spo"]
    np.testing.assert_array_equal(spo.y, findings.across.shapes[2].profile.fraction)
    assert spo.steps
    assert lines(panel)["per-sample"].below == 1
    drawn_lines = drawn(across_tasks(findings)).axes[0].get_lines()
    assert [line.get_linestyle() for line in drawn_lines] == ["-", "--", "-"]


def test_nothing_to_draw():
    empty = find(Study(()))
    assert [describe(empty) for describe in PICTURES] == [None] * len(PICTURES)
    assert pictures(empty) == {}
