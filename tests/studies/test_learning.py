"""Metrics over seeds: what is averaged, and what is not made up."""

import numpy as np
import pytest

from klip.studies.learning import Band, band, overlaid, thinned
from klip.studies.study import read_study
from tests.studies.folders import config, make_run, make_study, small


def test_a_mean_is_over_the_seeds_that_have_a_value(tmp_path):
    make_run(tmp_path, config(seed=0, **small()))
    make_run(tmp_path, config(seed=1, **small()), 5, "running")
    make_run(tmp_path, config(seed=2, **small()), without=("return_mean_x",))
    runs = read_study(tmp_path).runs
    found = band(runs, "return_mean")
    assert len(found.steps) == 19  # no episode ended in iteration 2
    assert found.steps.tolist() == [64 * k for k in range(1, 21) if k != 2]
    assert found.seeds.tolist() == [3.0] * 4 + [2.0] * 15
    values = np.array([run.metrics["return_mean"][0] for run in runs])
    assert found.mean[0] == pytest.approx(values.mean())
    assert found.std[0] == pytest.approx(values.std())
    late = [run.metrics["return_mean"][19] for run in runs if run.rows == 20]
    assert found.mean[-1] == pytest.approx(np.mean(late))


def test_quantiles_are_averaged_one_by_one(tmp_path):
    runs = read_study(make_study(tmp_path, shapes=["clip(eps=0.2)"], seeds=2, **small())).runs
    found = band(runs, "beta")
    assert found.mean.shape == (20, 9)
    both = np.stack([run.metrics["beta"] for run in runs])
    np.testing.assert_allclose(found.mean, both.mean(axis=0))
    assert len(band(runs, "beta_kill").steps) == 19


def test_a_missing_metric_has_no_band(tmp_path):
    make_run(tmp_path, config(**small()), without=("kill",))
    make_run(tmp_path, config(seed=1, **small()), 0, "running")
    runs = read_study(tmp_path).runs
    assert band(runs, "kill") is None
    assert band([], "kill") is None


def test_one_seed_and_equal_seeds_have_no_deviation(tmp_path):
    runs = read_study(make_study(tmp_path, shapes=["clip(eps=0.2)"], seeds=1, **small())).runs
    assert not band(runs, "return_mean").std.any()
    assert not band([*runs, *runs, *runs], "return_mean").std.any()


@pytest.mark.parametrize("size", [1, 499, 500, 501, 999, 1000, 12345])
def test_thinning_keeps_the_ends_and_changes_no_value(size):
    x = np.arange(size, dtype=float)
    found = thinned(Band(x, x**2, x, x))
    assert len(found.steps) <= 500
    assert (found.steps[0], found.steps[-1]) == (0, size - 1)
    assert (found.mean == found.steps**2).all()
    assert size > 500 or len(found.steps) == size


def test_what_lies_on_another(tmp_path):
    shapes = ["clip(eps=0.2)", "per-sample(eps=0.2)", "spo(eps=0.2)"]
    study = read_study(make_study(tmp_path, shapes=shapes, seeds=2, **small()))
    clip, per_sample, spo = (band(v.runs, "return_mean") for v in study.variants)
    assert overlaid(per_sample, [clip]) == 1
    assert overlaid(per_sample, [clip, spo, clip]) == 2
    assert overlaid(spo, [clip, per_sample]) == 0
