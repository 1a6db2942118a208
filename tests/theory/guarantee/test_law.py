"""A shape as a state meets it."""

import numpy as np
import pytest

from klip.errors import KlipError
from klip.shapes import DPPOTV, KL, TRPPO, KLk3, TrulyPPO, catalogue
from klip.theory.guarantee.law import Law, check, follows_the_state, laws, line
from tests.theory.guarantee.built import Broken


def test_the_states_kl_is_the_sampled_k3():
    x, a = np.linspace(-1, 1, 11), np.full(11, 0.5)
    assert np.allclose(Law(KL(b=0.3)).pull(x, a), Law(KLk3(b=0.3)).pull(x, a))


def test_actions_get_their_own_probability_and_their_states_kl():
    p = np.array([0.5, 0.4, 0.1])
    q = np.array([0.75, 0.2, 0.05])
    x, a = np.log(q / p), np.array([1.0, -1.0, -1.0])
    assert np.allclose(Law(DPPOTV(delta=0.2)).of_actions(x, a, p), [0.0, -0.5, -0.5])
    pulls = Law(TRPPO(delta=0.035)).of_actions(x, a, p)
    assert np.allclose(pulls, [0.0, 0.0, 0.0])
    assert np.allclose(Law(TRPPO(delta=10.0)).of_actions(x, a, p), q / p * a)


def test_only_a_gated_weight_follows_the_state():
    found = [name for name, cls in catalogue().items() if follows_the_state(cls())]
    assert found == [TrulyPPO.name]


def test_a_ratio_cannot_exceed_one_over_its_probability():
    assert [round(float(np.exp(law.top)), 6) for law in laws(DPPOTV())][:3] == [100.0, 20.0, 5.0]


def test_the_line_through_the_anchor():
    a, c, residual = line(lambda x, a: np.exp(x) * (0.9 * a + 0.25))
    assert (a, c) == (0.9, 0.25)
    assert residual < 1e-12


def test_what_is_no_number_is_said_with_its_place():
    with pytest.raises(KlipError, match=r"gives m = nan at w = [\d.]+, A = -10"):
        check(Law(Broken()))
