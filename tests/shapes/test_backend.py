"""One file knows the frameworks apart: ties, saturation, autodiff of NumPy, dtypes."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import backend
from klip.shapes.backend import clip, derivative, maximum, minimum, ratio, stop_gradient, where

torch = pytest.importorskip("torch")
TO = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.tensor}
every_framework = pytest.mark.parametrize("to", TO.values(), ids=TO.keys())

FORMULAS = {
    "polynomial": lambda x: 3 * x * x - x / 4 + 1 / (2 + x * x) + (1 - x) ** 3,
    "exp and log": lambda x: backend.exp(-x) * backend.log(2 + backend.exp(x)),
    "log1p": lambda x: backend.log1p(x * x),
    "sqrt and tanh": lambda x: backend.sqrt(1 + x * x) * backend.tanh(x),
    "sigmoid": lambda x: backend.sigmoid(3 * x),
    "sech2": lambda x: backend.sech2(x),
    "absolute and sign": lambda x: backend.absolute(x - 0.3) * backend.sign(x + 0.1),
    "pieces": lambda x: where(x > 0.5, x * x, minimum(maximum(x, -1.0), 0.4) + clip(x, -0.3, 0.2)),
    "constant part": lambda x: x * stop_gradient(x * x),
    "number first": lambda x: 1.0 - 2.0 / (4.0 + x) + x * np.float32(2.0),
}


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS.keys())
@given(x=st.lists(st.floats(-3, 3) | st.sampled_from([-0.3, 0.2, 0.0]), min_size=1, max_size=8))
def test_frameworks_agree_in_value_and_in_slope(formula, x):
    """NumPy's dual numbers and PyTorch's own functions against JAX, on what shapes are made of."""
    x = np.array(x)
    assume(not np.any(x == 0.3))  # |x - 0.3| has no slope there, and everybody gives it another
    with jax.enable_x64(True):
        value = np.asarray(formula(jnp.asarray(x)))
        slope = np.asarray(derivative(formula, jnp.asarray(x)))
    for to in (np.asarray, torch.tensor):
        np.testing.assert_allclose(np.asarray(formula(to(x))), value, rtol=1e-12, atol=1e-12)
        found = np.asarray(derivative(formula, to(x)))
        np.testing.assert_allclose(found, slope, rtol=1e-12, atol=1e-12)


@every_framework
def test_ties_go_to_the_first_argument(to):
    """At equal arguments the gradient is that of the first: the strict partition's choice."""
    x = to([1.0, 1.0])
    assert np.asarray(derivative(lambda v: minimum(v * 3, v * 0 + 3), x)).tolist() == [3, 3]
    assert np.asarray(derivative(lambda v: maximum(v * 0 + 3, v * 3), x)).tolist() == [0, 0]
    assert np.asarray(derivative(lambda v: clip(v, 0.5, 1.0), x)).tolist() == [1, 1]


@every_framework
def test_ratio_saturates_in_value_and_moves_on_in_gradient(to):
    """Beyond the limit w stays e^20, and dw/dl is still w: gradient and multiplier agree."""
    x = to([19.0, 25.0, -25.0])
    expected = np.exp([19.0, 20.0, -20.0])
    np.testing.assert_allclose(np.asarray(ratio(x)), expected, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(derivative(ratio, x)), expected, rtol=1e-6)


@every_framework
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes_are_kept(to, dtype):
    """Plain numbers take the arrays' dtype, in every function."""
    with jax.enable_x64(True):
        x = to(np.array([0.1, -0.2], dtype=dtype))
        for formula in FORMULAS.values():
            if formula is not FORMULAS["number first"]:
                assert str(formula(x).dtype).endswith(dtype)
                assert str(derivative(formula, x).dtype).endswith(dtype)


def test_where_of_two_numbers_asks_for_a_dtype():
    """A silent float64 (NumPy) or float32 (PyTorch) would be worse than a question."""
    x = np.array([1.0, -1.0], dtype=np.float32)
    with pytest.raises(KlipError, match="like=advantage"):
        where(x > 0, 0.1, 0.2)
    assert where(x > 0, 0.1, 0.2, like=x).dtype == np.float32


def test_numpy_needs_no_module_that_takes_long_to_import():
    """Each process that trains would wait for it."""
    code = (
        "import sys, numpy as np, klip\n"
        "assert klip.Clip().multiplier(np.zeros(2), np.ones(2)).tolist() == [1.0, 1.0]\n"
        "assert not {'array_api_compat.numpy', 'numpy.f2py'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_plain_numbers_give_plain_numbers():
    assert ratio(0.0) == 1.0
    assert where(True, 2.0, 3.0) == 2.0
    assert backend.sigmoid(-1000.0) == 0.0


def test_torch_gradients_are_taken_even_under_no_grad():
    """Diagnostics are often computed there; a shape's own autodiff must not care."""
    with torch.no_grad():
        slope = derivative(lambda v: v * v, torch.tensor([3.0]))
    assert slope.item() == 6.0
    assert not slope.requires_grad


@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0.01, 8))
def test_the_ratio_has_the_same_bits_in_every_framework(seed, spread):
    """One definition of a shape is one function, not three that differ in their last bits."""
    x = np.random.default_rng(seed).normal(0, spread, 4096).astype(np.float32)
    expected = np.exp(np.clip(x, -20, 20).astype(np.float64)).astype(np.float32)
    for framework, to in TO.items():
        found = np.asarray(ratio(to(x)))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected, err_msg=framework)
        slope = np.asarray(derivative(ratio, to(x)))
        np.testing.assert_array_equal(slope, expected, err_msg=f"slope in {framework}")
    np.testing.assert_array_equal(np.asarray(jax.jit(ratio)(x)), expected)


def test_the_ratio_can_be_differentiated_twice_in_torch():
    x = torch.tensor([0.5], requires_grad=True)
    (slope,) = torch.autograd.grad(ratio(x), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, x)
    assert curvature.item() == slope.item() == ratio(x).item()
