import json
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import Clip, Shape, catalogue, numbers, with_numbers
from klip.theory.probe import load_loss, probe
from tests.theory import losses_jax, losses_torch

HEALTHY = [
    (losses_torch.cleanrl_ppo, "clip", {"eps": 0.2}, "mean"),
    (losses_torch.sb3_ppo, "clip", {"eps": 0.3}, "sum"),
    (losses_torch.half_precision_ppo, "clip", {"eps": 0.2}, "mean"),
    (losses_torch.verl_clip_higher, "clip-higher", {"low": 0.2, "high": 0.28}, "masked token mean"),
    (losses_torch.verl_dual_clip, "dual-clip", {"eps": 0.2, "cap": 3.0}, "per-sequence mean"),
    (losses_torch.trl_cispo, "cispo", {"cap": 5.0, "floor": 0.0}, "per-sequence mean"),
    (losses_torch.spo, "spo", {"eps": 0.25}, "per-sample"),
    (losses_torch.sapo, "sapo", {"tau_positive": 1.0, "tau_negative": 1.05}, "masked token mean"),
    (losses_torch.ppo_with_k3, "clip + kl-k3", {"eps": 0.2, "b": 0.04}, "mean"),
    (losses_torch.penalised_k3, "kl-k3", {"b": 0.5}, "sum"),
    (losses_torch.dppo_tv, "dppo-tv", {"delta": 0.15}, "mean"),
    (losses_jax.purejaxrl_ppo, "clip", {"eps": 0.2}, "mean"),
    (losses_jax.clip_higher, "clip-higher", {"low": 0.2, "high": 0.28}, "masked token mean"),
    (losses_jax.indexed, "is", {}, "masked token mean"),
    (losses_jax.dual_clip, "dual-clip", {"eps": 0.2, "cap": 3.0}, "sum"),
    (losses_jax.rlax_clipped, "clip", {"eps": 0.15}, "per-sample"),
    (losses_jax.cispo, "cispo", {"cap": 5.0, "floor": 0.0}, "per-sequence mean"),
    (losses_jax.spo, "spo", {"eps": 0.2}, "mean"),
    (losses_jax.sapo, "sapo", {"tau_positive": 1.2, "tau_negative": 2.0}, "mean"),
    (losses_jax.ppo_with_k3, "clip + kl-k3", {"eps": 0.2, "b": 0.1}, "mean"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "name", "parameters", "reduction"), HEALTHY,
    ids=[f"{loss.__module__}.{loss.__name__}" for loss, *_ in HEALTHY],
)  # fmt: skip
def test_a_loss_is_identified_from_its_gradients(loss, name, parameters, reduction):
    found = probe(loss)
    assert found.match.exact
    assert (found.match.name, found.reduction) == (name, reduction)
    assert found.match.parameters == pytest.approx(parameters, abs=5e-4)
    assert found.framework == ("torch" if "torch" in loss.__module__ else "jax")
    assert all(finding.by_design for finding in found.findings)


@pytest.mark.parametrize("loss", [losses_torch.cleanrl_ppo, losses_jax.purejaxrl_ppo])
def test_a_healthy_clip_has_no_findings(loss):
    assert probe(loss).findings == []


def codes(found):
    return {finding.code for finding in found.findings}


BROKEN = [
    (losses_torch.sign_flipped, {"anchor"}, "exactly clip(eps=0.2)"),
    (losses_torch.ratio_inverted, {"anchor"}, "the other way round it is exactly clip(eps=0.2)"),
    (losses_torch.max_for_min, {"pass-killed"}, "max where min is meant"),
    (losses_torch.normalised_inside, {"batch-dependent"}, "normalising advantages"),
    (losses_torch.normalised_in_groups, {"batch-dependent"}, "normalising advantages"),
    (losses_torch.divided_twice, {"reduction"}, "1/N^2"),
    (losses_torch.padding_counted, {"reduction"}, "padded length"),
    (losses_torch.overflows_unselected, {"not-finite"}, "exp overflowing"),
    (losses_torch.regularised, {"anchor", "zero-advantage"}, "A - 0.01"),
    (losses_torch.detached_ratio, {"no-gradient"}, "detaching"),
    (losses_torch.doubled, {"anchor"}, "divided by 2 it is exactly clip(eps=0.2)"),
    (losses_torch.mask_ignored, {"masked-gradient", "reduction"}, "masked positions"),
    (losses_torch.positive_only, {"anchor", "pass-killed"}, "neither A"),
    (losses_torch.almost_nothing, {"no-gradient"}, "zero everywhere"),
    (losses_torch.gspo, {"batch-dependent"}, "sequence-level ratio"),
    (losses_torch.gmpo, {"batch-dependent"}, "sequence-level ratio"),
    (losses_jax.sign_flipped, {"anchor"}, "minus sign"),
    (losses_jax.normalised_inside, {"batch-dependent"}, "normalising advantages"),
    (losses_jax.detached_ratio, {"no-gradient"}, "stop_gradient"),
]


@pytest.mark.parametrize(
    ("loss", "expected", "words"), BROKEN, ids=[f"{f.__module__}.{f.__name__}" for f, *_ in BROKEN]
)
def test_a_broken_loss_is_named(loss, expected, words):
    found = probe(loss)
    assert codes(found) == expected
    assert not any(finding.by_design for finding in found.findings)
    assert words in " ".join(finding.message for finding in found.findings)


@pytest.mark.parametrize(
    "loss",
    [
        losses_torch.normalised_inside,
        losses_torch.normalised_in_groups,
        losses_torch.divided_twice,
        losses_torch.gspo,
        losses_torch.padding_counted,
        losses_torch.sign_flipped,
        losses_torch.ratio_inverted,
        losses_torch.doubled,
    ],
)
def test_a_mistake_does_not_hide_the_shape(loss):
    assert str(probe(loss).match) == "clip(eps=0.2)"


def test_a_mean_of_advantages_is_not_taken_for_their_normalisation():
    """One token at a time GMPO clips the log-ratio; in rows of mean 0 it would be nothing."""
    found = probe(losses_torch.gmpo)
    assert (found.match.name, found.reduction) == ("clip", "per-sequence mean")
    edges = {"low": 1 - np.exp(-0.4), "high": np.exp(0.4) - 1}
    assert found.match.parameters == pytest.approx(edges, abs=1e-5)


@pytest.mark.parametrize(
    ("loss", "code"),
    [
        (losses_torch.strict_clip, "pass-killed"),
        (losses_torch.verl_dual_clip, "pass-killed"),
        (losses_torch.ppo_with_k3, "zero-advantage"),
    ],
)
def test_what_a_published_shape_does_is_by_design(loss, code):
    (finding,) = probe(loss).findings
    assert (finding.code, finding.by_design) == (code, True)
    assert "is defined" in finding.message


def test_the_region_without_gradient_is_told():
    (finding,) = probe(losses_torch.verl_dual_clip).findings
    assert "w > 3 with A < 0" in finding.message


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (losses_torch.without_grad, "does not require grad"),
        (losses_torch.returns_nothing, "returns None"),
        (losses_torch.returns_float, "returns float"),
        (losses_torch.random, "different gradients for the same inputs"),
        (losses_torch.raises, r"every layout .*ValueError: logits must be \[B, T, V\]"),
        (losses_jax.counts, "values of type int"),
        (0.2, "not callable"),
    ],
)
def test_what_cannot_be_probed_is_told_in_one_line(loss, words):
    with pytest.raises(KlipError, match=words) as error:
        probe(loss)
    assert "\n" not in str(error.value)


def test_an_unknown_framework_is_refused():
    with pytest.raises(KlipError, match="torch, jax or auto"):
        probe(losses_torch.cleanrl_ppo, framework="mxnet")


def test_a_loss_of_plain_operators_works_in_either_framework():
    for framework in ("torch", "jax"):
        found = probe(losses_jax.without_framework, framework=framework)
        assert (found.framework, found.match.name) == (framework, "reinforce")


def test_torch_is_not_needed(monkeypatch):
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "torch" else object()
    )
    assert probe(lambda new, old, a: -((new - old) * a).sum()).framework == "jax"
    with pytest.raises(KlipError, match="torch is not installed"):
        probe(losses_torch.cleanrl_ppo, framework="torch")


@pytest.fixture(scope="module")
def clip_probe():
    return probe(losses_torch.cleanrl_ppo)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (40_000,), (0,)])
def test_the_pull_takes_arrays_of_any_shape(clip_probe, shape):
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=shape), rng.normal(size=shape)
    m = clip_probe.pull(x, a)
    assert m.shape == shape
    np.testing.assert_allclose(m, Clip().multiplier(x, a), atol=1e-12)


def test_points_are_lines_of_the_pull(clip_probe):
    w, m = clip_probe.points()[-0.5]
    np.testing.assert_allclose(m, np.where(w < 0.8, 0.0, -0.5 * w))


def test_the_report_is_strict_json(clip_probe):
    report = json.loads(json.dumps(clip_probe.as_dict(), allow_nan=False))
    assert report["match"]["shape"] == "clip"
    assert report["match"]["parameters"] == {"eps": 0.2}
    assert set(report) == {"framework", "reduction", "match", "profile", "findings"}
    assert json.dumps(probe(losses_torch.detached_ratio).match.name)


def test_losses_load_from_files_and_modules(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def policy_loss(new, old, a):\n    return -(new * a).mean()\n\nN = 3\n")
    assert load_loss(f"{path}:policy_loss").__name__ == "policy_loss"
    assert load_loss("klip.theory.probe:probe") is sys.modules["klip.theory.probe"].probe
    with pytest.raises(KlipError, match="did you mean policy_loss"):
        load_loss(f"{path}:polcy_loss")
    with pytest.raises(KlipError, match="not callable but a int"):
        load_loss(f"{path}:N")
    with pytest.raises(KlipError, match=r"file.py:function"):
        load_loss("mine")


def test_the_example_runs():
    found = probe(load_loss("examples/my_loss.py:ppo_loss"))
    assert (str(found.match), found.findings) == ("clip(eps=0.2)", [])


SHAPES = [cls() for cls in catalogue().values() if not cls().needs]


def loss_of(shape: Shape):
    """Any shape as a loss: its multiplier, detached, times the log-probability."""
    import torch

    def loss(new: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
        m = shape.multiplier((new - old).detach(), advantages)
        return -(m.detach() * new).mean()

    return loss


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.sampled_from(SHAPES), st.floats(0.8, 1.25))
def test_any_shape_is_recovered(shape, factor):
    changed = with_numbers(shape, {k: v * factor for k, v in numbers(shape).items()})
    found = probe(loss_of(changed), framework="torch")
    x, a = np.meshgrid(np.linspace(-3, 3, 50), [-1.5, -0.2, 0.0, 0.7])
    want = np.broadcast_to(changed.multiplier(x, a), x.shape)
    np.testing.assert_allclose(found.pull(x, a), want, rtol=1e-6, atol=1e-6)
    assert found.match.exact
    fitted = np.broadcast_to(found.match.shape.multiplier(x, a), x.shape)
    np.testing.assert_allclose(fitted, want, rtol=1e-5, atol=1e-5)
