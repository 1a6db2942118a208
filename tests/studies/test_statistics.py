"""Statistics over seeds: by hand, against published numbers, and whatever the order of runs."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from klip.errors import KlipError
from klip.studies.bootstrap import draws, improvement, replicate_improvement
from klip.studies.scores import Scores, normalise, stack
from klip.studies.statistics import (
    against_published,
    iqm,
    mean,
    paired_difference,
    performance_profile,
    probability_of_improvement,
    summarise,
)

PUBLISHED = json.loads(
    (Path(__file__).parents[1] / "data" / "published_scores.json").read_text("utf-8")
)
FEW = 200  # resamples, where their number is not the point
numbers = st.floats(-1e6, 1e6, allow_subnormal=False)


def ends(found):
    return found.low, found.high


# By hand


def test_mean_and_both_deviations():
    found = summarise(Scores.of([2.0, 4.0, 9.0, None]))
    # mean 15/3 = 5; squares (9 + 1 + 16) = 26; over 3 and over 2
    assert found.mean == 5.0
    assert found.std == pytest.approx(math.sqrt(26 / 3))
    assert found.sample_std == pytest.approx(math.sqrt(26 / 2))
    assert found.iqm == 5.0  # 3 // 4 = 0 are cut
    assert (found.n, found.diverged) == (3, 1)
    assert str(found) == "mean 5, std 2.944, IQM 5, 3 runs, 1 more diverged"


def test_students_interval():
    # 5 -+ t_2(0.975) s / sqrt(3) = 5 -+ 4.3027 * sqrt(13 / 3)
    found = mean(Scores.of([2.0, 4.0, 9.0]))
    assert found.estimate == 5.0
    reach = 4.30265 * math.sqrt(13 / 3)
    assert ends(found) == pytest.approx((5 - reach, 5 + reach), abs=1e-4)
    theirs = stats.ttest_1samp([2.0, 4.0, 9.0], 0.0).confidence_interval(0.95)
    assert ends(found) == pytest.approx(tuple(theirs))


def test_students_interval_over_two_tasks():
    # Task means 1 and 10, s^2 = 2 and 8, N = 2: v = 2/2/4, 8/2/4 = 0.25, 1.
    # se = sqrt(1.25); nu = 1.25^2 / (0.25^2 + 1) = 1.5625 / 1.0625 = 1.470588
    found = mean(Scores(np.array([[0.0, 2.0], [8.0, 12.0]])))
    assert found.estimate == 5.5
    reach = stats.t.ppf(0.975, 1.5625 / 1.0625) * math.sqrt(1.25)
    assert ends(found) == pytest.approx((5.5 - reach, 5.5 + reach))
    assert str(found).endswith("2 runs on each of 2 tasks")


def test_the_iqm_pools_tasks_and_cuts_whole_scores():
    # 8 scores: 8 // 4 = 2 off each end of 0 1 2 3 | 4 5 60 70 -> (2 + 3 + 4 + 5) / 4
    scores = stack({"a": Scores.of([0.0, 2.0, 4.0, 60.0]), "b": Scores.of([1.0, 3.0, 5.0, 70.0])})
    assert iqm(scores, resamples=FEW).estimate == 3.5
    # 5 scores: 1 off each end of 1 2 3 4 100 -> (2 + 3 + 4) / 3
    assert iqm(Scores.of([1.0, 2.0, 3.0, 4.0, 100.0]), resamples=FEW).estimate == 3.0


def test_the_probability_of_improvement_counts_ties_by_half():
    # Task a: 1>0, 1=1, 3>0, 3>1 -> (1 + 1/2 + 1 + 1) / 4 = 7/8. Task b: 0<5 -> 0. Mean 7/16.
    x = Scores(np.array([[1.0, 3.0], [0.0, 0.0]]), tasks=("a", "b"))
    y = Scores(np.array([[0.0, 1.0], [5.0, 5.0]]), tasks=("a", "b"), diverged=1)
    found = probability_of_improvement(x, y, resamples=FEW)
    assert found.estimate == 7 / 16
    assert (found.n, found.against, found.tasks, found.diverged) == (2, 2, 2, 1)
    theirs = stats.mannwhitneyu([1.0, 3.0], [0.0, 1.0]).statistic / 4
    assert theirs == 7 / 8


def test_a_clear_winner_has_no_width_and_says_so():
    found = probability_of_improvement(Scores.of([3.0, 4.0]), Scores.of([1.0, 2.0]))
    assert (found.estimate, *ends(found)) == (1.0, 1.0, 1.0)
    assert found.remark == "no width: every resample gives the same"


def test_the_two_sides_of_a_comparison_are_resampled_apart():
    # Drawn together, a side against itself would give 1/2 in every resample.
    same = Scores.of([1.0, 2.0, 3.0, 4.0, 5.0])
    found = probability_of_improvement(same, same)
    assert found.estimate == 0.5
    assert found.low < 0.25
    assert found.high > 0.75


def test_the_interval_of_improvement_has_the_freedom_of_both_sides():
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.normal(size=(5, 3)), axis=-1), np.sort(rng.normal(size=(5, 4)), axis=-1)
    picked = draws(x.shape, 2000, seed=5), draws(y.shape, 2000, seed=5, stream=1)
    replicates = replicate_improvement(improvement(x, y), *picked)
    # 3 runs, the fewer, of 5 tasks on 2 sides: nu = 2 * 5 * (3 - 1) = 20, not 10
    right, wrong = (
        np.quantile(replicates, stats.norm.cdf(-stats.t.ppf(0.975, nu) * math.sqrt(3 / 2)))
        for nu in (20, 10)
    )
    found = probability_of_improvement(Scores(x), Scores(y), resamples=2000, seed=5)
    assert found.low == pytest.approx(right)
    assert found.low > wrong + 1e-6


def test_a_profile_counts_runs_strictly_above():
    scores = Scores(np.array([[0.0, 1.0], [1.0, 2.0]]))
    found = performance_profile(scores, [-1.0, 0.0, 1.0, 2.0], resamples=FEW)
    assert found.fraction.tolist() == [1.0, 0.75, 0.25, 0.0]
    assert found.low.tolist()[::3] == [1.0, 0.0]
    assert found.high.tolist()[::3] == [1.0, 0.0]
    assert (found.low <= found.fraction).all()
    assert (found.fraction <= found.high).all()


def test_paired_differences_use_the_pairs_and_name_the_rest():
    found = paired_difference(
        {0: 5.0, 1: 7.0, 2: 1.0, 3: None, 9: 4.0}, {2: 0.0, 1: 4.0, 0: 3.0, 3: 2.0, 8: 6.0}
    )
    # 5 - 3, 7 - 4, 1 - 0: mean 2, s = 1; 2 -+ 4.3027 / sqrt(3)
    assert found.difference.estimate == 2.0
    assert ends(found.difference) == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-5)
    assert found.difference.n == 3
    assert (found.only_first, found.only_second, found.diverged) == ((9,), (8,), (3,))
    assert not found.identical
    assert str(found) == (
        "2 [-0.4841, 4.484], 0.95 Student t, p 0.074, 3 pairs; only in the first: seed 9; "
        "only in the second: seed 8; diverged: seed 3"
    )


@pytest.mark.parametrize("method", ["t", "percentile", "expanded", "bca"])
def test_identical_pairs_differ_by_exactly_nothing(method):
    runs = {0: 0.1, 1: 0.2, 2: 1e9}
    found = paired_difference(runs, dict(runs), method=method)
    assert (found.difference.estimate, *ends(found.difference)) == (0.0, 0.0, 0.0)
    assert found.identical
    assert found.difference.remark == "no width: all pairs are identical"


def test_equal_differences_are_not_called_identical():
    found = paired_difference({0: 2.0, 1: 3.0}, {0: 1.0, 1: 2.0})
    assert (found.difference.estimate, *ends(found.difference)) == (1.0, 1.0, 1.0)
    assert not found.identical
    assert found.difference.remark == "no width: all differences are equal"


def test_the_difference_from_a_published_mean():
    # Ours 1 2 3: mean 2, s^2 = 1, v = 1/3. Published 4 with population std 2 of 5: v = 4/4 = 1.
    # se = sqrt(4/3); nu = (4/3)^2 / ((1/3)^2 / 2 + 1 / 4) = 1.7778 / 0.30556 = 5.81818
    found = against_published(Scores.of([1.0, 2.0, 3.0]), 4.0, 2.0, n=5)
    reach = stats.t.ppf(0.975, (16 / 9) / (1 / 18 + 1 / 4)) * math.sqrt(4 / 3)
    assert found.estimate == -2.0
    assert ends(found) == pytest.approx((-2 - reach, -2 + reach))
    assert (found.n, found.against, found.method) == (3, 5, "Welch t")


def test_a_published_table_and_its_runs_give_one_interval():
    ours, theirs = np.array([3.0, 1.0, 4.0, 1.0, 5.0]), np.array([9.0, 2.0, 6.0, 5.0])
    table = against_published(Scores.of(ours), theirs.mean(), theirs.std(), n=4)
    runs = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert ends(table) == pytest.approx(tuple(runs))


# Few runs


def test_one_run_has_no_interval():
    one = Scores.of([7.0, None])
    for found in (
        mean(one),
        mean(one, "bca"),
        iqm(one),
        probability_of_improvement(one, Scores.of([1.0, 2.0])),
        against_published(one, 1.0, 1.0, n=5),
        against_published(Scores.of([1.0, 2.0]), 1.0, 0.0, n=1),
        paired_difference({4: 1.0}, {4: 1.0}).difference,
        iqm(stack({"a": one, "b": one})),
    ):
        assert ends(found) == (None, None)
        assert "cannot be known from one run" in str(found)
    assert summarise(one).sample_std is None
    profile = performance_profile(one, [0.0])
    assert profile.low is None
    assert profile.high is None
    assert "cannot be known from one run" in str(profile)


@pytest.mark.parametrize("method", ["t", "percentile", "expanded", "bca"])
def test_two_runs_have_one(method):
    found = mean(Scores.of([1.0, 2.0]), method)
    assert found.low < found.estimate < found.high


@pytest.mark.parametrize("method", ["t", "percentile", "expanded", "bca"])
def test_equal_runs_average_to_themselves(method):
    # 0.1 + 0.1 + 0.1 is not 0.3 in floats
    found = mean(Scores.of([0.1] * 3), method)
    assert (found.estimate, *ends(found)) == (0.1, 0.1, 0.1)
    assert found.remark == "no width: runs do not differ"
    assert summarise(Scores.of([0.1] * 3)).std == 0.0
    assert against_published(Scores.of([0.1] * 3), 0.1, 0.0, n=5).low == 0.0


# Whatever the order


@given(st.lists(numbers, min_size=2, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_one_tasks_results_do_not_depend_on_the_order_of_runs(values, random):
    other = list(values)
    random.shuffle(other)
    first, second = Scores.of([*values, None]), Scores.of([None, *other])
    assert summarise(first) == summarise(second)
    for method in ("t", "percentile", "expanded", "bca"):
        assert mean(first, method, resamples=FEW) == mean(second, method, resamples=FEW)
    assert iqm(first, resamples=FEW) == iqm(second, resamples=FEW)
    assert against_published(first, 1.0, 2.0, 5) == against_published(second, 1.0, 2.0, 5)


@given(
    st.lists(st.tuples(numbers, numbers, numbers), min_size=2, max_size=6),
    st.randoms(use_true_random=False),
)
@settings(max_examples=30)
def test_nor_do_those_of_several_tasks_or_of_their_order(rows, random):
    columns = dict(zip("abc", zip(*rows, strict=True), strict=True))
    shuffled = {k: random.sample(v, len(v)) for k, v in reversed(columns.items())}
    first, second = (
        stack({k: Scores.of(v) for k, v in which.items()}) for which in (columns, shuffled)
    )
    still = normalise(first, [0.0, 1.0, 2.0], [1.0, 3.0, 9.0])
    assert iqm(first, resamples=FEW) == iqm(second, resamples=FEW)
    assert mean(first) == mean(second)
    assert probability_of_improvement(first, still, resamples=FEW) == probability_of_improvement(
        second, still, resamples=FEW
    )
    taus = [-1.0, 0.0, 1.0]
    bands = [performance_profile(x, taus, resamples=FEW) for x in (first, second)]
    assert np.array_equal(bands[0].low, bands[1].low)
    assert np.array_equal(bands[0].high, bands[1].high)


@given(st.dictionaries(st.integers(0, 99), st.tuples(numbers, numbers), min_size=2, max_size=6))
@settings(max_examples=30)
def test_nor_do_pairs_depend_on_theirs(pairs):
    first = {seed: x for seed, (x, _) in pairs.items()}
    second = {seed: y for seed, (_, y) in pairs.items()}
    again = dict(reversed(second.items()))
    for method in ("t", "expanded"):
        one = paired_difference(first, second, method, resamples=FEW)
        assert one == paired_difference(first, again, method, resamples=FEW)
        turned = paired_difference(second, first, "t").difference
    assert turned.estimate == pytest.approx(-one.difference.estimate, rel=1e-9, abs=1e-6)


@given(st.lists(numbers, min_size=2, max_size=6), st.lists(numbers, min_size=2, max_size=6))
@settings(max_examples=50)
def test_two_sides_improve_on_each_other_with_certainty_in_all(x, y):
    there = probability_of_improvement(Scores.of(x), Scores.of(y), resamples=FEW)
    back = probability_of_improvement(Scores.of(y), Scores.of(x), resamples=FEW)
    assert there.estimate + back.estimate == pytest.approx(1)
    assert 0 <= there.low <= there.high <= 1


@given(st.lists(numbers, min_size=2, max_size=8), st.lists(numbers, min_size=2, max_size=20))
@settings(max_examples=50)
def test_profiles_fall(values, taus):
    found = performance_profile(Scores.of(values), sorted(taus), resamples=FEW)
    for line in (found.fraction, found.low, found.high):
        assert (np.diff(line) <= 1e-12).all()


def test_intervals_move_and_stretch_with_the_scores():
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    for estimate in (mean, iqm):
        before, after = estimate(Scores.of(values)), estimate(Scores.of(3 * values - 7))
        assert ends(after) == pytest.approx((3 * before.low - 7, 3 * before.high - 7))


def test_the_seed_of_the_bootstrap_is_all_its_chance():
    scores = Scores.of(np.random.default_rng(0).normal(size=20))
    assert iqm(scores, seed=1) == iqm(scores, seed=1)
    assert iqm(scores, seed=1) != iqm(scores, seed=2)
    assert ends(iqm(scores, seed=1)) == pytest.approx(ends(iqm(scores, seed=2)), abs=0.05)


# Published


def test_the_published_aggregates_of_atari_100k():
    given = PUBLISHED["atari_100k"]
    scores = stack({game: Scores.of(runs) for game, runs in given["runs"].items()})
    assert (len(scores.tasks), scores.n) == (26, 5)
    low, high = ([given[who][game] for game in scores.tasks] for who in ("random", "human"))
    human_normalised = normalise(scores, low, high)
    found = iqm(human_normalised)
    assert round(found.estimate, 3) == given["published"]["iqm"]
    assert round(mean(human_normalised).estimate, 3) == given["published"]["mean"]
    plain = iqm(human_normalised, "percentile")
    assert found.low < plain.low < found.estimate < plain.high < found.high


def test_the_mouse_data_are_what_the_book_says_of_them():
    given = PUBLISHED["mouse"]
    treated, control = Scores.of(given["treated"]), Scores.of(given["control"])
    found = against_published(treated, control.values.mean(), control.values.std(), n=control.n)
    assert found.estimate == pytest.approx(given["published"]["difference"], abs=0.006)
    theirs = stats.ttest_ind(given["treated"], given["control"], equal_var=False)
    assert ends(found) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    # Of 63 pairs, counted by hand per treated mouse: 7, 9, 1, 3, 7, 8, 1 beat the control.
    assert probability_of_improvement(treated, control).estimate == 36 / 63


def test_the_papers_table_follows_from_its_curves():
    given = PUBLISHED["klip_ppo"]
    for task, algorithms in given["curves"].items():
        for algorithm, curve in algorithms.items():
            table_mean, table_std = given["final"][task][algorithm]
            assert len(curve["mean"]) == 49
            assert np.mean(curve["mean"]) == pytest.approx(table_mean, abs=0.51)
            # Averaging a seed's iterations before taking the deviation cannot make it larger.
            assert table_std <= np.mean(curve["std"]) + 0.5


def test_runs_with_the_papers_mean_and_deviation_do_not_differ_from_it():
    given = PUBLISHED["klip_ppo"]["final"]
    pattern = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) / math.sqrt(2)  # population std 1
    for algorithms in given.values():
        table_mean, table_std = algorithms["ppo_clip"]
        ours = Scores.of(table_mean + table_std * pattern)
        assert summarise(ours).std == pytest.approx(table_std)
        found = against_published(ours, table_mean, table_std, n=5)
        assert found.estimate == pytest.approx(0, abs=1e-9)
        # Two equal groups of 5: nu = 8, se^2 = 2 std^2 / 4
        assert found.high == pytest.approx(stats.t.ppf(0.975, 8) * table_std / math.sqrt(2))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: mean(Scores.of([None])), "all 1 runs diverged"),
        (lambda: mean(Scores.of([1.0, 2.0]), level=95), "level is 95; give a probability"),
        (lambda: mean(Scores(np.eye(2)), "bca"), "bca is for one task, not 2; choose t"),
        (lambda: iqm(Scores.of([1.0, 2.0]), "t"), "method is t; choose percentile or expanded"),
        (lambda: summarise(Scores(np.eye(2))), "summarise one task at a time"),
        (lambda: performance_profile(Scores.of([1.0]), []), r"taus are \[\]; give a list"),
        (lambda: performance_profile(Scores.of([1.0]), [math.nan]), r"taus are \[nan\]"),
        (
            lambda: probability_of_improvement(Scores(np.eye(2)), Scores.of([1.0])),
            "the first has 2 tasks and the second 1 task; stack the same tasks",
        ),
        (
            lambda: probability_of_improvement(
                stack({"Ant": Scores.of([1.0])}), stack({"Hopper": Scores.of([1.0])})
            ),
            "the first has Ant and the second Hopper; stack the same tasks",
        ),
        (lambda: paired_difference({0: 1.0}, {1: 1.0}), r"no seed .* \[0\], the second \[1\]"),
        (lambda: paired_difference({0: None}, {0: 1.0}), "no seed has a score in both"),
        (lambda: paired_difference({0: math.nan}, {0: 1.0}), r"of seed 0 are \(nan, 1.0\)"),
        (lambda: against_published(Scores(np.eye(2)), 0.0, 1.0, 5), "give its scores"),
        (lambda: against_published(Scores.of([1.0]), 0.0, -1.0, 5), "std -1; give"),
        (lambda: against_published(Scores.of([1.0]), math.nan, 1.0, 5), "is nan and its std 1"),
        (lambda: against_published(Scores.of([1.0]), 0.0, 1.0, 0), "n = 0 runs; give how many"),
    ],
)
def test_a_mistake_is_answered_with_the_way_out(call, told):
    with pytest.raises(KlipError, match=told):
        call()
