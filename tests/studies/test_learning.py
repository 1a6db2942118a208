"""Metrics over seeds: what is averaged, and what is not made up."""

import numpy as np
import pytest

from klip.studies.learning import SeedBand, band, overlaid, running_mean, thinned, window
from klip.studies.reading import read_study
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
    found = thinned(SeedBand(x, x**2, x, x))
    assert len(found.steps) <= 500
    assert (found.steps[0], found.steps[-1]) == (0, size - 1)
    assert (found.mean == found.steps**2).all()
    assert size > 500 or len(found.steps) == size


def test_what_lies_on_another(tmp_path):
    shapes = ["clip(eps=0.2)", "per-sample(eps=0.2)", "spo(eps=0.2)"]
    study = read_study(make_study(tmp_path, shapes=shapes, seeds=2, **small()))
    clip, spo, per_sample = (band(v.runs, "return_mean") for v in study.variants)
    assert overlaid(per_sample, [clip]) == 1
    assert overlaid(per_sample, [clip, spo, clip]) == 2
    assert overlaid(spo, [clip, per_sample]) == 0


@pytest.mark.parametrize("width", [1, 3, 25])
def test_a_running_mean_is_over_the_values_that_are_there(width):
    draw = np.random.default_rng(0)
    values = np.where(draw.uniform(size=200) < 0.4, np.nan, draw.normal(size=200))
    values[60:100] = np.nan
    half = width // 2
    for k, smooth in enumerate(running_mean(values, width)):
        near = values[max(0, k - half) : k + half + 1]
        near = near[~np.isnan(near)]
        assert np.isnan(smooth) if not len(near) else smooth == pytest.approx(near.mean())


def test_a_window_is_odd_and_a_twentieth_of_training():
    assert [window(n) for n in (1, 20, 61, 488, 1000)] == [1, 1, 3, 25, 51]


def test_smoothing_comes_before_the_mean_over_seeds(tmp_path):
    """A seed without a value at an iteration counts there as soon as its window has one."""
    settings = small(steps=200 * 64)
    runs = read_study(make_study(tmp_path, shapes=["clip(eps=0.2)"], seeds=3, **settings)).runs
    smooth = band(runs, "return_mean", 0.05)
    assert len(smooth.steps) == 200
    assert set(smooth.seeds) == {3.0}
    each = np.stack([running_mean(run.metrics["return_mean"], 11) for run in runs])
    np.testing.assert_allclose(smooth.mean, each.mean(axis=0))
    np.testing.assert_allclose(smooth.std, each.std(axis=0))
    assert [run.final for run in runs] == [run.final for run in read_study(tmp_path).runs]
