"""A shape among SkyRL's losses: against its own, where it is installed."""

import importlib
import importlib.util
import pickle
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from klip.adapters.skyrl import policy_loss, register
from klip.errors import KlipError
from tests.tokens.batches import draw

CORRECTION = {
    "tis_ratio_type": None, "token_tis_ratio_clip_high": 1.1, "sequence_tis_ratio_clip_high": 1.2,
    "sequence_mask_metric": None, "geo_mask_high": 1.05, "geo_mask_low": 0.95,
    "product_mask_high": 1.5, "product_mask_low": 0.6, "outlier_token_is_threshold_low": None,
    "outlier_token_is_threshold_high": None, "token_mask_is_threshold_low": None,
    "token_mask_is_threshold_high": None,
}  # fmt: skip
CORRECTIONS = [
    {},
    {"tis_ratio_type": "token"},
    {"tis_ratio_type": "sequence", "sequence_mask_metric": "geometric"},
    {"token_mask_is_threshold_low": 0.9, "token_mask_is_threshold_high": 1.1},
]


def settings(kind, correction=(), **own):
    usual = {"eps_clip_low": 0.2, "eps_clip_high": 0.2, "clip_ratio_c": 1.3}
    return SimpleNamespace(
        policy_loss_type=kind,
        off_policy_correction=SimpleNamespace(**CORRECTION | dict(correction)),
        sapo=SimpleNamespace(tau_pos=1.0, tau_neg=1.05),
        loss_reduction="sequence_mean",
        **usual | own,
    )


@pytest.fixture
def library(monkeypatch):
    """SkyRL's module of losses, without the packages around it, which need GPUs or Python 3.12."""
    found = importlib.util.find_spec("skyrl")
    if found is None:
        pytest.skip("SkyRL is not installed")
    root = Path(found.submodule_search_locations[0])
    for name in ("backends", "backends.skyrl_train", "backends.skyrl_train.utils", "train.config"):
        package = ModuleType(f"skyrl.{name}")
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        package.AlgorithmConfig = object
        monkeypatch.setitem(sys.modules, f"skyrl.{name}", package)
    return importlib.import_module("skyrl.backends.skyrl_train.utils.ppo_utils")


def arguments(seed):
    batch = draw(seed, rows=6, length=9, reach=0.25, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    old = batch["old_log_prob"]
    batch["mask"][-1, :2] = True
    return {
        "log_probs": batch["log_prob"],
        "old_log_probs": old,
        "advantages": batch["advantages"] / 37,  # with the weight of a reduction in them
        "loss_mask": batch["mask"].float(),
        "rollout_logprobs": old + 0.05 * torch.randn(old.shape, generator=generator),
    }


@pytest.mark.parametrize(("kind", "shape", "level"), [
    ("regular", "clip(eps=0.2)", "token"),
    ("dual_clip", "dual-clip(eps=0.2, cap=1.3)", "token"),
    ("gspo", "clip(eps=0.2)", "sequence-mean"),
    ("sapo", "sapo(tau_positive=1, tau_negative=1.05)", "token"),
])  # fmt: skip
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_it_is_skyrls_own_loss(library, kind, shape, level, correction):
    """Values and gradients to 1e-6; of the clip also the share that is clipped."""
    theirs, ours = library.PolicyLossRegistry.get(kind), policy_loss(shape, level=level)
    for seed in range(3):
        given = arguments(seed)
        config = settings(kind, correction)
        (left, one), (right, two) = (loss(**given, config=config) for loss in (theirs, ours))
        torch.testing.assert_close(right, left, rtol=1e-6, atol=1e-7)
        slopes = [torch.autograd.grad(x, given["log_probs"])[0] for x in (left, right)]
        torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-7)
        if kind == "regular":
            assert one.keys() <= two.keys()
            assert two["clip_ratio"] == pytest.approx(one["clip_ratio"], abs=1e-6)
            assert 0.05 < two["clip_ratio"] < 0.5


def test_it_can_be_registered(library):
    try:
        register("sapo", name="klip-sapo")
        assert library.PolicyLossRegistry.get("klip-sapo")(
            **arguments(0), config=settings("klip-sapo")
        )[0].isfinite()
    finally:
        library.PolicyLossRegistry.unregister("klip-sapo")


def test_it_travels_to_other_processes():
    loss = policy_loss("clip", gates=["cppo"])
    assert pickle.loads(pickle.dumps(loss)) == loss


@pytest.mark.parametrize("shape", ["kl-k3(b=0.1)", "clip + kl-k3(b=0.1)", "dpo-drift"])
def test_what_a_folded_weight_would_scale_wrongly_is_refused(shape):
    with pytest.raises(KlipError, match=r"not proportional to the advantage.*homogeneous"):
        policy_loss(shape)


def test_other_settings_are_refused():
    given = arguments(0)
    with pytest.raises(KlipError, match=r"eps_clip_high=0.28 .*clip\(low=..., high=...\)"):
        policy_loss("clip")(**given, config=settings("klip", eps_clip_high=0.28))
    trust = policy_loss("is", gates=["sequence-trust"])
    with pytest.raises(KlipError, match=r"sequence-trust needs .* rollout_logprobs"):
        trust(**given | {"rollout_logprobs": None}, config=settings("klip"))
    twice = settings("klip", {"tis_ratio_type": "token"})
    with pytest.raises(KlipError, match=r"truncate.* and .*tis_ratio_type=token .* set it to null"):
        policy_loss("clip", gates=["truncate(cap=2)"])(**given, config=twice)
    with pytest.raises(KlipError, match=r"age .* does not reach the loss in SkyRL"):
        policy_loss("age-conditioned")
