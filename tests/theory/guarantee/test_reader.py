"""What a reader would give to a shape: the truth about the state, the rest typical."""

import numpy as np
import pytest

from klip.shapes import KL, Clip, catalogue
from klip.shapes import Shape as AnyShape
from klip.theory.guarantee.law import Law
from klip.theory.guarantee.reader import facts, multiplier

OLD = np.array([0.2, 0.3, 0.5])
W = np.array([[1.5, 1.1, 0.74], [0.4, 1.6, 0.88]])
A = np.array([1.0, 0.5, -0.7])


def test_the_state_is_never_made_up():
    class Asks(Clip):
        needs = frozenset({"old_log_prob", "kl", "age"})

    known = facts(Asks(), {"old_log_prob": 9.0, "kl": 9.0, "age": 3.0}, np.log(W), A, OLD)
    assert np.allclose(known.old_log_prob, np.log(OLD))
    assert np.allclose(known.kl, -(OLD * np.log(W)).sum(axis=1, keepdims=True))
    assert known.age == 3.0


def test_a_closed_form_kl_pulls_as_the_sampled_one():
    m = multiplier(KL(b=0.5), {}, np.log(W), A, OLD)
    assert m == pytest.approx(W * A + 0.5 * (1 - W), rel=1e-12)


@pytest.mark.parametrize("cls", catalogue(AnyShape).values(), ids=lambda cls: cls.__name__)
def test_reader_and_search_mean_the_same_pull(cls):
    """They share no code, and must agree on every shape of the catalogue."""
    shape = cls()
    ours = multiplier(shape, {}, np.log(W), A, OLD)
    theirs = Law(shape).of_actions(np.log(W), np.broadcast_to(A, W.shape), OLD)
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)
