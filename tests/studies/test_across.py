"""Over tasks: what is pooled, what is left out, what the numbers are, and where they are shown."""

from dataclasses import replace

import numpy as np
import pytest

from klip.studies.across import across, thresholds
from klip.studies.reading import read_study
from klip.studies.scores import Scores
from klip.studies.statistics import iqm, mean, probability_of_improvement
from klip.studies.study import Study
from tests.studies.folders import (
    POOLED_SHAPES as SHAPES,
)
from tests.studies.folders import (
    POOLED_TASKS as TASKS,
)
from tests.studies.folders import config, make_pooled, make_run, make_study, small


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return read_study(make_pooled(tmp_path_factory.mktemp("runs")))


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
    alone = probability_of_improvement(spo.scores, clip.scores)
    assert spo.better == replace(alone, p_holm=alone.p, family=1)
    assert per_sample.better.p is None  # its runs are PPO-Clip's: no hypothesis


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


def test_no_runs():
    assert across(Study(())) is None


def test_one_seed_has_no_interval(tmp_path):
    make_study(tmp_path, TASKS, SHAPES, 1, **small())
    study = read_study(tmp_path)
    row = across(study).shapes[2]
    assert row.iqm.low is None
    assert row.better.low is None
    assert row.profile.low is None


def test_a_task_with_one_seed_does_not_cost_the_others_theirs(tmp_path):
    make_study(tmp_path, TASKS, SHAPES, 3, **small())
    make_study(tmp_path, ["Ant-v4"], SHAPES, 1, **small())
    found = across(read_study(tmp_path))
    assert [part.task for part in found.tasks] == list(TASKS)
    assert found.seeds == 3
    assert found.tasks_left == (("Ant-v4", "only 1 seed at which all shapes have ended"),)


def test_a_sweep_on_some_tasks_does_not_put_the_others_out(tmp_path):
    tasks = [*TASKS, "Ant-v4"]
    make_study(tmp_path, tasks, SHAPES[:2], 2, **small())
    make_study(tmp_path, TASKS, [f"clip(eps=0.{i})" for i in range(3, 9)], 2, **small())
    found = across(read_study(tmp_path))
    assert [part.task for part in found.tasks] == sorted(tasks)
    assert [row.shape for row in found.shapes] == list(SHAPES[:2])


def test_where_there_is_nothing_but_a_sweep_it_is_pooled(tmp_path):
    make_study(tmp_path, TASKS, [SHAPES[0], "clip(eps=0.3)", "clip(eps=0.4)"], 2, **small())
    assert len(across(read_study(tmp_path)).shapes) == 3


def test_a_shape_that_always_diverges_is_pooled(tmp_path):
    make_study(tmp_path, TASKS, SHAPES[:1], 2, **small())
    for task in TASKS:
        for seed in range(2):
            made = config(task, SHAPES[2], seed, **small())
            make_run(tmp_path, made, 3, "diverged", "nan")
    row = across(read_study(tmp_path)).shapes[1]
    assert (row.scores.diverged, row.better.estimate) == (4, 0.0)
    assert row.iqm.estimate <= 0
