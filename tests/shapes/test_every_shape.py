"""The laws that every shape obeys: one test for all, no list kept by hand.

A user's own shape goes through it too:
    pytest tests/shapes/test_every_shape.py --shape my_shapes.py:MyShape
"""

import functools
import importlib
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.shapes import (
    BySign,
    Controller,
    Gate,
    Shape,
    Threshold,
    Value,
    catalogue,
    derivative,
    numbers,
    parse,
    structure,
    with_numbers,
)
from tests.shapes.samples import convert, draw_samples, seeds

torch = pytest.importorskip("torch")


def in_numpy(shape, x, a, given, dtype="float64"):
    return shape.multiplier(
        x.astype(dtype), a.astype(dtype), convert(given, lambda v: v.astype(dtype))
    )


def in_torch(shape, x, a, given, dtype):
    def to(v):
        return torch.tensor(v.astype(dtype))

    return shape.multiplier(to(x), to(a), convert(given, to)).numpy()


def in_jax(shape, x, a, given, dtype, transform=lambda f: f):
    def m(x, a, given):
        return shape.multiplier(x, a, convert(given, jnp.asarray))

    arrays = jax.tree.map(lambda v: jnp.asarray(v, dtype), (x, a, given))
    return np.asarray(transform(m)(*arrays))


FRAMEWORKS = {
    "jax": in_jax,
    "jax, compiled": functools.partial(in_jax, transform=jax.jit),
    "jax, vmapped": functools.partial(in_jax, transform=jax.vmap),
    "torch": in_torch,
}


def rounding_scale(shape, x, a, given):
    """How much m changes where its inputs change by their own size: what rounding is relative to.

    Also which samples are not so near a jump that rounding may fall on either side of it.
    """
    m = in_numpy(shape, x, a, given)
    scale = np.abs(m) + np.abs(np.exp(np.clip(x, -20, 20)) * a)
    smooth = np.ones(x.shape, bool)
    for step in (1e-5, -1e-5):
        moves = [in_numpy(shape, x + step, a, given), in_numpy(shape, x, a * (1 + step), given)]
        moves += [
            in_numpy(shape, x, a, {**given, name: value * (1 + step)})
            for name, value in given.items()
        ]
        for moved in moves:
            scale = scale + np.abs(moved - m) / 1e-5
            smooth &= np.abs(moved - m) <= 1e-2 * (np.abs(m) + np.abs(moved) + 1e-3)
    return m, scale, smooth


@settings(max_examples=3)
@given(seed=seeds)
def test_frameworks_agree(shape, seed):
    """NumPy, JAX (eager, compiled, vmapped) and PyTorch give one number."""
    x, a, given_context = draw_samples(shape, np.random.default_rng(seed), 300, 20.0)
    for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-12)):
        x, a = x.astype(dtype).astype(float), a.astype(dtype).astype(float)
        given_context = {k: v.astype(dtype).astype(float) for k, v in given_context.items()}
        exact, scale, smooth = rounding_scale(shape, x, a, given_context)
        assert smooth.mean() > 0.5
        results = {"numpy": in_numpy(shape, x, a, given_context, dtype)}
        with jax.enable_x64(dtype == "float64"):
            for name, run in FRAMEWORKS.items():
                results[name] = run(shape, x, a, given_context, dtype)
        for name, m in results.items():
            assert m.dtype == dtype, (name, m.dtype)
            error = np.abs(m - exact) / (scale + 1e-3)
            assert error[smooth].max() <= tolerance, (name, dtype, error[smooth].max())


@settings(max_examples=3)
@given(seed=seeds)
def test_finite_to_log_ratio_50(shape, seed):
    """No NaN and no infinity, in float32, however far the policies are apart."""
    x, a, given_context = draw_samples(shape, np.random.default_rng(seed), 300, 50.0)
    x[:4] = 50.0, -50.0, 20.0, -20.0
    for name, run in FRAMEWORKS.items():
        m = run(shape, x, a, given_context, "float32")
        assert np.all(np.isfinite(m)), (name, x[~np.isfinite(m)], a[~np.isfinite(m)])
    assert np.all(np.isfinite(in_numpy(shape, x, a, given_context, "float32")))


@settings(max_examples=5)
@given(seed=seeds)
def test_views_are_consistent(shape, seed):
    """m = wA + beta and m/w = A + beta/w, whichever of them the shape defines."""
    x, a, given_context = draw_samples(shape, np.random.default_rng(seed), 200, 5.0)
    context = convert(given_context, np.asarray)
    w, m = np.exp(x), shape.multiplier(x, a, context)
    beta, effective = shape.beta(x, a, context), shape.effective_advantage(x, a, context)
    np.testing.assert_allclose(m, w * a + beta, rtol=1e-12, atol=1e-12 * (1 + w.max()))
    np.testing.assert_allclose(effective * w, m, rtol=1e-12, atol=1e-12)


def test_one_ratio_of_many_samples(shape):
    """A ratio that a whole sequence shares, `[B, 1]`, gives each of its samples its own number."""
    x, a, given_context = draw_samples(shape, np.random.default_rng(0), (6, 5), 5.0)
    narrow = x[:, :1]
    wide = np.repeat(narrow, 5, axis=1)
    with jax.enable_x64(True):
        for run in (in_numpy, in_torch, in_jax):
            one, many = (run(shape, r, a, given_context, "float64") for r in (narrow, wide))
            np.testing.assert_allclose(one, many, rtol=1e-13, atol=1e-15)


@settings(max_examples=5)
@given(seed=seeds)
def test_samples_are_independent(shape, seed):
    """A sample's number does not depend on the others, on their order, or on the array's shape."""
    x, a, given_context = draw_samples(shape, np.random.default_rng(seed), 60, 5.0)
    m = in_numpy(shape, x, a, given_context)
    order = np.random.default_rng(seed).permutation(60)
    shuffled = in_numpy(shape, x[order], a[order], {k: v[order] for k, v in given_context.items()})
    np.testing.assert_array_equal(shuffled, m[order])
    folded = shape.multiplier(
        x.reshape(5, 12), a.reshape(5, 12), convert(given_context, lambda v: v.reshape(5, 12))
    )
    np.testing.assert_array_equal(folded.ravel(), m)


@pytest.mark.parametrize("framework", ["numpy", "jax", "torch"])
@settings(max_examples=3)
@given(seed=seeds)
def test_autodiff_of_the_published_objective_is_the_multiplier(published, framework, seed):
    """In each framework's own automatic differentiation, in float64."""
    x, a, given_context = draw_samples(published, np.random.default_rng(seed), 200, 8.0)
    to = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.tensor}[framework]
    exact, scale, smooth = rounding_scale(published, x, a, given_context)
    with jax.enable_x64(True):
        context, advantage = convert(given_context, to), to(a)
        slope = derivative(lambda v: published.objective(v, advantage, context), to(x))
        slope = np.asarray(slope)
    error = np.abs(slope - exact) / (scale + 1e-3)
    assert error[smooth].max() < 1e-12


def test_the_spelling_reads_back(shape):
    """`parse(str(shape))` is the shape: a name on the command line and a record on disk."""
    assert parse(str(shape)) == shape


def test_a_changed_number_does_not_compile_anew(shape):
    """Parameters may be traced: one compilation serves every value of them."""
    x, a, given_context = draw_samples(shape, np.random.default_rng(0), 50, 2.0)
    template, names = structure(shape), list(numbers(shape))
    traces = []

    @jax.jit
    def compiled(values, x, a, given):
        traces.append(1)
        traced = with_numbers(template, dict(zip(names, values, strict=True)))
        return traced.multiplier(x, a, convert(given, jnp.asarray))

    with jax.enable_x64(True):
        for factor in (1.0, 1.1):
            values = [v * factor for v in numbers(shape).values()]
            m = compiled(values, x, a, given_context)
            moved = with_numbers(shape, dict(zip(names, values, strict=True)))
            _, scale, smooth = rounding_scale(moved, x, a, given_context)
            error = np.abs(m - in_numpy(moved, x, a, given_context)) / (scale + 1e-3)
            assert error[smooth].max() < 1e-12
    assert len(traces) == 1


@pytest.mark.parametrize("kind", [Shape, Controller, Gate, Threshold])
def test_every_entry_says_what_it_is(kind):
    """A formula first and an example next, a family, and for shapes and controllers a source."""
    for cls in catalogue(kind).values():
        assert cls.__doc__, cls
        assert ">>>" in cls.__doc__, cls
        assert cls.family != "user", cls
        if kind in (Shape, Controller):
            assert cls.reference, cls


def test_every_class_of_the_room_is_exported():
    """`from klip.shapes import X` works for whatever `klip shapes` lists."""
    room = importlib.import_module("klip.shapes")
    for cls in [*catalogue(Value).values(), BySign]:
        assert getattr(room, cls.__name__) is cls


def test_the_promised_numbers_are_shipped():
    """The catalogue numbers that this version promises."""
    promised = [*range(1, 7), *range(9, 20), 21, 22, 23, 25, *range(29, 34), 35, 36,
                *range(42, 48), 49, 51, 52, 54, 55, 62, 63, 64, 66, 83, 85]  # fmt: skip
    shipped = {n for cls in catalogue(Value).values() for n in _numbers(cls.number)}
    assert set(promised) <= shipped


def _numbers(text):
    return [int("".join(filter(str.isdigit, part))) for part in text.split(",") if part]


@pytest.mark.parametrize(
    "row",
    json.loads((Path(__file__).parents[1] / "data" / "check_values.json").read_text()),
    ids=lambda row: row["row"],
)
def test_check_values(row):
    """The catalogue's multipliers at five points, to the four decimals it gives."""
    w, a = np.array([(1.5, 1.0), (0.5, -1.0), (1.5, -1.0), (0.5, 1.0), (1.05, 1.0)]).T
    context = convert(row["context"], np.asarray)
    m = parse(row["shape"]).multiplier(np.log(w), a, context)
    np.testing.assert_allclose(m, row["multipliers"], atol=5.001e-5, rtol=0)


@settings(max_examples=20)
@given(eps=st.floats(0.01, 0.9), seed=seeds)
def test_three_independent_routes_to_ppo_clip(eps, seed):
    """The `min`, Phi and the coefficient agree bit for bit in float32, edges included.

    Where w is outside by its last bit, w*A and edge*A may round to one number: that is no tie.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.5, 500).astype(np.float32)
    edges = np.log(np.array([[1 + eps], [1 - eps]])).astype(np.float32)
    near = (edges.view(np.int32) + np.arange(-5, 5, dtype=np.int32)).view(np.float32)
    x[:400] = np.tile(near, 20).ravel()
    a = rng.normal(0, 1, 500).astype(np.float32)
    a[::9] = 0
    routes = [parse(f"{name}(eps={eps!r})") for name in ("clip", "clip-phi", "per-sample")]
    assert {frozenset(r.definitions) for r in routes} == {
        frozenset({"objective"}), frozenset({"beta"})
    }  # fmt: skip
    for run in (in_numpy, *FRAMEWORKS.values()):
        first, *rest = (run(r, x, a, {}, "float32").view(np.int32) for r in routes)
        for other in rest:
            np.testing.assert_array_equal(first, other)
