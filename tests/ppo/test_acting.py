"""Weights and actions in NumPy: where they lie, how they begin, and whose bits they are."""

import subprocess
import sys

import numpy as np
import pytest

from klip.ppo import policy
from klip.ppo.acting import Start, actor, bounded, forward, initial, layers, layout_of
from klip.tasks import Box, Discrete, MultiDiscrete
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
    assert initial(layout, 0).size == sum(int(np.prod(shape)) for shape in shapes.values())


def test_a_network_is_affine_maps_with_tanh_between():
    layout, vector, rng = make(SPACES["box"])
    arrays = layout.split(vector[None])
    x = rng.normal(size=(1, 6, 5)).astype(np.float32)
    hidden = x[0].astype(np.float64)
    for depth in range(3):
        hidden = hidden @ arrays[f"value.{depth}.weight"][0] + arrays[f"value.{depth}.bias"][0]
        hidden = np.tanh(hidden) if depth < 2 else hidden
    np.testing.assert_allclose(
        forward(layout, layers(layout, arrays, "value"), x)[0], hidden, rtol=1e-5, atol=1e-6
    )


def test_noise_at_its_ends_still_chooses_one_of_the_choices():
    layout, vector, _ = make(Discrete(4))
    arrays, x = layout.split(vector[None]), np.zeros((1, 2, 5), np.float32)
    noise = np.array([[[0.0], [np.nextafter(np.float32(1), np.float32(0))]]], np.float32)
    assert actor(layout, arrays, noise[None])(x, 0)[0, :, 0].tolist() == [0, 3]


@every_space
@pytest.mark.parametrize("envs", [1, 2, 16])
def test_a_runs_actions_do_not_depend_on_its_neighbours(space, envs):
    """Bit for bit, for any number of runs acting together."""
    layout, _, rng = make(space)
    vectors = np.stack([make(space, seed=s)[1] for s in range(20)])
    x = rng.normal(size=(20, envs, 5)).astype(np.float32)
    size = sum(layout.heads) if layout.gaussian else len(layout.heads)
    noise = rng.random((1, 20, envs, size), np.float32)
    together = actor(layout, layout.split(vectors), noise)(x, 0)
    for count in (1, 2, 7, 20):
        draw = actor(layout, layout.split(vectors[:count]), noise[:, :count])
        assert draw(x[:count], 0).tobytes() == together[:count].tobytes()


def test_initial_weights_are_orthogonal_with_the_papers_gains():
    layout = layout_of(5, SPACES["box"], (16, 8))
    arrays = layout.split(initial(layout, 3, Start(-0.5)))
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


KINDS = {
    "relu": {"activation": "relu"},
    "elu": {"activation": "elu"},
    "swish, deep critic": {"activation": "swish", "value_hidden": (6, 5, 4)},
    "layer norm": {"layer_norm": True},
    "shared trunk": {"shared_trunk": True, "layer_norm": True},
    "deviations of a state": {"state_std": True},
    "squashed": {"state_std": True, "squash": True, "shared_trunk": True},
}
every_kind = pytest.mark.parametrize("networks", KINDS.values(), ids=KINDS.keys())


@every_kind
def test_numpy_and_jax_agree_on_every_kind_of_network(networks):
    layout = layout_of(5, SPACES["box"], (16, 8), **networks)
    rng = np.random.default_rng(0)
    vector = initial(layout, 0)
    vector = vector + rng.normal(0, 0.3, vector.shape).astype(np.float32)
    x = rng.normal(size=(7, 5)).astype(np.float32)
    arrays, jaxs = layout.split(vector[None]), layout.split(vector)
    for net in ("policy", "value"):
        mine = forward(layout, layers(layout, arrays, net), x[None])[0]
        np.testing.assert_allclose(mine, policy.network(layout, jaxs, net, x), rtol=2e-5, atol=2e-6)
    dist = policy.distribution(layout, jaxs, x)
    noise = rng.standard_normal((1, 7, 3), np.float32)
    drawn = actor(layout, arrays, noise[None])(x[None], 0)[0]
    expected = dist["mean"] + np.exp(dist["log_std"]) * noise[0]
    np.testing.assert_allclose(drawn, expected, rtol=2e-5, atol=2e-6)


@every_kind
def test_where_arrays_lie_for_every_kind_of_network(networks):
    layout = layout_of(5, SPACES["box"], (16, 8), **networks)
    arrays = layout.split(initial(layout, 0))
    assert sum(x.size for x in arrays.values()) == initial(layout, 0).size
    assert ("trunk.0.weight" in arrays) == layout.shared_trunk == ("value.0.weight" not in arrays)
    assert ("policy.log_std" in arrays) != layout.state_std
    assert all((x == 1).all() for name, x in arrays.items() if name.endswith(".scale"))
    assert any(name.endswith(".shift") for name in arrays) == layout.layer_norm


@pytest.mark.parametrize("state_std", [False, True])
def test_the_first_deviation_is_the_configs(state_std):
    layout = layout_of(5, SPACES["box"], (16, 8), state_std=state_std)
    start = Start(log_std=-0.7, policy_gain=1e-6)
    dist = policy.distribution(layout, layout.split(initial(layout, 0, start)), np.ones((2, 5)))
    np.testing.assert_allclose(dist["log_std"], -0.7, atol=1e-4)


@pytest.mark.parametrize(("init", "variance"), [("torch", 1 / 3), ("lecun", 1.0)])
def test_uniform_weights_have_the_variance_of_their_inputs(init, variance):
    layout = layout_of(50, SPACES["box"], (400,))
    arrays = layout.split(initial(layout, 0, Start(init=init)))
    w = arrays["policy.0.weight"]
    assert w.var() == pytest.approx(variance / 50, rel=0.05)
    assert np.abs(w).max() <= (3 * variance / 50) ** 0.5
    assert arrays["policy.0.bias"].any() == (init == "torch")


def test_gains():
    layout = layout_of(5, SPACES["box"], (16,))
    start = Start(hidden_gain=3.0, policy_gain=0.5, value_gain=2.0)
    arrays = layout.split(initial(layout, 0, start))
    for name, gain in (("policy.0", 3.0), ("policy.1", 0.5), ("value.1", 2.0)):
        assert np.linalg.norm(arrays[f"{name}.weight"], 2) == pytest.approx(gain, rel=1e-5)


def test_actions_lie_within_their_bounds_squashed_or_clipped():
    box = Box(np.float32([-1, 0]), np.float32([1, 10]))
    raw = np.random.default_rng(0).normal(0, 30, (100, 2)).astype(np.float32)
    for squash in (False, True):
        layout = layout_of(5, box, (8,), squash=squash)
        made = bounded(layout, raw, box)
        assert (made >= box.low).all()
        assert (made <= box.high).all()
    near = 1e-3 * raw
    np.testing.assert_allclose(bounded(layout, near, box)[:, 1], 5 + 5 * np.tanh(near[:, 1]), 1e-5)
