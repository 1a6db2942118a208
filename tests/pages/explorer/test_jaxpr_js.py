import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from klip.errors import KlipError
from klip.pages.explorer.jaxpr_js import javascript, number

pytest_plugins = ["tests.pages.browser"]

FUNCTIONS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "div": lambda x, y: x / y,
    "rem": jax.lax.rem,
    "neg": lambda x, y: -x,
    "comparisons": lambda x, y: jnp.where((x < y) & (x <= 1) | ~(x > 0) ^ (y >= 1), x, y),
    "equal": lambda x, y: jnp.where(x == y, 1.0, jnp.where(x != 0.5, 2.0, 3.0)),
    "square": lambda x, y: jnp.square(x),
    "cube": lambda x, y: x**3,
    "inverse": lambda x, y: x**-1,
    "power": lambda x, y: jnp.abs(x) ** y,
    "rsqrt": lambda x, y: jax.lax.rsqrt(jnp.abs(x) + 0.1),
    "logistic": lambda x, y: jax.nn.sigmoid(x),
    "exp2": lambda x, y: jnp.exp2(x),
    "extremes": lambda x, y: jnp.maximum(x, y) - jnp.minimum(x, 2 * y),
    "clamp": lambda x, y: jnp.clip(x, -0.3, 0.6) + jax.lax.clamp(-1.0, y, 1.0),
    "expm1": lambda x, y: jnp.expm1(x) + jnp.log1p(jnp.abs(y)),
    "softplus": lambda x, y: jax.nn.softplus(x) + jax.nn.relu(y),
    "tanh": lambda x, y: jnp.tanh(x) * jnp.sign(y) + jnp.floor(3 * x) - jnp.ceil(y),
    "angles": lambda x, y: jnp.sin(x) + jnp.cos(y) + jnp.arctan2(x, y + 3) + jnp.cbrt(x),
    "integers": lambda x, y: (5 * x).astype(int) // 2 + (y > 0).astype(float),
    "finite": lambda x, y: jnp.where(jnp.isfinite(x / jnp.where(y > 0, y, 1)), x, 0.0),
    "single": lambda x, y: x.astype(jnp.float32).astype(jnp.float64),
    "constants": lambda x, y: x * np.full(3, 0.1),
    "gradient": lambda x, y: jax.vmap(jax.grad(lambda u, v: jnp.tanh(u * v) ** 2))(x, y),
    "stopped": lambda x, y: jax.lax.stop_gradient(x) + jax.checkpoint(jnp.exp)(y),
}


def test_every_operation_is_the_librarys(page):
    x = np.array([-1.7, -0.6, -0.2, 0.0, 0.3, 0.5, 1.0, 2.4, 0.3])
    y = np.array([0.4, -0.6, 2.2, 1.0, -0.7, 0.5, 1.5, -1.1, 0.3])
    code = ",".join(
        f"(x, y, o) => {{ {javascript(lambda a, b, f=f: [f(a, b)], ['x', 'y'], [], 'o')} }}"
        for f in FUNCTIONS.values()
    )
    page.open("<!doctype html><title>operations</title>")
    got = page.evaluate(f"""[{code}].map(f => {json.dumps([*zip(x, y, strict=True)])}.map(([x, y]) => {{
        const o = [0]; f(x, y, o); return String(Number(o[0]));
    }}))""")  # noqa: E501
    with jax.enable_x64(True):
        for (name, f), seen in zip(FUNCTIONS.items(), got, strict=True):
            wanted = np.concatenate([f(jnp.array(x[i : i + 3]), jnp.array(y[i : i + 3]))
                                     for i in (0, 3, 6)])  # fmt: skip
            np.testing.assert_allclose(
                np.array(seen, float), wanted, rtol=1e-14, atol=1e-15, err_msg=name
            )


def test_numbers_keep_their_last_bit():
    for x in (0.1, 1 / 3, 1e-300, 5e300, 2.0**-1074):
        assert float(number(x)) == x
    assert [number(x) for x in (np.nan, -np.inf, -0.0, np.False_)] == [
        "NaN", "(-Infinity)", "(-0)", "false",
    ]  # fmt: skip


def test_what_is_computed_once_is_written_once():
    text = javascript(lambda x: [jnp.exp(x) * jnp.exp(x) + jnp.exp(x)], ["x"], [], "o")
    assert text == "const v0 = Math.exp(x); o[0] = (v0 * v0) + v0;"


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (jnp.sort, "sort"),
        (jnp.cumsum, "cumsum"),
        (lambda x: x[::-1], "rev"),
        (lambda x: x - x.mean(), "reduce_sum"),
        (lambda x: x * np.arange(3.0), "an array of different numbers"),
        (lambda x: x[:, None] + x, "broadcast_in_dim"),
        (jax.lax.erf, "erf"),
        (lambda x: x.astype(jnp.bfloat16), "a conversion to bfloat16"),
        (lambda x: float(x[0]), "JAX cannot trace it"),
    ],
)
def test_anything_else_is_refused_by_name(function, says):
    with pytest.raises(KlipError, match=says):
        javascript(lambda x: [function(x)], ["x"], [], "o")
