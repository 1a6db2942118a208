"""Weights and actions in NumPy: where they lie, how they begin, and whose bits they are."""

import subprocess
import sys

import numpy as np
import pytest

from klip.ppo.acting import act, forward, initial, layout_of
from klip.tasks import Discrete, MultiDiscrete
from tests.ppo.networks import SPACES, every_space, make


def test_acting_needs_no_jax():
    code = "import sys, klip.ppo.acting\nassert not {'jax', 'torch'} & sys.modules.keys()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("space", "heads", "gaussian"),
    [
        (SPACES["box"], (3,), True),
        (Discrete(4), (4,), False),
        (MultiDiscrete((3, 2)), (3, 2), False),
    ],
)
def test_the_layout_follows_the_task(space, heads, gaussian):
    layout = layout_of(5, space, (16,))
    assert (layout.heads, layout.gaussian) == (heads, gaussian)
    shapes = dict(layout.shapes)
    assert shapes["policy.1.weight"] == (16, sum(heads))
    assert shapes["value.1.weight"] == (16, 1)
    assert ("policy.log_std" in shapes) == gaussian
    assert initial(layout, 0, 0.0).size == sum(int(np.prod(shape)) for shape in shapes.values())


def test_a_network_is_affine_maps_with_tanh_between():
    layout, vector, rng = make(SPACES["box"])
    arrays = layout.split(vector[None])
    x = rng.normal(size=(1, 6, 5)).astype(np.float32)
    hidden = x[0].astype(np.float64)
    for depth in range(3):
        hidden = hidden @ arrays[f"value.{depth}.weight"][0] + arrays[f"value.{depth}.bias"][0]
        hidden = np.tanh(hidden) if depth < 2 else hidden
    np.testing.assert_allclose(forward(arrays, "value", x)[0], hidden, rtol=1e-5, atol=1e-6)


def test_noise_at_its_ends_still_chooses_one_of_the_choices():
    layout, vector, _ = make(Discrete(4))
    arrays, x = layout.split(vector[None]), np.zeros((1, 2, 5), np.float32)
    noise = np.array([[[0.0], [np.nextafter(np.float32(1), np.float32(0))]]], np.float32)
    assert act(layout, arrays, x, noise)[0, :, 0].tolist() == [0, 3]


@every_space
def test_a_runs_actions_do_not_depend_on_its_neighbours(space):
    """Bit for bit, for any number of runs acting together."""
    layout, _, rng = make(space)
    vectors = np.stack([make(space, seed=s)[1] for s in range(20)])
    x = rng.normal(size=(20, 2, 5)).astype(np.float32)
    size = sum(layout.heads) if layout.gaussian else len(layout.heads)
    noise = rng.random((20, 2, size), np.float32)
    together = act(layout, layout.split(vectors), x, noise)
    for count in (1, 2, 7, 20):
        some = act(layout, layout.split(vectors[:count]), x[:count], noise[:count])
        np.testing.assert_array_equal(some, together[:count])


def test_initial_weights_are_orthogonal_with_the_papers_gains():
    layout = layout_of(5, SPACES["box"], (16, 8))
    arrays = layout.split(initial(layout, 3, -0.5))
    for name, gain in (("policy.0", 2), ("policy.1", 2), ("policy.2", 1e-4), ("value.2", 1)):
        w = arrays[f"{name}.weight"].astype(np.float64)
        gram = w @ w.T if w.shape[0] < w.shape[1] else w.T @ w
        np.testing.assert_allclose(gram, gain * np.eye(len(gram)), atol=1e-6)
        assert not arrays[f"{name}.bias"].any()
    assert (arrays["policy.log_std"] == -0.5).all()


def test_the_vector_is_split_and_joined():
    """Whatever order the dict is in: JAX sorts its keys."""
    layout, vector, _ = make(SPACES["box"])
    arrays = layout.split(vector)
    np.testing.assert_array_equal(layout.join(dict(sorted(arrays.items()))), vector)
    assert next(iter(arrays)).startswith("policy")
