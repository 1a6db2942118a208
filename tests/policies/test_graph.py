"""The ONNX graph computes what the policy does, for every kind of action."""

import numpy as np
import onnxruntime
import pytest

from klip.policies.graph import TOLERANCE, WrongOutputs, check_graph, encode_graph
from tests.policies.test_policy import ACTIONS, every_network, made


@pytest.fixture(params=ACTIONS)
def kind(request):
    return request.param


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("normalised", [True, False])
def test_it_acts_as_the_policy(tmp_path, kind, normalised):
    policy = made(kind, hidden=(32, 16), normalise_observations=normalised)
    path = tmp_path / "policy.onnx"
    path.write_bytes(encode_graph(policy))
    rows = 2 * np.random.default_rng(0).standard_normal((500, 6))
    worst = check_graph(path, policy, rows)
    assert worst < TOLERANCE / 2
    run = session(path)
    (action,) = run.run(["action"], {"observation": rows})
    ours = policy.act(rows)
    assert action.dtype == ours.dtype
    assert action.shape == ours.shape
    assert np.allclose(action, ours, atol=1e-5)
    names = {output.name for output in run.get_outputs()}
    expected = {"mean", "log_std"} if policy.layout.gaussian else {"logits"}
    assert names == {"action", *expected}


@every_network
def test_every_kind_of_network_has_a_graph(tmp_path, networks):
    policy, path = made("box", **networks), tmp_path / "policy.onnx"
    path.write_bytes(encode_graph(policy))
    rows = 2 * np.random.default_rng(0).standard_normal((100, 6))
    assert check_graph(path, policy, rows) < TOLERANCE
    (log_std,) = session(path).run(["log_std"], {"observation": rows})
    assert log_std.shape == ((100, 2) if policy.layout.state_std else (2,))


def test_a_small_deviation_about_a_large_mean_keeps_its_digits(tmp_path):
    """Why the observation is float64: in float32 these differ by less than one step."""
    policy = made("box")
    object.__setattr__(policy.moments, "mean", np.full((1, 6), 1e6))
    object.__setattr__(policy.moments, "variance", np.full((1, 6), 1e-4))
    path = tmp_path / "policy.onnx"
    path.write_bytes(encode_graph(policy))
    rows = 1e6 + 1e-2 * np.random.default_rng(0).standard_normal((100, 6))
    assert check_graph(path, policy, rows) < TOLERANCE
    assert np.unique(policy.act(rows), axis=0).shape[0] > 50


def test_a_wrong_graph_is_noticed(tmp_path, kind):
    policy, path = made(kind), tmp_path / "policy.onnx"
    for name in ("policy.0.weight", "policy.2.bias"):
        other = made(kind)
        changed = {**other.arrays, name: other.arrays[name] + np.float32(1e-3)}
        object.__setattr__(other, "arrays", changed)
        path.write_bytes(encode_graph(other))
        with pytest.raises(WrongOutputs, match="it was not kept"):
            check_graph(path, policy, np.zeros((0, 6)))


def test_another_start_is_noticed(tmp_path):
    policy, other, path = made("from one"), made("from one"), tmp_path / "policy.onnx"
    object.__setattr__(other, "start", np.int64(0) * other.start)
    path.write_bytes(encode_graph(other))
    with pytest.raises(WrongOutputs, match="by"):
        check_graph(path, policy, np.zeros((0, 6)))
