"""Processes: who gets which runs."""

from hypothesis import given
from hypothesis import strategies as st

from klip.ppo.config import Config
from klip.ppo.workers import LARGEST_COHORT, cohorts


@given(st.integers(1, 190), st.integers(1, 4), st.integers(1, 3))
def test_every_run_is_given_to_one_cohort(runs, workers, tasks):
    """All are given away, cohorts are alike and not too large, and every worker has some."""
    configs = [Config(f"task {s % tasks}", seed=s) for s in range(runs)]
    share = cohorts(configs, workers)
    assert sorted(k for cohort in share for k in cohort) == list(range(runs))
    for cohort in share:
        assert len({configs[k].task for k in cohort}) == 1
        assert 1 <= len(cohort) <= LARGEST_COHORT
    for task in {c.task for c in configs}:
        sizes = [len(cohort) for cohort in share if configs[cohort[0]].task == task]
        assert max(sizes) - min(sizes) <= 1
        assert len(sizes) >= min(workers, sum(c.task == task for c in configs))
