"""I_in, I_kill and I_pass."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.shapes import SPO, Clip, ClipHigher
from klip.theory.partition import band_of, partition

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
    np.testing.assert_allclose(band_of(ClipHigher()), (0.2, 0.28))
    assert band_of(SPO(), default=0.1) == (0.1, 0.1)
