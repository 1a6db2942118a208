"""A policy as an ONNX graph, and the check that its outputs are ours.

    observation float64 [N, D] -> normalise, clip -> float32 -> layers
        -> mean [N, A], log_std [A] or [N, A], or logits [N, sum of choices] -> action

The observation is float64 since the statistics are: a position that has drifted far from where it
started loses, in float32, the digits that its normalisation keeps. float32 observations convert
without loss. `action` is the deterministic one, as the environment takes it: clipped to the bounds
in their own precision, or tanh scaled to them, or the likeliest choice counted from the space's
`start`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klip.engine.random import stream
from klip.errors import KlipError
from klip.policies.policy import Policy
from klip.ppo.acting import LEAST_STD, NORM_EPS, deviation
from klip.tasks import Box, Discrete

TOLERANCE = 1e-5
"""How far an output may lie from ours, relative to the largest of 1, the output, and the numbers
that enter the network: float32 sums of larger terms round more, in every runtime alike."""
OPSET, IR_VERSION = 17, 8  # read by every runtime since 2022
MISSING = 'onnx and onnxruntime are not installed: pip install "klip-rl[onnx]"'


class NoOnnx(KlipError):
    """onnx or onnxruntime is not installed."""


class WrongOutputs(KlipError):
    """The graph does not compute what the policy computes."""


def encode_graph(policy: Policy) -> bytes:
    """The content of an ONNX file that computes what the policy does; needs onnx."""
    try:
        import onnx
        from onnx import helper, numpy_helper
    except ImportError:
        raise NoOnnx(MISSING) from None

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: Any, dtype: Any) -> str:
        constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **settings: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **settings))
        return output

    x = "observation"
    if policy.moments is not None:
        deviation = np.sqrt(policy.moments.variance[0] + 1e-8)
        x = node("Sub", [x, constant("mean_seen", policy.moments.mean[0], "f8")], "centred")
        x = node("Div", [x, constant("deviation_seen", deviation, "f8")], "scaled")
        low, high = constant("lowest", -policy.limit, "f8"), constant("highest", policy.limit, "f8")
        x = node("Clip", [x, low, high], "bounded")
    x = node("Cast", [x], "x0", to=onnx.TensorProto.FLOAT)
    x = _layers(policy, node, constant, x)
    float32, width = onnx.TensorProto.FLOAT, sum(policy.layout.heads)
    outputs = [helper.make_tensor_value_info(x, float32, ["N", width])]
    if isinstance(policy.action, Box):
        box = policy.action
        kind = helper.np_dtype_to_tensor_dtype(box.low.dtype)
        bounded = _squashed(policy, box, node, constant, x) if policy.layout.squash else x
        wide = node("Cast", [bounded], "wide", to=kind)
        raised = node("Max", [wide, constant("low", box.low, box.low.dtype)], "raised")
        node("Min", [raised, constant("high", box.high, box.low.dtype)], "action")
        spread: list[str | int] = ["N", width]
        if not policy.layout.state_std:
            own = constant("policy.log_std", policy.arrays["policy.log_std"][0], "f4")
            node("Identity", [own], "log_std")
            spread = [width]
        outputs.append(helper.make_tensor_value_info("log_std", float32, spread))
        shape: list[str | int] = ["N", width]
    else:
        kind, shape = onnx.TensorProto.INT64, _choices(policy, node, constant, x)
    outputs.insert(0, helper.make_tensor_value_info("action", kind, shape))
    observed = helper.make_tensor_value_info(
        "observation", onnx.TensorProto.DOUBLE, ["N", policy.observation_size]
    )
    graph = helper.make_graph(nodes, "policy", [observed], outputs, constants)
    versions = {"opset_imports": [helper.make_opsetid("", OPSET)], "ir_version": IR_VERSION}
    model = helper.make_model(graph, producer_name="klip", **versions)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _layers(policy: Policy, node: Any, constant: Any, x: str) -> str:
    """The network's layers; the name of its means or logits. Deviations it gives are `log_std`."""
    layout = policy.layout
    last = len(layout.hidden)
    final = "mean" if layout.gaussian else "logits"
    for i in range(last + 1):
        name = layout.layer("policy", i)

        def own(kind: str, name: str = name) -> str:
            return str(constant(f"{name}.{kind}", policy.arrays[f"{name}.{kind}"][0], "f4"))

        out = f"z{i + 1}" if i < last or layout.state_std else final
        x = node("Gemm", [x, own("weight"), own("bias")], out)
        if i < last:
            if layout.layer_norm:
                parts = [x, own("scale"), own("shift")]
                x = node("LayerNormalization", parts, f"n{i + 1}", axis=-1, epsilon=NORM_EPS)
            if layout.activation == "swish":
                x = node("Mul", [x, node("Sigmoid", [x], f"s{i + 1}")], f"x{i + 1}")
            else:
                x = node(layout.activation.capitalize(), [x], f"x{i + 1}")
    if layout.state_std:
        width, axis = sum(layout.heads), constant("last axis", [1], "i8")
        ends = [constant(f"end{k}", [k * width], "i8") for k in range(3)]
        node("Slice", [x, ends[0], ends[1], axis], "mean")
        wide = node("Softplus", [node("Slice", [x, ends[1], ends[2], axis], "spread")], "soft")
        node("Log", [node("Add", [wide, constant("least", LEAST_STD, "f4")], "std")], "log_std")
        return "mean"
    return x


def _squashed(policy: Policy, box: Box, node: Any, constant: Any, mean: str) -> str:
    """tanh, scaled to the bounds, in their precision."""
    half = constant("half", 0.5 * (box.high - box.low), "f4")
    lifted = node("Add", [node("Tanh", [mean], "tanh"), constant("lift", 1.0, "f4")], "lifted")
    scaled = node("Mul", [lifted, half], "widened")
    return str(node("Add", [scaled, constant("floor", box.low, "f4")], "squashed"))


def _choices(policy: Policy, node: Any, constant: Any, logits: str) -> list[str | int]:
    """The likeliest choice of every head; the shape of `action`."""
    heads = policy.layout.heads
    begin, parts = 0, []
    for k, size in enumerate(heads):
        where = [constant(f"from{k}", [begin], "i8"), constant(f"to{k}", [begin + size], "i8")]
        axis = constant(f"axis{k}", [1], "i8")
        part = node("Slice", [logits, *where, axis], f"logits{k}")
        parts.append(node("ArgMax", [part], f"choice{k}", axis=1, keepdims=1))
        begin += size
    chosen = node("Concat", parts, "choices", axis=1)
    if isinstance(policy.action, Discrete):
        chosen = node("Squeeze", [chosen, constant("one", [1], "i8")], "choice")
    node("Add", [chosen, constant("start", policy.start, "i8")], "action")
    return ["N"] if isinstance(policy.action, Discrete) else ["N", len(heads)]


def check_graph(path: Path, policy: Policy, seen: NDArray[np.float64]) -> float:
    """Run a graph, and raise `WrongOutputs` if its outputs are not ours within `TOLERANCE`.

    It is compared on random observations, near the statistics, far from them and at zero; in
    batches and singly.

    Args:
        path: the ONNX file
        policy: what it must compute
        seen: [N, D] observations of the task to compare it on, too

    Returns:
        the largest difference from ours, relative as `TOLERANCE` says

    """
    try:
        import onnxruntime
    except ImportError:
        raise NoOnnx(MISSING) from None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    worst = 0.0
    for batch in [*_observations(policy, seen), seen[:1]]:
        if len(batch):
            theirs = dict(zip(names, session.run(None, {"observation": batch}), strict=True))
            worst = max(worst, _difference(policy, batch, theirs))
    if not worst <= TOLERANCE:
        raise WrongOutputs(
            f"the ONNX file's outputs differ from ours by {worst:.3g}, more than {TOLERANCE:g}: it "
            "was not kept; export with --no-onnx, and tell us the versions of onnx and onnxruntime"
        )
    return worst


def _observations(policy: Policy, seen: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    rng = stream(0, "onnx check")
    near = rng.standard_normal((2048, policy.observation_size))
    if policy.moments is not None:
        near = policy.moments.mean[0] + near * np.sqrt(policy.moments.variance[0])
    far = near * rng.choice([1e-3, 10.0, 1e3], size=(len(near), 1))
    return [near, far, np.zeros((1, policy.observation_size)), seen]


def _difference(policy: Policy, batch: NDArray[np.float64], theirs: dict[str, Any]) -> float:
    """How far their outputs lie from ours; another choice counts by how much less likely it is."""
    ours, action = policy.outputs(batch), policy.act(batch)
    raw = "mean" if policy.layout.gaussian else "logits"
    ours, wide = np.split(ours, [sum(policy.layout.heads)], axis=1)
    same = theirs["action"].shape == action.shape and theirs["action"].dtype == action.dtype
    if not same or theirs[raw].shape != ours.shape:
        return float("inf")
    scale = np.maximum(1, np.abs(policy.seen(batch)).max(axis=1, keepdims=True))
    pairs = [(ours, theirs[raw])]
    if policy.layout.gaussian:
        if policy.layout.state_std:
            pairs += [(np.log(deviation(wide)), theirs["log_std"])]
        else:
            pairs += [(policy.arrays["policy.log_std"], theirs["log_std"][None])]
        pairs += [(action, theirs["action"])]
    else:
        chosen, begin = (theirs["action"] - policy.start).reshape(len(batch), -1), 0
        for k, size in enumerate(policy.layout.heads):
            part = ours[:, begin : begin + size]
            if chosen[:, k].min() < 0 or chosen[:, k].max() >= size:
                return float("inf")
            picked = np.take_along_axis(part, chosen[:, k : k + 1], axis=1)
            pairs += [(part.max(axis=1, keepdims=True), picked)]
            begin += size
    return max(_relative(a, b, scale) for a, b in pairs)


def _relative(ours: NDArray[Any], theirs: NDArray[Any], scale: NDArray[Any]) -> float:
    with np.errstate(all="ignore"):
        gap = np.abs(ours - theirs) / np.maximum(scale, np.abs(ours))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))
