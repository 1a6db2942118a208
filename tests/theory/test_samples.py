"""A pull on a grid: where it jumps is found, and nothing is asked next to a jump."""

import numpy as np
import pytest

from klip.shapes import NO_CONTEXT, SPO, TIS, Clip, Context
from klip.shapes.probability import DPPOTV
from klip.theory.samples import LEVELS, points_only, sample


def pull_of(shape):
    def pull(log_ratio, advantage, old):
        return shape.multiplier(log_ratio, advantage, Context(old_log_prob=old + 0 * log_ratio))

    return pull


def test_the_jumps_of_a_clip_are_its_edges():
    found = sample(pull_of(Clip(low=0.1, high=0.3)))
    edges = {(round(float(np.exp(x)), 9), a) for x, a, _ in found.jumps}
    assert edges == {(1.3, 1.0), (0.9, -1.0)}
    distance = np.abs(found.log_ratio[:, None] - found.jumps[:, 0])
    assert not np.any((distance > 0) & (distance < 5e-6))


@pytest.mark.parametrize("shape", [SPO(), TIS()], ids=str)
def test_what_is_continuous_has_none(shape):
    assert len(sample(pull_of(shape)).jumps) == 0


def test_a_kink_draws_samples():
    found = sample(pull_of(TIS(cap=2.0)))
    assert np.min(np.abs(found.bends - np.log(2.0))) < 0.05


def test_the_old_probability_is_varied_where_it_matters():
    found = sample(pull_of(DPPOTV()), by_old=True)
    assert set(found.points[:, 2]) == set(LEVELS)
    assert found.context.given == {"old_log_prob"}
    assert np.all(found.log_ratio + found.points[:, 2] < 0)


def test_samples_can_be_picked_and_changed():
    points = np.array([[0.0, 1.0, -5.0], [0.5, -1.0, -5.0]])
    empty = points_only(points, by_old=False)
    assert empty.context is NO_CONTEXT
    full = empty.changed(np.array([1.0, 2.0]))
    assert full.at(full.advantage < 0).pull.tolist() == [2.0]
