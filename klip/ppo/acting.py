"""Networks without a framework: where their weights lie, initial values, and acting in NumPy.

Acting is done run by run in C loops, so that its bits do not depend on how many runs act together.
Using a trained policy needs this file and not JAX.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from klip.engine.random import stream
from klip.shapes import Array
from klip.tasks import Box, Discrete, MultiDiscrete

Action = Box | Discrete | MultiDiscrete
F32 = NDArray[np.float32]

LEAST_STD: Final = 0.001
"""Deviations that a network gives are larger than this."""
NORM_EPS: Final = 1e-5
"""Added to the variance by which a layer is normalised."""


@dataclass(frozen=True)
class Layout:
    """Where each array of a run's parameters lies in its flat vector: policy first, then value."""

    observation: int
    """D, the size of an observation"""
    hidden: tuple[int, ...]
    """widths of the hidden layers of the policy network"""
    heads: tuple[int, ...]
    """sizes of the action heads: one mean vector, or one set of logits per discrete action"""
    gaussian: bool
    """whether actions are real numbers; otherwise they are choices"""
    value_hidden: tuple[int, ...] = ()
    """widths of those of the value network; none: the policy's"""
    activation: str = "tanh"
    """after each hidden layer"""
    shared_trunk: bool = False
    """whether both networks share their hidden layers"""
    layer_norm: bool = False
    """whether a hidden layer is normalised before its activation, over its width"""
    state_std: bool = False
    """whether the policy network gives a Gaussian's deviations, too"""
    squash: bool = False
    """whether an action is the tanh of what a Gaussian draws, scaled to the bounds"""

    @property
    def outputs(self) -> int:
        """How many numbers the policy network gives."""
        return sum(self.heads) * (2 if self.state_std else 1)

    def widths(self, net: str) -> tuple[int, ...]:
        """Of the hidden layers of "policy" or "value"."""
        return self.value_hidden or self.hidden if net == "value" else self.hidden

    def layer(self, net: str, depth: int) -> str:
        """What the names of a layer's arrays begin with; a layer of both networks is the trunk's.

        >>> Layout(3, (8,), (2,), False, shared_trunk=True).layer("value", 0)
        'trunk.0'
        """
        shared = self.shared_trunk and depth < len(self.hidden)
        return f"{'trunk' if shared else net}.{depth}"

    @property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of every array, in the order of the vector."""
        arrays: dict[str, tuple[int, ...]] = {}
        for net, out in (("policy", self.outputs), ("value", 1)):
            sizes = (self.observation, *self.widths(net), out)
            for i, (before, after) in enumerate(itertools.pairwise(sizes)):
                name = self.layer(net, i)
                arrays |= {f"{name}.weight": (before, after), f"{name}.bias": (after,)}
                if self.layer_norm and i < len(sizes) - 2:
                    arrays |= {f"{name}.scale": (after,), f"{name}.shift": (after,)}
            if net == "policy" and self.gaussian and not self.state_std:
                arrays["policy.log_std"] = (out,)
        return list(arrays.items())

    def split(self, vector: Array) -> dict[str, Array]:
        """The arrays as views of a vector `[P]`, or of a stack of vectors `[R, P]`."""
        arrays, start = {}, 0
        for name, shape in self.shapes:
            size = int(np.prod(shape))
            piece = vector[..., start : start + size]
            arrays[name] = piece.reshape(*vector.shape[:-1], *shape)
            start += size
        return arrays

    def join(self, arrays: dict[str, Array]) -> Array:
        """The vector `[P]` again, for JAX; JAX may have changed the order of the dict."""
        import jax.numpy as jnp  # here, since acting needs none of it

        return jnp.concatenate([arrays[name].ravel() for name, _ in self.shapes])


def layout_of(observation: int, action: Action, hidden: tuple[int, ...], **networks: Any) -> Layout:
    """The layout of the networks for a task.

    Args:
        observation: D, the size of an observation
        action: the task's action space
        hidden: widths of the hidden layers
        networks: the fields of `Layout` that have defaults

    """
    if isinstance(action, Box):
        return Layout(observation, hidden, (len(action.low),), True, **networks)
    heads = (action.n,) if isinstance(action, Discrete) else tuple(action.n)
    return Layout(observation, hidden, heads, False, **networks)


class Start(NamedTuple):
    """How parameters begin."""

    log_std: float = 0.0
    """of a Gaussian policy"""
    init: str = "orthogonal"
    """orthogonal weights of the gains below; torch, uniform within 1/sqrt(inputs), biases too;
    or lecun, uniform of variance 1/inputs"""
    hidden_gain: float = 2**0.5
    policy_gain: float = 0.01
    """of the last layer"""
    value_gain: float = 1.0


def initial(layout: Layout, seed: int, start: Start = Start()) -> F32:  # noqa: B008
    """The parameters of a run before its first iteration; biases are 0 but for `init="torch"`.

    Args:
        layout: where the arrays lie
        seed: of the run
        start: how they begin

    Returns:
        the vector `[P]` of all parameters

    """
    pieces = []
    for name, shape in layout.shapes:
        layer, _, kind = name.rpartition(".")
        if kind == "weight":
            pieces.append(_weight(layout, seed, start, name, shape).ravel())
        elif kind == "bias":
            pieces.append(_bias(layout, seed, start, layer, shape))
        else:
            values = {"log_std": start.log_std, "scale": 1.0, "shift": 0.0}
            pieces.append(np.full(np.prod(shape), values[kind]))
    return np.concatenate(pieces).astype(np.float32)


def _bias(
    layout: Layout, seed: int, start: Start, layer: str, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """A layer's biases; those of deviations that the network gives make them exp(log_std)."""
    bias = np.zeros(shape)
    if start.init == "torch":
        inputs, _ = dict(layout.shapes)[f"{layer}.weight"]
        bias += stream(seed, f"init {layer}.bias").uniform(-1, 1, shape) / inputs**0.5
    if layout.state_std and layer == layout.layer("policy", len(layout.hidden)):
        bias[shape[0] // 2 :] += np.log(np.expm1(np.exp(start.log_std) - LEAST_STD))
    return bias


def _weight(
    layout: Layout, seed: int, start: Start, name: str, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """A layer's weights."""
    rng = stream(seed, f"init {name}")
    if start.init != "orthogonal":
        widest = {"torch": 1.0, "lecun": 3**0.5}[start.init]
        drawn: NDArray[np.float64] = rng.uniform(-1, 1, shape) * (widest / shape[0] ** 0.5)
        return drawn
    net, depth, _ = name.split(".")
    head = start.policy_gain if net == "policy" else start.value_gain
    gain = head if int(depth) == len(layout.widths(net)) else start.hidden_gain
    return _orthogonal(rng, shape, gain)


def _orthogonal(
    rng: np.random.Generator, shape: tuple[int, ...], gain: float
) -> NDArray[np.float64]:
    rows, columns = shape
    tall = rng.standard_normal((max(shape), min(shape)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return gain * (q if rows >= columns else q.T)


def _swish(x: F32) -> F32:
    active: F32 = x / (1 + np.exp(-x))
    return active


def _elu(x: F32) -> F32:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


ACTIVATIONS: Final[dict[str, Callable[[F32], F32]]] = {
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, np.float32(0), out=x),
    "elu": _elu,
    "swish": _swish,
}
"""By name; each may write over its argument."""


class Layer(NamedTuple):
    """The arrays of one layer as they are added and multiplied: of R networks, or of a lone one."""

    weight: F32
    bias: F32
    norm: tuple[F32, F32] | None
    """scale and shift, where the layer is normalised"""


def layers(layout: Layout, arrays: Mapping[str, F32], net: str) -> list[Layer]:
    """A network's layers from the first to the last: R sets of weights."""
    found = []
    # a row of one network, or rows of R that each meet E observations
    row = (0,) if len(next(iter(arrays.values()))) == 1 else (slice(None), None)
    for depth in range(len(layout.widths(net)) + 1):
        name = layout.layer(net, depth)
        rows = {
            key.rpartition(".")[2]: x for key, x in arrays.items() if key.startswith(f"{name}.")
        }
        norm = (rows["scale"][row], rows["shift"][row]) if "scale" in rows else None
        found.append(Layer(rows["weight"][row[0]], rows["bias"][row], norm))
    return found


def forward(layout: Layout, network: Sequence[Layer], x: F32) -> F32:
    """A network's output in NumPy: R sets of weights take `[R, E, D]` to `[R, E, M]`."""
    activate, last = ACTIVATIONS[layout.activation], len(network) - 1
    alone = len(x) == 1 and network[0].weight.ndim == 2
    if alone:
        x = x[0]
    multiply = np.dot if alone else np.matmul  # the same bits, and on few numbers twice as fast
    for depth, (weight, bias, norm) in enumerate(network):
        x = multiply(x, weight)
        x += bias
        if depth < last:
            if norm is not None:
                x = x - x.mean(axis=-1, keepdims=True)
                x /= np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + np.float32(NORM_EPS))
                x = x * norm[0] + norm[1]
            x = activate(x)
    return x[None] if alone else x


def actor(layout: Layout, arrays: Mapping[str, F32], noise: F32) -> Callable[[F32, int], Any]:
    """What samples actions: from observations `[R, E, D]` and the number of the step.

    Actions are `[R, E, A]` (Gaussian, before they are bounded) or `[R, E, heads]` (discrete). The
    noise of all steps, `[T, R, E, A or heads]`, is standard normal for a Gaussian and added to its
    mean, and uniform for each discrete head and picks by it.
    """
    network = layers(layout, arrays, "policy")
    if not layout.gaussian:
        return lambda x, t: _choice(layout, forward(layout, network, x), noise[t])
    if layout.state_std:

        def spread(x: F32, t: int) -> F32:
            mean, wide = np.split(forward(layout, network, x), 2, axis=-1)
            drawn: F32 = mean + deviation(wide) * noise[t]
            return drawn

        return spread
    added = np.exp(arrays["policy.log_std"])[:, None, :] * noise
    return lambda x, t: forward(layout, network, x) + added[t]


def _choice(layout: Layout, out: F32, noise: F32) -> NDArray[np.int64]:
    chosen = np.empty((*out.shape[:2], len(layout.heads)), dtype=np.int64)
    start = 0
    for i, size in enumerate(layout.heads):
        logits = out[..., start : start + size]
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        total = np.cumsum(weights, axis=-1)
        point = noise[..., i, None] * total[..., -1:]
        chosen[..., i] = np.minimum((total <= point).sum(axis=-1), size - 1)
        start += size
    return chosen


def deviation(wide: F32) -> F32:
    """log(1 + e^x) + 0.001: a Gaussian's deviation as the network gives it."""
    return np.logaddexp(wide, np.float32(0)) + np.float32(LEAST_STD)


def bounded(layout: Layout, raw: F32, box: Box) -> NDArray[Any]:
    """What a Gaussian drew, `[..., A]`, as an action within the bounds: clipped to them, or tanh.

    >>> box = Box(np.float32([0]), np.float32([4]))
    >>> bounded(Layout(3, (8,), (1,), True, squash=True), np.float32([[0.0]]), box).tolist()
    [[2.0]]
    """
    if layout.squash:
        raw = box.low + (np.tanh(raw) + 1) * (0.5 * (box.high - box.low))
    # as `clip` does, which takes longer on a few numbers
    within: NDArray[Any] = np.minimum(np.maximum(raw, box.low), box.high)
    return within
