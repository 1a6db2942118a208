"""Advantages of groups: their laws, and the cases that break naive code."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.tokens import dr_grpo, grpo, rloo

FUNCTIONS = [grpo, dr_grpo, rloo]
everyone = pytest.mark.parametrize("advantage", FUNCTIONS, ids=lambda f: f.__name__)


@st.composite
def groups(draw):
    size = draw(st.integers(0, 20))
    rewards = draw(st.lists(st.floats(-5, 5), min_size=size, max_size=size))
    ids = draw(st.lists(st.sampled_from([-3, 0, 7, 100]), min_size=size, max_size=size))
    return torch.tensor(rewards, dtype=torch.float64), torch.tensor(ids, dtype=torch.long)


@given(groups())
def test_against_a_loop_over_groups(drawn):
    rewards, ids = drawn
    for advantage in FUNCTIONS:
        found = advantage(rewards, ids).numpy()
        for one in np.unique(ids.numpy()):
            mine = ids.numpy() == one
            r = rewards.numpy()[mine]
            others = [np.delete(r, i).mean() for i in range(len(r))] if len(r) > 1 else r
            spread = r.std(ddof=1) if len(r) > 1 else 0.0
            expected = {
                "grpo": (r - r.mean()) / (spread + 1e-4),
                "dr_grpo": r - r.mean(),
                "rloo": r - others,
            }[advantage.__name__]
            np.testing.assert_allclose(found[mine], expected, rtol=1e-9, atol=1e-8)
            assert abs(found[mine].sum()) < 1e-6


@everyone
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [1e-4, 0.0])
def test_equal_rewards_and_lone_answers_have_none(advantage, dtype, eps):
    rewards = torch.tensor([0.1, 0.1, 0.1, 0.7, -1.3, -1.3], dtype=dtype)
    how = {"eps": eps} if advantage is grpo else {}
    found = advantage(rewards, torch.tensor([0, 0, 0, 1, 2, 2]), **how)
    assert found.tolist() == [0.0] * 6
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@everyone
def test_what_does_not_count_moves_nobody(advantage):
    rewards = torch.tensor([0.0, 1.0, math.nan, math.inf, 3.0])
    group, valid = torch.tensor([0, 0, 0, 5, 6]), torch.tensor([1, 1, 0, 0, 1])
    found = advantage(rewards, group, valid)
    alone = advantage(rewards[:2], group[:2])
    assert found.tolist() == [*alone.tolist(), 0.0, 0.0, 0.0]


@everyone
def test_no_answers_at_all(advantage):
    assert advantage(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_rloo_is_dr_grpo_times_n_over_n_minus_1():
    rewards, group = torch.tensor([0.0, 1.0, 5.0, 2.0]), torch.tensor([1, 1, 1, 1])
    torch.testing.assert_close(rloo(rewards, group), dr_grpo(rewards, group) * 4 / 3)


def test_mistakes_are_named():
    with pytest.raises(KlipError, match=r"rewards \[2, 1\] and group \[2\]"):
        grpo(torch.zeros(2, 1), torch.zeros(2))
    with pytest.raises(KlipError, match=r"valid \[3\]"):
        grpo(torch.zeros(2), torch.zeros(2), torch.zeros(3))
