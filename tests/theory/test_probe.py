import functools
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

asked = functools.cache(probe)
"""Each loss is asked once, and several tests look at the answer."""

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
    (losses_torch.gspo, "clip", {"eps": 0.2}, "per-sequence mean"),
    (losses_torch.narrow_gspo, "clip", {"low": 3e-4, "high": 4e-4}, "per-sequence mean"),
    (losses_torch.grpo, "clip + reference-kl", {"eps": 0.2, "b": 0.04}, "per-sequence mean"),
    (losses_torch.grpo_reference_last, "clip + reference-kl", {"eps": 0.2, "b": 0.04},
     "per-sequence mean"),
    (losses_torch.bfloat16_ppo, "clip", {"eps": 0.2}, "mean"),
    (losses_torch.bfloat16_ratio, "clip", {"eps": 0.25}, "mean"),
    (losses_torch.bfloat16_metrics, "clip", {"eps": 0.2}, "mean"),
    (losses_jax.purejaxrl_ppo, "clip", {"eps": 0.2}, "mean"),
    (losses_jax.clip_higher, "clip-higher", {"low": 0.2, "high": 0.28}, "masked token mean"),
    (losses_jax.indexed, "is", {}, "masked token mean"),
    (losses_jax.dual_clip, "dual-clip", {"eps": 0.2, "cap": 3.0}, "sum"),
    (losses_jax.rlax_clipped, "clip", {"eps": 0.15}, "per-sample"),
    (losses_jax.cispo, "cispo", {"cap": 5.0, "floor": 0.0}, "per-sequence mean"),
    (losses_jax.spo, "spo", {"eps": 0.2}, "mean"),
    (losses_jax.sapo, "sapo", {"tau_positive": 1.2, "tau_negative": 2.0}, "mean"),
    (losses_jax.ppo_with_k3, "clip + kl-k3", {"eps": 0.2, "b": 0.1}, "mean"),
    (losses_jax.bfloat16_ppo, "clip", {"eps": 0.2}, "mean"),
    (losses_jax.grpo, "clip + reference-kl", {"eps": 0.2, "b": 0.04}, "masked token mean"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "name", "parameters", "reduction"), HEALTHY,
    ids=[f"{loss.__module__}.{loss.__name__}" for loss, *_ in HEALTHY],
)  # fmt: skip
def test_a_loss_is_identified_from_its_gradients(loss, name, parameters, reduction):
    found = asked(loss)
    assert found.match.exact
    assert (found.match.name, found.reduction) == (name, reduction)
    assert found.match.parameters == pytest.approx(parameters, abs=5e-4)
    assert found.framework == ("torch" if "torch" in loss.__module__ else "jax")
    assert found.ok


@pytest.mark.parametrize("loss", [losses_torch.cleanrl_ppo, losses_jax.purejaxrl_ppo])
def test_a_healthy_clip_has_no_findings(loss):
    assert asked(loss).findings == []


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
    (losses_torch.regularised, {"penalty-sign"}, "A - 0.01"),
    (losses_torch.k3_rewarded, {"penalty-sign"}, "exactly clip(eps=0.2) + kl-k3(b=0.04)"),
    (losses_torch.k1_rewarded, {"penalty-sign"}, "kl-k1 with the coefficient -0.04"),
    (losses_torch.k3_rewarded_alone, {"penalty-sign"}, "kl-k3 with the coefficient -0.1"),
    (losses_torch.distance_rewarded, {"zero-advantage"}, "a penalty with the wrong sign"),
    (losses_torch.reference_rewarded, {"penalty-sign"}, "away from the reference"),
    (losses_torch.clip_times_ratio, {"squared-ratio"}, "divided by w it is exactly clip(eps=0.2)"),
    (losses_torch.clip_times_live_ratio, {"anchor", "squared-ratio"}, "goes like w^2"),
    (losses_torch.mean_probability_ratio, {"batch-dependent"}, "the ratio of mean probabilities"),
    (losses_torch.mean_probability_of_batch, {"batch-dependent"}, "ratio of mean probabilities"),
    (losses_torch.mean_ratio, {"batch-dependent"}, "the mean of w"),
    (losses_torch.float16_ppo, {"not-finite"}, "early in float16"),
    (losses_torch.detached_ratio, {"no-gradient"}, "detaching"),
    (losses_torch.doubled, {"anchor"}, "divided by 2 it is exactly clip(eps=0.2)"),
    (losses_torch.mask_ignored, {"masked-gradient", "reduction"}, "masked positions"),
    (losses_torch.positive_only, {"anchor", "pass-killed"}, "neither A"),
    (losses_torch.almost_nothing, {"no-gradient"}, "zero everywhere"),
    (losses_jax.sign_flipped, {"anchor"}, "minus sign"),
    (losses_jax.k3_rewarded, {"penalty-sign"}, "exactly clip(eps=0.2) + kl-k3(b=0.1)"),
    (losses_jax.mean_probability_of_batch, {"batch-dependent"}, "ratio of mean probabilities"),
    (losses_jax.normalised_inside, {"batch-dependent"}, "normalising advantages"),
    (losses_jax.detached_ratio, {"no-gradient"}, "stop_gradient"),
]


@pytest.mark.parametrize(
    ("loss", "expected", "words"), BROKEN, ids=[f"{f.__module__}.{f.__name__}" for f, *_ in BROKEN]
)
def test_a_broken_loss_is_named(loss, expected, words):
    found = asked(loss)
    assert codes(found) == expected
    assert not found.ok
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
    assert str(asked(loss).match) == "clip(eps=0.2)"


def test_a_mean_of_advantages_is_not_taken_for_their_normalisation():
    """One token at a time GMPO clips the log-ratio; in rows of mean 0 it would be nothing."""
    found = asked(losses_torch.gmpo)
    assert (found.match.name, found.reduction) == ("clip", "per-sequence mean")
    edges = {"low": 1 - np.exp(-0.4), "high": np.exp(0.4) - 1}
    assert found.match.parameters == pytest.approx(edges, abs=1e-5)


@pytest.mark.parametrize(
    ("loss", "code"),
    [
        (losses_torch.strict_clip, "pass-killed"),
        (losses_torch.verl_dual_clip, "pass-killed"),
        (losses_torch.ppo_with_k3, "zero-advantage"),
        (losses_torch.gspo, "batch-dependent"),
        (losses_torch.gmpo, "batch-dependent"),
        (losses_torch.narrow_gspo, "batch-dependent"),
    ],
)
def test_what_a_published_shape_does_is_by_design(loss, code):
    (finding,) = asked(loss).findings
    assert (finding.code, finding.by_design) == (code, True)
    assert "is defined" in finding.message


def test_the_region_without_gradient_is_told():
    (finding,) = asked(losses_torch.verl_dual_clip).findings
    assert "w > 3 with A < 0" in finding.message


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        (losses_torch.cleanrl_ppo, "is clip(eps=0.2)"),
        (losses_torch.k3_rewarded,
         "is clip(eps=0.2) minus kl-k3(b=0.04), a penalty with the wrong sign"),
        (losses_torch.reference_rewarded,
         "is clip(eps=0.2) minus reference-kl(b=0.04, estimator=k3), "
         "a penalty with the wrong sign"),
        (losses_torch.clip_times_ratio, "is clip(eps=0.2) times w"),
        (losses_torch.doubled, "is clip(eps=0.2) times 2"),
        (losses_torch.narrow_gspo, "is clip(low=0.0003, high=0.0004) at the level sequence-mean"),
        (losses_torch.gspo_with_k3,
         "is clip(low=0.0003, high=0.0004) + kl-k3(b=0.04) at the level sequence-mean"),
        (losses_torch.mean_probability_ratio,
         "is none of the catalogue: samples share the ratio of mean probabilities; the nearest for "
         "one alone is clip(eps=0.2)"),
        (losses_torch.bfloat16_ppo, "is clip(eps=0.2), as far as bfloat16 can tell"),
        (losses_torch.grpo, "is clip(eps=0.2) + reference-kl(b=0.04, estimator=k3)"),
        (losses_torch.detached_ratio, "has no gradient"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)  # fmt: skip
def test_the_headline_says_what_it_is(loss, verdict):
    found = asked(loss)
    assert found.headline == f"{loss.__name__} (torch, {found.reduction}) {verdict}"


def test_a_shape_that_holds_for_one_sample_alone_is_no_match():
    found = asked(losses_torch.mean_probability_ratio)
    assert (str(found.match), found.match.exact) == ("clip(eps=0.2)", False)


def test_caveats_say_how_it_was_asked_and_what_is_by_design():
    caveats = "; ".join(asked(losses_torch.narrow_gspo).caveats)
    assert "exp(mean log w), as in GSPO" in caveats
    assert "asked one token at a time" in caveats
    assert "and 5 more" in caveats
    (dual,) = asked(losses_torch.verl_dual_clip).caveats
    assert "that is how dual-clip is defined" in dual


def test_a_loss_in_half_precision_is_told():
    found = asked(losses_torch.bfloat16_ppo)
    assert any("it computes in bfloat16" in caveat for caveat in found.caveats)
    assert found.as_dict()["precision"] == "bfloat16"
    assert len(found.profile.jumps) == 2
    assert found.profile.anchor.outcome == "exact"
    assert asked(losses_torch.bfloat16_metrics).as_dict()["precision"] == "full"


def test_a_sequence_ratio_in_half_precision_is_recognised():
    found = probe(losses_torch.bfloat16_gspo)
    assert (str(found.match), found.sharing.name, found.ok) == (
        "clip(eps=0.2)", "sequence-mean", True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (losses_torch.with_setting, r"needs 'clip_eps', .* give it as a setting, clip_eps=VALUE"),
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
    return asked(losses_torch.cleanrl_ppo)


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
    assert report["headline"] == "cleanrl_ppo (torch, mean) is clip(eps=0.2)"
    assert (report["ok"], report["caveats"]) == (True, clip_probe.caveats)
    assert {"framework", "reduction", "match", "profile", "findings"} <= report.keys()
    assert json.dumps(asked(losses_torch.detached_ratio).match.name)


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


def test_a_file_imports_its_neighbours_as_a_script_does(tmp_path, monkeypatch):
    """Early and late; and of two files each imports its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder, eps in (("one", 0.1), ("two", 0.3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "my_settings.py").write_text(f"eps = {eps}\n")
        (tmp_path / folder / "my_clip.py").write_text(
            "def clip(w, eps):\n    return w.clamp(1 - eps, 1 + eps)\n"
        )
        (tmp_path / folder / "mine.py").write_text(
            "import torch\nfrom my_settings import eps\n\n\n"
            "def loss(new, old, a):\n    from my_clip import clip\n"
            "    w = torch.exp(new - old)\n"
            "    return -torch.min(w * a, clip(w, eps) * a).mean()\n"
        )
    first = sys.path[0]
    for folder, shape in (("one", "clip(eps=0.1)"), ("two", "clip(eps=0.3)")):
        assert str(probe(load_loss(f"{tmp_path}/{folder}/mine.py:loss")).match) == shape
    assert sys.path[0] == first


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
