"""I_in, I_kill and I_pass."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.shapes import (
    REFERENCE_BAND,
    SPO,
    AgeConditioned,
    ByAge,
    Clip,
    ClipHigher,
    Context,
    KLk2,
    Truncate,
    by_sign,
)
from klip.theory.partition import edges_of, partition

torch = pytest.importorskip("torch")
arrays = st.lists(st.tuples(st.floats(-3, 3), st.sampled_from([-2.0, 0.0, 1.5])), min_size=1)


@given(arrays)
def test_each_sample_is_in_exactly_one_set(samples):
    x, a = np.array(samples).T
    inside, kill, passing = partition(x, a)
    np.testing.assert_array_equal(inside.astype(int) + kill + passing, 1)
    assert inside[a == 0].all()
    assert inside[np.abs(np.exp(x) - 1) <= 0.2].all()


@given(arrays)
def test_the_kill_set_is_where_ppo_clip_drops_the_gradient(samples):
    """The set as defined, against what autodiff of the `min` does."""
    x, a = np.array(samples).T
    dropped = (Clip(low=0.1, high=0.3).multiplier(x, a) == 0) & (a != 0)
    np.testing.assert_array_equal(partition(x, a, 0.1, 0.3).kill, dropped)


def test_the_edge_lies_inside():
    edge = np.array([1.2, 0.8])
    for a in (1.0, -1.0):
        assert partition(np.log(edge), np.full(2, a)).inside.all()
        out = edge * np.array([1 + 1e-9, 1 - 1e-9])
        assert not partition(np.log(out), np.full(2, a)).inside.any()


def test_frameworks_agree():
    x, a = np.linspace(-1, 1, 101, dtype=np.float32), np.tile([1.0, -1.0, 0.0], 34)[:101]
    expected = partition(x, a)
    for to in (jnp.asarray, torch.tensor):
        for mask, other in zip(expected, partition(to(x), to(a)), strict=True):
            np.testing.assert_array_equal(mask, np.asarray(other))


def test_a_shape_is_partitioned_by_its_own_band():
    np.testing.assert_allclose(edges_of(ClipHigher()), (0.8, 1.28))
    assert edges_of(SPO()) == REFERENCE_BAND == (1 - 0.2, 1 + 0.2)


def test_so_is_a_shape_that_is_made_of_others():
    inner = Clip(low=0.25, high=0.5)
    for shape in (Truncate() * inner, inner + KLk2(), Truncate() * (inner + KLk2())):
        assert edges_of(shape) == (0.75, 1.5)
    assert edges_of(by_sign(Clip(eps=0.5), Clip(eps=0.25))) == (0.75, 1.5)
    assert edges_of(by_sign(Clip(eps=0.5), SPO())) == (0.0, 1.5)  # SPO has no edge below
    assert edges_of(by_sign(SPO(), Clip(eps=0.5))) == (0.5, math.inf)
    assert edges_of(by_sign(SPO(), KLk2())) == REFERENCE_BAND


def test_edges_follow_the_context():
    age = np.array([0.0, 4.0])
    for shape in (Clip(eps=ByAge(0.5, 4.0)), AgeConditioned(eps=0.5, half_life=4.0)):
        bottom, top = edges_of(shape, Context(age=age), age)
        np.testing.assert_allclose(bottom, [0.5, 0.75])
        np.testing.assert_allclose(top, [1.5, 1.25])
