"""What happened in training is drawn for every shape, whatever its runs have counted."""

import numpy as np
import pytest

from klip.draw.diagnostics import (
    beta,
    clip_runs,
    controllers,
    entropy,
    kl,
    mass,
    partition,
    per_sample_runs,
    samples,
)
from klip.draw.panel import Fan, Guide, Line
from klip.studies.findings import find
from klip.studies.learning import band
from klip.studies.reading import read_study
from klip.theory.diagnostics import FATES
from tests.studies.folders import FORMS, config, make_run, make_study, small

SHAPES = (*FORMS[:2], "spo(eps=0.2)", "my.py:Mine(a=1.0)")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return read_study(
        make_study(tmp_path_factory.mktemp("runs"), shapes=SHAPES, seeds=2, **small())
    )


@pytest.fixture(scope="module")
def findings(study):
    return find(study)


def labels(panel):
    return [mark.label for mark in panel.marks if isinstance(mark, Line)]


def counted(study, **metrics):
    """The same study, in which every run has more metrics; a number stands for a constant."""
    for run in study.runs:
        for name, value in metrics.items():
            run.metrics[name.replace("__", ".")] = np.full(run.rows, value)
    return find(study)


def test_every_shape_has_a_line_in_every_panel(study, findings):
    for panel in (*kl(findings).panels, *samples(findings).panels):
        assert labels(panel) == [v.label for v in study.variants]
        assert all(mark.shown for mark in panel.marks)
    assert [panel.about for panel in samples(findings).panels] == ["inside", "kill", "pass"]
    mine = next(v for v in study.variants if v.own)
    drawn = kl(findings).panels[0].marks[labels(kl(findings).panels[0]).index(mine.label)]
    np.testing.assert_array_equal(drawn.y, band(mine.runs, "kl").mean)


def test_what_a_multiplier_did_is_drawn_where_it_was_counted(tmp_path):
    study = read_study(make_study(tmp_path, shapes=SHAPES, seeds=1, **small()))
    found = counted(study, kept=0.7, weakened=0.2, zeroed=0.1, reversed=0.0, strengthened=0.0,
                    zeroed_mass=0.3, entropy=1.5, controller__b=2.0)  # fmt: skip
    panels = samples(found).panels
    assert [panel.about for panel in panels] == ["kept", "weakened", "zeroed"]  # others are 0
    assert [panel.y.label for panel in mass(found).panels] == ["zeroed, share of |wA|"]
    assert [panel.about for panel in entropy(found).panels] == ["entropy"]
    assert [panel.y.label for panel in controllers(found).panels] == ["b"]


def test_runs_of_before_and_after_stand_side_by_side(tmp_path):
    study = read_study(make_study(tmp_path, shapes=SHAPES[:2], seeds=1, **small()))
    study.runs[0].metrics["kept"] = np.full(study.runs[0].rows, 0.9)
    abouts = [panel.about for panel in samples(find(study)).panels]
    assert abouts == [f"{FATES[0]}, clip", "inside", "kill", "pass"]


def test_what_no_run_has_is_not_drawn(findings):
    assert entropy(findings) is None
    assert controllers(findings) is None
    assert mass(findings) is None


def test_partition_and_coefficient_are_of_the_papers_runs(study, findings):
    assert clip_runs(study, "CartPole-v1").shape == "clip(eps=0.2)"
    assert per_sample_runs(study, "CartPole-v1").shape == "per-sample(eps=0.2)"
    kill, passing = partition(findings).panels[0].marks
    runs = clip_runs(study, "CartPole-v1").runs
    np.testing.assert_array_equal(kill.y, band(runs, "kill").mean)
    np.testing.assert_array_equal(passing.y, band(runs, "pass").mean)
    assert kill.low.min() >= 0
    per_sample, mine = beta(findings).panels
    assert (per_sample.about, mine.about) == ("per-sample", "my.py:Mine(a=1.0)")
    *fans, median = per_sample.marks
    quantiles = band(per_sample_runs(study, "CartPole-v1").runs, "beta").mean
    np.testing.assert_array_equal(median.y, quantiles[:, 4])
    assert all(isinstance(fan, Fan) for fan in fans)
    np.testing.assert_array_equal(fans[0].high, quantiles[:, 8])


def test_the_published_peak_is_a_level(tmp_path):
    make_run(tmp_path, config(task="Hopper-v4"))
    (panel,) = partition(find(read_study(tmp_path))).panels
    assert [mark.text for mark in panel.marks if isinstance(mark, Guide)] == [
        "published peak of kill"
    ]
    assert "published: " in panel.note
