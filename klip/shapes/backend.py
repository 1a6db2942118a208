"""The differences between NumPy, JAX and PyTorch: they are dealt with here alone.

The elementwise functions below take arrays of any of the three (and plain numbers), so that a
shape reads like its formula. `derivative` is each framework's own automatic differentiation;
NumPy has none, so `Dual` carries a forward-mode tangent through the same functions.

Ties are settled once, here: at equal arguments `minimum`, `maximum` and `clip` differentiate as
their first argument does. That is the strict partition of the paper, extended to the boundary
that its theorem leaves out.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import array_api_compat
import numpy as np

from klip.errors import KlipError

Array = Any
"""An array of NumPy, JAX or PyTorch, or a number."""

LOG_RATIO_LIMIT = 20.0
"""|log w| saturates here: e^20 is 5e8, and its square still fits float32 and bfloat16."""


class Dual:
    """A NumPy value and its tangent: enough arithmetic for an objective's formula."""

    __array_ufunc__ = None  # `ndarray * Dual` must reach our __rmul__, not loop over objects

    def __init__(self, value: Array, tangent: Array) -> None:
        self.value, self.tangent = value, tangent

    def __add__(self, other: Array) -> Dual:
        y = _dual(other)
        return Dual(self.value + y.value, self.tangent + y.tangent)

    def __mul__(self, other: Array) -> Dual:
        y = _dual(other)
        return Dual(self.value * y.value, self.tangent * y.value + self.value * y.tangent)

    def __truediv__(self, other: Array) -> Dual:
        y = _dual(other)
        quotient = self.value / y.value
        return Dual(quotient, (self.tangent - quotient * y.tangent) / y.value)

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.tangent)

    def __sub__(self, other: Array) -> Dual:
        return self + -_dual(other)

    def __rsub__(self, other: Array) -> Dual:
        return _dual(other) + -self

    def __rtruediv__(self, other: Array) -> Dual:
        return _dual(other) / self

    def __pow__(self, power: float) -> Dual:
        return Dual(self.value**power, power * self.value ** (power - 1) * self.tangent)

    __radd__ = __add__
    __rmul__ = __mul__

    def __gt__(self, other: Array) -> Array:
        return self.value > value_of(other)

    def __lt__(self, other: Array) -> Array:
        return self.value < value_of(other)

    def __ge__(self, other: Array) -> Array:
        return self.value >= value_of(other)

    def __le__(self, other: Array) -> Array:
        return self.value <= value_of(other)


def _dual(x: Array) -> Dual:
    return x if isinstance(x, Dual) else Dual(x, 0.0)


def value_of(x: Array) -> Array:
    """The value of `x` without its tangent, if it has one."""
    return x.value if isinstance(x, Dual) else x


def namespace(*xs: Array) -> Any:
    """The array-API namespace that the arrays among `xs` share; NumPy for plain numbers."""
    arrays = [x for x in map(value_of, xs) if not isinstance(x, (int, float))]
    if all(map(_is_numpy, arrays)):
        return np  # which is one by itself; `array_api_compat.numpy` takes long to import
    return array_api_compat.array_namespace(*arrays)


def _is_numpy(x: Array) -> bool:
    """As the library says, which takes longer to say so of the usual ones."""
    usual = type(x) is np.ndarray and x.dtype.kind in "fbiu"
    return usual or array_api_compat.is_numpy_array(x)


def _is_torch(x: Array) -> bool:
    return array_api_compat.is_torch_array(x)


def _like(x: Array, *others: Array) -> Array:
    """A plain number as an array of the others' kind and dtype; anything else as it is."""
    if not isinstance(x, (int, float)):
        return x
    for other in map(value_of, others):
        if type(other) is np.ndarray and other.dtype.kind == "f":
            return np.asarray(x, dtype=other.dtype)
        if not isinstance(other, (int, float)):
            xp = namespace(other)
            dtype = other.dtype if xp.isdtype(other.dtype, "real floating") else None
            device = array_api_compat.device(other) if "torch" in xp.__name__ else None
            return xp.asarray(x, dtype=dtype, device=device)
    return x


def cast(x: Array, like: Array) -> Array:
    """`x` in the dtype of `like`, where both are arrays."""
    if not (hasattr(x, "dtype") and hasattr(like, "dtype")) or x.dtype == like.dtype:
        return x
    return namespace(x).astype(x, like.dtype)


def _elementwise(name: str, slope: Callable[[Array, Array], Array]) -> Callable[[Array], Array]:
    """A unary function; `slope(x, f(x))` is its derivative, for duals alone."""

    def function(x: Array) -> Array:
        if isinstance(x, Dual):
            value = getattr(np, name)(x.value)
            return Dual(value, slope(x.value, value) * x.tangent)
        if isinstance(x, (int, float)):
            return float(getattr(np, name)(np.asarray(float(x))))
        return getattr(namespace(x), name)(x)

    function.__name__ = name
    function.__doc__ = f"Elementwise {name}, in any framework."
    return function


exp = _elementwise("exp", lambda x, y: y)
log = _elementwise("log", lambda x, y: 1 / x)
log1p = _elementwise("log1p", lambda x, y: 1 / (1 + x))
sqrt = _elementwise("sqrt", lambda x, y: 0.5 / y)
tanh = _elementwise("tanh", lambda x, y: 1 - y * y)
absolute = _elementwise("abs", lambda x, y: np.sign(x))
sign = _elementwise("sign", lambda x, y: np.zeros_like(x))


def where(condition: Array, x: Array, y: Array, like: Array = 0.0) -> Array:
    """`x` where the condition holds, else `y`.

    Two plain numbers have no dtype of their own: they take that of the array `like`.
    """
    if isinstance(x, Dual) or isinstance(y, Dual):
        x, y = _dual(x), _dual(y)
        return Dual(
            np.where(condition, x.value, y.value), np.where(condition, x.tangent, y.tangent)
        )
    if isinstance(condition, (bool, np.bool_)):
        return x if condition else y
    x, y = _like(x, y, like), _like(y, x, like)
    if isinstance(x, (int, float)) and isinstance(y, (int, float)):
        raise KlipError(
            f"where(condition, {x}, {y}) cannot know its dtype: pass an array, like=advantage"
        )
    return namespace(condition, x, y).where(condition, x, y)


def minimum(x: Array, y: Array) -> Array:
    """The smaller of the two; ties go to `x`, in value and in gradient."""
    return where(y < x, y, x)


def maximum(x: Array, y: Array) -> Array:
    """The larger of the two; ties go to `x`, in value and in gradient."""
    return where(y > x, y, x)


def clip(x: Array, low: Array, high: Array) -> Array:
    """`x` limited to [low, high]; on the edges the gradient is that of `x`."""
    if _is_torch(x) and isinstance(low, (int, float)) and isinstance(high, (int, float)):
        return x.clamp(low, high)
    return minimum(maximum(x, low), high)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), without overflow on either side, and with its slope of 1/4 at 0."""
    if _is_torch(x):
        return x.sigmoid()
    falling, rising = exp(-maximum(x, 0.0)), exp(minimum(x, 0.0))
    return where(x >= 0, 1 / (1 + falling), rising / (1 + rising))


def sech2(x: Array) -> Array:
    """1 / cosh(x)^2, without overflow and without the cancellation of 1 - tanh^2."""
    small = exp(-2 * absolute(x))
    return 4 * small / ((1 + small) * (1 + small))


def stop_gradient(x: Array) -> Array:
    """`x` as a constant."""
    if isinstance(x, Dual):
        return x.value
    if "jax" in getattr(namespace(x), "__name__", ""):
        return sys.modules["jax"].lax.stop_gradient(x)
    return x.detach() if hasattr(x, "detach") else x


def ratio(log_ratio: Array) -> Array:
    """w = e^(log w), saturating at e^±20 so that squares stay finite.

    Only the value saturates: the derivative is w everywhere, so an objective's gradient and a
    multiplier written by hand agree beyond the limit too.
    """
    saturated = clip(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    if _is_torch(log_ratio) and not sys.modules["torch"].is_grad_enabled():  # saves two passes
        return rounded_exp(saturated)
    return rounded_exp(log_ratio + stop_gradient(saturated - log_ratio))


def rounded_exp(x: Array) -> Array:
    """e^x, rounded from float64: float32 results have the same bits in every framework.

    The frameworks' own float32 functions differ in the last bit for one number in eleven, so a
    shape would differ slightly between the trainer and a token loss. The derivative is the
    rounded value itself. Within `native_exp`, PyTorch uses its own function.
    """
    if isinstance(x, Dual):
        value = rounded_exp(x.value)
        return Dual(value, value * x.tangent)
    if not hasattr(x, "dtype") or x.dtype == namespace(x).float64:
        return exp(x)
    name = namespace(x).__name__
    if "jax" in name:
        return _jax_exp()(x)
    if "torch" in name:
        return exp(x) if _NATIVE.get() else _torch_exp().apply(x)
    return np.exp(x.astype(np.float64)).astype(x.dtype)


_NATIVE = ContextVar("_NATIVE", default=False)


@contextmanager
def native_exp() -> Iterator[None]:
    """Let PyTorch compute ratios as its own trainers do, so that runs can equal theirs to the bit."""
    before = _NATIVE.set(True)
    try:
        yield
    finally:
        _NATIVE.reset(before)


@functools.cache
def _jax_exp() -> Callable[[Array], Array]:
    jax: Any = sys.modules["jax"]

    def exponential(x: Array) -> Array:
        with jax.enable_x64(True):
            return jax.numpy.exp(x.astype(jax.numpy.float64)).astype(x.dtype)

    def with_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        y = rounded(*primals)
        return y, y * tangents[0]

    rounded: Callable[..., Array] = jax.custom_jvp(exponential)
    rounded.defjvp(with_slope)  # type: ignore[attr-defined]
    return rounded


@functools.cache
def _torch_exp() -> Any:
    import torch

    class Exponential(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Array) -> Array:
            y = x.double().exp_().to(x.dtype)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, gradient: Array) -> Array:
            return gradient * ctx.saved_tensors[0]

    return Exponential


def derivative(function: Callable[[Array], Array], x: Array) -> Array:
    """d function / dx, elementwise, by the framework's own automatic differentiation."""
    return value_and_derivative(function, x)[1]


def value_and_derivative(function: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
    """(value, derivative) of the function at `x`, in one pass; both detached."""
    name = namespace(x).__name__
    if "jax" in name:
        value, pullback = sys.modules["jax"].vjp(function, x)
        if (shape := _widened(x, value)) is not None:
            return value_and_derivative(function, namespace(x).broadcast_to(x, shape))
        return value, pullback(namespace(x).ones_like(value))[0]
    if "torch" in name:
        torch = sys.modules["torch"]
        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            value = function(leaf)
            if (shape := _widened(x, value)) is not None:
                return value_and_derivative(function, x.expand(shape))
            (slope,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), slope
    x = np.asarray(x, dtype=None if hasattr(x, "dtype") else float)
    out = function(Dual(x, np.ones_like(x)))
    return out.value, out.tangent + 0.0  # + 0.0: no negative zeros


def _widened(x: Array, value: Array) -> tuple[int, ...] | None:
    """The shape of `value` if x broadcasts to it, since each sample has its own slope; else None."""
    shape = np.broadcast_shapes(np.shape(x), np.shape(value))
    return None if shape == np.shape(x) else shape
