"""Small MDPs: their laws, and what a file may hold."""

import numpy as np
import pytest

from klip.errors import KlipError
from klip.theory.guarantee.mdps import (
    DISCOUNT,
    certified,
    change,
    of_fields,
    random_mdps,
    surrogate,
    to_fields,
)


@pytest.fixture(scope="module")
def suite():
    return random_mdps(np.random.default_rng(0), 20, shared=True)


def moved(suite, size):
    rng = np.random.default_rng(1)
    new = suite.old * np.exp(size * rng.normal(size=suite.old.shape))
    return new / new.sum(axis=-1, keepdims=True)


def test_advantages_are_centred_and_of_unit_variance(suite):
    assert np.allclose((suite.old * suite.advantages).sum(axis=-1), 0)
    weight = suite.visits[..., None] * suite.old
    assert np.allclose((weight * suite.advantages**2).sum(axis=(1, 2)), 1)
    assert np.allclose(suite.visits.sum(axis=-1), 1)


def test_the_performance_difference_lemma(suite):
    """The change is E[A] under the new policy's own visits."""
    new = moved(suite, 0.7)
    step = np.einsum("nsa,nsat->nts", new, suite.transitions)
    start = np.full(suite.visits.shape, 0.25)
    visits = (1 - DISCOUNT) * np.linalg.solve(np.eye(4) - DISCOUNT * step, start[..., None])[..., 0]
    expected = (visits[..., None] * new * suite.advantages).sum(axis=(1, 2))
    assert np.allclose(change(suite, new), expected)


def test_the_surrogate_is_the_change_to_first_order(suite):
    new = moved(suite, 1e-5)
    assert np.allclose(change(suite, new), surrogate(suite, new), atol=1e-8)


def test_what_achiams_bound_certifies_improves(suite):
    for size in (1e-4, 0.01, 0.1, 1.0):
        new = moved(suite, size)
        assert np.all(change(suite, new)[certified(suite, new)] > 0)


def test_a_file_gives_the_same_mdp(suite):
    again = of_fields(to_fields(suite, 3))
    assert np.allclose(again.advantages[0], suite.advantages[3])


@pytest.mark.parametrize(
    "damage",
    [
        {"transitions": [[[1.0]]]},
        {"rewards": "much"},
        {"logits": [[0.0]]},
        {"transitions": None},
    ],
)
def test_a_damaged_one_is_refused(suite, damage):
    with pytest.raises(KlipError, match="an MDP"):
        of_fields(to_fields(suite, 0) | damage)


def test_probabilities_that_do_not_sum_to_one_are_refused(suite):
    about = to_fields(suite, 0)
    about["transitions"][0][0][0] += 0.1
    with pytest.raises(KlipError, match="sum to 1"):
        of_fields(about)
