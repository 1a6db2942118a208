"""Does a property predict a score? Differences, and how often chance gives as much."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from klip.studies.predicting import predictions

SCORES = {f"s{i}": float(x) for i, x in enumerate(np.linspace(0, 1, 16))}


def test_a_property_of_the_best_is_noticed_and_one_at_random_is_not():
    best = {name: score > 0.5 for name, score in SCORES.items()}
    every_other = {name: i % 2 == 0 for i, name in enumerate(SCORES)}
    found = predictions(SCORES, {"best": best, "other": every_other})
    assert found[0].difference > 0.5
    assert found[0].p < 0.001
    assert found[0].p_holm == min(2 * found[0].p, 1)
    assert found[1].p > 0.5


def test_what_all_have_tells_nothing():
    (found,) = predictions(SCORES, {"all": dict.fromkeys(SCORES, True)})
    assert (found.difference, found.p, found.p_holm) == (None, None, None)
    assert len(found.have) == 16


@given(st.permutations(sorted(SCORES)))
def test_the_order_of_shapes_does_not_matter(order):
    best = {name: score > 0.7 for name, score in SCORES.items()}
    turned = {name: SCORES[name] for name in order}
    assert predictions(turned, {"x": best}) == predictions(SCORES, {"x": best})


def test_shapes_of_which_it_is_not_known_are_left_out():
    (found,) = predictions(SCORES, {"x": {"s0": True, "s15": False}})
    assert (found.have, found.lack, found.difference) == (("s0",), ("s15",), -1.0)
