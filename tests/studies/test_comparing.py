"""Welch's interval and Holm's correction: by hand, against SciPy, and how often they are wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from klip.errors import KlipError
from klip.studies.comparing import CLAIM, corrected, holm, welch
from klip.studies.scores import ONE_RUN, Scores
from klip.studies.statistics import difference, mean, paired_difference

MEASURED = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "results" / "comparisons.json").read_text("utf-8")
)


def test_welch_is_scipys_batch_by_batch():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(4, 3, 5)), draw.normal(1.0, 3.0, size=(4, 3, 7))
    low, high, p = welch(x, y, 0.9)
    theirs = stats.ttest_ind(x, y, axis=-1, equal_var=False)
    np.testing.assert_allclose(p, theirs.pvalue)
    np.testing.assert_allclose((low, high), tuple(theirs.confidence_interval(0.9)))


def test_welchs_difference_is_scipys():
    x, y = [1.0, 5.0, 3.0, 2.0], [9.0, 4.0, 6.0]
    theirs = stats.ttest_ind(x, y, equal_var=False)
    found = difference(Scores.of(x), Scores.of([*y, None]))
    assert found.estimate == pytest.approx(np.mean(x) - np.mean(y))
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert found.p == pytest.approx(theirs.pvalue)
    assert (found.n, found.against, found.diverged) == (4, 3, 1)
    alone = difference(Scores.of([1.0]), Scores.of(y))
    assert (alone.low, alone.p, alone.remark) == (
        None,
        None,
        ONE_RUN,
    )
    flat = difference(Scores.of([2.0, 2.0]), Scores.of([1.0, 1.0]))
    assert ((flat.low, flat.high), flat.p, flat.remark) == (
        (1.0, 1.0),
        None,
        "no width: neither side scatters",
    )
    with pytest.raises(KlipError, match="one task"):
        difference(Scores(np.ones((2, 3))), Scores.of(y))


def test_where_nothing_scatters_there_is_no_p_value():
    low, high, p = welch(np.ones(3), np.zeros(3), 0.95)
    assert (float(low), float(high), np.isnan(p)) == (1.0, 1.0, True)


def test_holm_by_hand():
    # in order 0.005, 0.011, 0.02, 0.04: times 4, 3, 2, 1, and never less than the one before
    assert holm(np.array([0.04, 0.011, 0.005, 0.02])).tolist() == pytest.approx(
        [0.04, 0.033, 0.02, 0.04]
    )
    assert holm(np.array([0.5])).tolist() == [0.5]
    assert holm(np.empty(0)).size == 0


@given(arrays(float, st.integers(1, 30), elements=st.floats(0, 1)))
def test_holm_lies_between_no_correction_and_bonferronis(p):
    found = holm(p)
    assert (found >= p).all()
    assert (found <= np.minimum(1, p * len(p)) + 1e-15).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(found[order]) >= 0).all()


def test_only_comparisons_with_a_p_value_count():
    tested = [difference(Scores.of(x), Scores.of([1.0, 2.0, 4.0])) for x in ([1.0, 3.0], [9, 9.5])]
    untested = mean(Scores.of([1.0, 2.0]))
    first, same, second = corrected([tested[0], untested, tested[1]])
    assert same == untested
    assert (first.family, second.family) == (2, 2)
    assert [first.p_holm, second.p_holm] == holm(np.array([e.p for e in tested])).tolist()
    assert corrected([]) == []
    assert "(Holm, 2 comparisons)" in str(first)


def test_a_null_study_of_eleven_shapes_on_three_tasks_rarely_claims_anything():
    draw = np.random.default_rng(1)
    arms = draw.normal(size=(1500, 3, 12, 5))
    *_, p = welch(arms[:, :, 1:], np.broadcast_to(arms[:, :, :1], (1500, 3, 11, 5)), 0.95)
    flat = p.reshape(1500, -1)
    claims = [float((of <= CLAIM).any(axis=1).mean()) for of in (flat, holm(flat))]
    assert claims[0] > 0.5  # as it was
    assert claims[1] < 0.05


def test_what_the_choice_rests_on_is_recorded():
    """Seeds are not worth pairing at the end of training; they are where arms share a warm-up."""
    ours = {row["runs"]: row for row in MEASURED["ours"]}
    for runs in ("PPO, final return", "PPO, over training", "tokens, final accuracy"):
        assert abs(ours[runs]["correlation"]) < 0.1
        assert ours[runs]["paired_mean"] > 1.0
    assert ours["tokens, over training"]["paired_mean"] < 0.8

    def share(name, **wanted):
        rows = [r for r in MEASURED[name] if wanted.items() <= r.items()]
        return [r["covered" if name == "intervals" else "wrong"] for r in rows]

    even = {"correlation": 0.0, "spread": 1.0}
    assert min(share("intervals", method="Welch", **even)) > 0.95
    uneven = {"correlation": 0.0, "spread": 10.0, "population": "normal"}
    assert min(share("intervals", method="Welch", **uneven)) > 0.94
    assert max(share("intervals", method="pooled over all", **uneven)) < 0.9
    for tasks in (1, 4, 7):
        null = {"test": "Welch", "tasks": tasks, "spread": 1.0, "seeds": 5}
        assert max(share("claims", correction="Holm", **null)) <= CLAIM
        assert min(share("claims", correction="none", **null)) > 2 * CLAIM


def test_pairs_have_a_p_value_too():
    x, y = {0: 1.0, 1: 2.0, 2: 4.0}, {0: 0.0, 1: 1.5, 2: 2.0}
    found = paired_difference(x, y).difference
    assert found.p == pytest.approx(stats.ttest_rel([*x.values()], [*y.values()]).pvalue)
