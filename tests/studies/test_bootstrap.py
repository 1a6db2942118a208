"""Resampling: against enumeration, against scipy, against a book; and what intervals cover."""

import importlib.util
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from klip.errors import KlipError
from klip.studies.bootstrap import (
    average,
    bca,
    counts,
    draws,
    expanded,
    improvement,
    interquartile_mean,
    percentile,
    replicate,
    replicate_improvement,
    student,
)

ROOT = Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "tests" / "data" / "published_scores.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def coverage():
    """The benchmark's script; not by its name, which is that of a package many have installed."""
    path = ROOT / "benchmarks" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_draws_are_a_function_of_seed_and_stream():
    first = draws((7, 20), 50, seed=3)
    assert np.array_equal(first, draws((7, 20), 50, seed=3))
    assert not np.array_equal(first, draws((7, 20), 50, seed=4))
    assert not np.array_equal(first, draws((7, 20), 50, seed=3, stream=1))
    assert first.min() == 0
    assert first.max() == 19


def test_runs_never_leave_their_task():
    values = np.arange(3)[:, None] * 100 + np.arange(4.0)
    smallest = replicate(values, lambda x: x.min(axis=-1), draws(values.shape, 500, seed=0))
    assert np.array_equal(smallest // 100, np.tile(np.arange(3.0), (500, 1)))


def test_counts_weigh_as_the_resamples_do():
    values = np.sort(np.random.default_rng(0).normal(size=(3, 5)), axis=-1)
    index = draws(values.shape, 200, seed=1)
    weighed = (counts(index) * values).sum(axis=(-2, -1)) / values.size
    assert weighed == pytest.approx(replicate(values, average, index), abs=1e-14)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 20, 21])
def test_the_iqm_is_scipys_trimmed_mean(size):
    values = np.random.default_rng(size).lognormal(size=(10, 1, size))
    assert interquartile_mean(values) == pytest.approx(
        stats.trim_mean(values[:, 0], 0.25, axis=-1), rel=1e-14
    )


def test_a_batch_gives_what_each_of_its_members_gives():
    values = np.random.default_rng(0).normal(size=(4, 1, 6))
    index = draws((1, 6), 300, seed=0)
    for ends in (
        lambda x: student(x, 0.9),
        lambda x: bca(x, average, index, 0.9),
        lambda x: percentile(replicate(x, interquartile_mean, index), 0.9),
    ):
        together = np.stack(ends(values))
        alone = np.stack([np.stack(ends(one)) for one in values], axis=-1)
        assert together == pytest.approx(alone, abs=1e-14)


def test_improvement_is_counted_over_the_runs_that_were_drawn():
    rng = np.random.default_rng(0)
    x, y = rng.integers(5, size=(2, 4)).astype(float), rng.integers(5, size=(2, 3)).astype(float)
    first, second = draws(x.shape, 100, seed=0), draws(y.shape, 100, seed=0, stream=1)
    task = np.arange(2)[:, None]
    direct = improvement(x[task, first], y[task, second]).mean(axis=(-3, -2, -1))
    assert replicate_improvement(improvement(x, y), first, second) == pytest.approx(direct)


def test_two_runs_have_three_resampled_means_and_their_shares_are_known():
    # From 0 and 4: mean 0 with 1/4, 2 with 1/2, 4 with 1/4.
    found = replicate(np.array([[0.0, 4.0]]), average, draws((1, 2), 40_000, seed=0))
    shares = {mean: np.mean(found == mean) for mean in (0.0, 2.0, 4.0)}
    assert shares == pytest.approx({0.0: 0.25, 2.0: 0.5, 4.0: 0.25}, abs=0.01)
    assert percentile(found, 0.95) == (0.0, 4.0)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: draws((1, 2), 0, seed=0), "resamples is 0; give at least 1"),
        (lambda: draws((1, 2), 5, seed=-1), "seed is -1; give a whole number"),
        (lambda: student(np.ones((1, 2)), 95.0), "level is 95; give a probability"),
    ],
)
def test_a_mistake_is_answered_with_the_way_out(call, told):
    with pytest.raises(KlipError, match=told):
        call()


# Published


def every_resample(values):
    """All n^n resamples of a sample, as indices `[n^n, 1, n]`: the bootstrap without chance."""
    n = values.shape[-1]
    return np.array(list(itertools.product(range(n), repeat=n)))[:, None, :]


@pytest.fixture(scope="module")
def mouse():
    given = PUBLISHED["mouse"]
    return np.sort(np.array(given["treated"], dtype=float))[None], given["published"]


def test_the_mouse_data_give_the_books_standard_errors(mouse):
    treated, published = mouse
    control = np.array(PUBLISHED["mouse"]["control"], dtype=float)
    assert treated.mean() == pytest.approx(published["treated_mean"], abs=0.005)
    assert control.mean() == pytest.approx(published["control_mean"], abs=0.005)
    assert treated.std(ddof=1) / np.sqrt(7) == pytest.approx(25.24, abs=0.005)
    # The book prints 14.14; its own nine numbers give 14.16.
    assert control.std(ddof=1) / np.sqrt(9) == pytest.approx(14.16, abs=0.005)
    # Infinitely many resamples: the population std over sqrt(n).
    assert treated.std() / np.sqrt(7) == pytest.approx(23.36, abs=0.005)
    found = replicate(treated, average, draws((1, 7), 10_000, seed=0))
    assert found.std() == pytest.approx(published["bootstrap_standard_error_limit"], rel=0.02)


def test_the_mouse_data_give_the_books_percentile_interval(mouse):
    treated, published = mouse
    found = replicate(treated, average, draws((1, 7), 10_000, seed=0))
    exact = percentile(replicate(treated, average, every_resample(treated)), 0.95)
    assert percentile(found, 0.95) == pytest.approx(exact, abs=2.0)
    # The book's has 1000 resamples: an end is uncertain by 2 (low) and 3 (high) at one sigma.
    assert exact == pytest.approx(published["percentile_95"], abs=5.0)


def test_bca_agrees_with_enumeration_and_with_scipy(mouse):
    treated, _ = mouse
    exact = bca(treated, average, every_resample(treated), 0.95)
    drawn = bca(treated, average, draws((1, 7), 20_000, seed=0), 0.95)
    assert np.stack(drawn) == pytest.approx(np.stack(exact), abs=2)
    theirs = stats.bootstrap(
        (treated[0],), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(0)
    ).confidence_interval
    assert np.stack(exact) == pytest.approx(np.array(theirs), abs=2)


def test_the_spatial_data_give_the_books_bca_interval():
    given = PUBLISHED["spatial"]
    sample = np.sort(np.array(given["a"], dtype=float))[None]

    def variance(values):
        return values.var(axis=-1)[..., 0]

    assert variance(sample) == pytest.approx(given["published"]["variance"], abs=0.05)
    index = draws(sample.shape, 20_000, seed=0)
    plain = percentile(replicate(sample, variance, index), 0.9)
    corrected = bca(sample, variance, index, 0.9)
    # The book's 2000 resamples leave its ends uncertain by 2 (low) to 4 (high) at one sigma.
    assert np.stack(plain) == pytest.approx(given["published"]["percentile_90"], abs=5)
    assert np.stack(corrected) == pytest.approx(given["published"]["bca_90"], abs=5)
    # And BCa moves them as it does in the book: by 15 and by 26.
    moved = np.stack(corrected) - np.stack(plain)
    assert moved == pytest.approx([15.0, 25.7], abs=5)


def test_ties_do_not_bias_bca():
    # A resample that permutes the sample has its mean, up to rounding: a tie, not a miss. Symmetric
    # scores have no bias and no acceleration, so BCa is the percentile interval.
    sample = np.array([[0.2, 1.2, 2.2]])
    index = every_resample(sample)
    plain = percentile(replicate(sample, average, index), 0.8)
    assert np.stack(bca(sample, average, index, 0.8)) == pytest.approx(np.stack(plain), abs=1e-12)


def test_expansion_is_large_for_few_runs_and_vanishes_for_many():
    found = np.linspace(0, 1, 100_001)
    reach = [float(expanded(found, 0.95, 1, n)[0]) for n in (3, 5, 20, 10_000)]
    assert reach == sorted(reach)
    assert reach[0] < 1e-4
    # 5 runs: t_4 = 2.776, times sqrt(5/4) = 3.104; Phi(-3.104) = 0.00095
    assert reach[1] == pytest.approx(0.00095, abs=1e-4)
    assert reach[3] == pytest.approx(0.025, abs=1e-4)


# What intervals cover. Simulated in full, and reported, by benchmarks/coverage.py.


def covered(coverage, statistic, method, tasks, seeds, repetitions, population="normal"):
    (case,) = (c for c in coverage.CASES if c[:3] == (statistic, method, tasks))
    scores = coverage.populations()[population]
    return coverage.simulate(case, population, scores, seeds, repetitions).covered


def test_students_interval_covers_what_it_says(coverage):
    # Four standard errors of a share of 0.95 in 4000: 0.014.
    for seeds in (3, 20):
        assert covered(coverage, "mean", "t", 1, seeds, 4000) == pytest.approx(0.95, abs=0.014)


def test_the_percentile_bootstrap_undercovers_badly_with_three_seeds(coverage):
    # Three means of like sign miss: the interval lies within [min, max], and covers at most 3/4.
    found = covered(coverage, "mean", "percentile", 1, 3, 1000)
    assert 0.6 < found < 0.75 + 0.04
    assert covered(coverage, "mean", "bca", 1, 3, 1000) < 0.75 + 0.04


def test_expanding_repairs_the_iqm_over_seven_tasks(coverage):
    plain = covered(coverage, "iqm", "percentile", 7, 3, 600)
    wider = covered(coverage, "iqm", "expanded", 7, 3, 600)
    assert plain < 0.90
    assert wider == pytest.approx(0.94, abs=0.03)


def test_no_interval_of_the_mean_survives_skew_with_five_seeds(coverage):
    assert covered(coverage, "mean", "t", 1, 5, 2000, "lognormal") < 0.90


def test_the_record_holds_every_case_and_has_enough_repetitions(coverage):
    record = json.loads(coverage.RESULTS.read_text("utf-8"))
    rows = record["coverage"]
    assert (record["level"], record["resamples"]) == (coverage.LEVEL, coverage.RESAMPLES)
    assert {(r["statistic"], r["method"], r["tasks"]) for r in rows} == {
        case[:3] for case in coverage.CASES
    }
    assert len(rows) == len(coverage.CASES) * 4 * len(coverage.SEEDS)
    assert min(r["repetitions"] for r in rows) >= 2000
    for row in rows:
        assert row["covered"] + row["truth_above"] + row["truth_below"] == pytest.approx(1)


def test_the_record_bears_out_the_defaults(coverage):
    rows = json.loads(coverage.RESULTS.read_text("utf-8"))["coverage"]
    keys = ("statistic", "method", "tasks", "population", "seeds")
    found = {tuple(row[key] for key in keys): row["covered"] for row in rows}
    noise = 0.02
    for (statistic, method, tasks, population, seeds), share in found.items():
        if statistic == "mean" and method != "t" and seeds <= 5:
            assert share < found["mean", "t", tasks, population, seeds]
        if method == "percentile" and (statistic, tasks) != ("mean", 7):
            wider = found[statistic, "expanded", tasks, population, seeds]
            assert wider >= share - 1e-9
            assert wider < 0.95 + noise + 0.01
        if statistic == "iqm" and method == "expanded" and (tasks, seeds) != (1, 3):
            assert share > 0.90 - noise
