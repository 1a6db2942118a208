"""The order of cohorts: cores stay busy to the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.engine import read_plan, schedule
from klip.engine.job import with_needs
from klip.engine.schedule import LARGEST, cost, in_lockstep, simulate
from klip.ppo.config import Config, lockstep_key


@given(
    st.lists(st.tuples(st.sampled_from(["CartPole-v1", "Hopper-v4", "Ant-v4", "Own-v0"]),
                       st.integers(1, 30), st.integers(1, 40)), min_size=1, max_size=5),
    st.integers(1, 8),
)  # fmt: skip
def test_every_run_is_scheduled_once(groups, cores):
    """In cohorts of like runs; never slower than without cutting; and the numbers add up."""
    configs = [
        Config(task, steps=2048 * iterations, seed=seed)
        for task, runs, iterations in groups
        for seed in range(runs)
    ]
    made = schedule(configs, cores)
    assert sorted(c.id for group in made.groups for c in group) == sorted(c.id for c in configs)
    for group in made.groups:
        assert len({lockstep_key(c) for c in group}) == 1
    costs = [cost(group) for group in made.groups]
    assert costs == sorted(costs, reverse=True)
    assert (made.seconds, made.busy) == pytest.approx(simulate(costs, cores))
    assert 0 < made.busy <= 1 + 1e-9
    assert made.seconds >= max(costs) - 1e-9
    assert made.guessed == (("Own-v0",) if any(task == "Own-v0" for task, *_ in groups) else ())


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_the_papers_plan_keeps_cores_busy(cores):
    assert schedule(read_plan("paper").configs, cores).busy >= 0.95
    assert schedule(read_plan("paper-sweeps").configs, cores).busy >= 0.95


def test_a_cohort_is_cut_where_a_core_would_wait():
    """7 runs on 2 cores: not 4 and 3 of the longest task, and a short one alone."""
    long = [Config("Humanoid-v4", seed=seed) for seed in range(7)]
    short = [Config("CartPole-v1", seed=seed, steps=4096) for seed in range(2)]
    assert schedule([*long, *short], 2).busy > 0.85


def test_simulation_by_hand():
    """5, 4, 3, 3 on two cores: 5+3 and 4+3."""
    assert simulate([3, 3, 4, 5], 2) == (8, 15 / 16)
    assert simulate([], 2) == (0, 1)


@given(st.integers(1, 190), st.integers(1, 4), st.integers(1, 3))
def test_every_run_is_given_to_one_group(runs, cores, tasks):
    """All are given away, groups are alike and not too large, and every core has some."""
    configs = [Config(f"task {s % tasks}", seed=s) for s in range(runs)]
    groups = in_lockstep(configs, cores)
    assert sorted(c.seed for group in groups for c in group) == list(range(runs))
    for group in groups:
        assert len({c.task for c in group}) == 1
        assert 1 <= len(group) <= LARGEST
    for task in {c.task for c in configs}:
        sizes = [len(group) for group in groups if group[0].task == task]
        assert max(sizes) - min(sizes) <= 1
        assert len(sizes) >= min(cores, sum(c.task == task for c in configs))


@given(
    st.lists(st.sampled_from(["clip", "spo", "is", "sapo", "kl"]), min_size=1, max_size=120),
    st.integers(1, 4),
)
def test_runs_of_a_shape_stay_together(shapes, cores):
    """A process compiles what its group needs: a shape is cut only where one group ends."""
    groups = schedule([Config("Hopper-v4", shape=s, seed=i) for i, s in enumerate(shapes)], cores)
    compiled = [shape for group in groups.groups for shape in {c.shape for c in group}]
    assert len(compiled) <= len(groups.groups) + len(set(shapes)) - 1


def test_what_others_need_goes_out_first():
    """Warm-ups before the runs that begin with them, each run in a group of its own."""
    plan = read_plan("scratchpad").only(seeds=2)
    groups = schedule(with_needs(plan.configs), 2).groups
    assert [group[0].kind for group in groups] == ["warm-up"] * 2 + ["tokens"] * 20
    assert all(len(group) == 1 for group in groups)
