"""A shape in OpenRLHF's loss: against its own PolicyLoss, or a stand-in where it is missing."""

import importlib
import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from klip.adapters.openrlhf import ShapePolicyLoss, shaped
from klip.errors import KlipError
from tests.tokens.batches import draw

CLIPS = [
    ({}, "clip(eps=0.2)"),
    ({"clip_eps_low": 0.1, "clip_eps_high": 0.3}, "clip(low=0.1, high=0.3)"),
    ({"dual_clip": 1.3}, "dual-clip(eps=0.2, cap=1.3)"),
]
REDUCTIONS = [
    ({}, {}),
    ({}, {"dp_size": 2, "batch_num_tokens": 50.0}),
    ({"token_level_loss": False}, {}),
    ({"token_level_loss": False}, {"dp_size": 2, "global_batch_size": 8.0}),
]
CORRECTIONS = [
    {},
    {"is_correction_level": "token", "is_correction_threshold": [0.8, 1.2]},
    {"is_correction_level": "token", "is_correction_mode": "clip",
     "is_correction_threshold": [0.9, 1.1]},
    {"is_correction_level": "seq", "is_correction_threshold": [0.9, 1.1]},
    {"is_correction_level": "seq", "is_correction_gating": "binary_kl",
     "is_correction_threshold": [0.0, 0.003]},
]  # fmt: skip


class StandIn(nn.Module):
    """The contract of OpenRLHF's PolicyLoss in few words: means over tokens, ratios clamped."""

    def __init__(self, clip_eps_low=0.2, clip_eps_high=0.2, dual_clip=None, policy_loss_type="ppo",
                 is_correction_level="off"):  # fmt: skip
        super().__init__()
        self.clip_eps_low, self.clip_eps_high, self.dual_clip = (
            clip_eps_low, clip_eps_high, dual_clip)  # fmt: skip
        self.policy_loss_type, self.is_correction_level = policy_loss_type, is_correction_level

    def forward(self, log_probs, old_log_probs, advantages, action_mask, rollout_log_probs=None):
        w = (log_probs - old_log_probs).exp()
        held = w.clamp(1 - self.clip_eps_low, 1 + self.clip_eps_high)
        loss, vllm_kl = -torch.min(w * advantages, held * advantages), None
        if self.is_correction_level == "token":
            loss = loss * (old_log_probs - rollout_log_probs).exp().clamp(max=1.1)
            vllm_kl = (rollout_log_probs - old_log_probs).mean()
        clipped = (held * advantages < w * advantages) * action_mask
        total = action_mask.sum()
        kl = (-(log_probs - old_log_probs) * action_mask).sum() / total
        mean = (loss * action_mask).sum() / total
        return mean, clipped.sum() / total, kl, vllm_kl, vllm_kl


@pytest.fixture
def library(monkeypatch):
    """OpenRLHF's own PolicyLoss, without what its package imports beside it."""
    found = importlib.util.find_spec("openrlhf")
    if found is None:
        pytest.skip("OpenRLHF is not installed")
    models = ModuleType("openrlhf.models")
    models.__path__ = [str(Path(found.submodule_search_locations[0]) / "models")]
    monkeypatch.setitem(sys.modules, "openrlhf.models", models)
    if importlib.util.find_spec("deepspeed") is None:
        monkeypatch.setitem(sys.modules, "deepspeed", ModuleType("deepspeed"))
    with warnings.catch_warnings(action="ignore"):  # of torch.compile, which it decorates with
        return importlib.import_module("openrlhf.models.loss").PolicyLoss


def arguments(seed=0, reach=0.25):
    batch = draw(seed, rows=6, length=9, reach=reach, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    old = batch["old_log_prob"]
    rollout = old + 0.1 * torch.randn(old.shape, generator=generator)
    batch["mask"][-1, :2] = True  # OpenRLHF's own numbers have no empty sequence
    return {
        "log_probs": batch["log_prob"],
        "old_log_probs": old,
        "advantages": batch["advantages"],
        "action_mask": batch["mask"].float(),
        "rollout_log_probs": rollout.clamp(max=-1e-3),
    }


def agree(theirs, ours, given, batch):
    """Value, gradient and logged numbers to 1e-6; returns the share that was clipped."""
    results = []
    for loss in (theirs, ours):
        value, *rest = loss(**given, **batch)
        (slope,) = torch.autograd.grad(value, given["log_probs"])
        results.append((value.detach(), slope, *(x for x in rest if x is not None)))
    assert len(results[0]) == len(results[1])
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(right.float(), left.detach().float(), rtol=1e-6, atol=1e-7)
    return float(results[0][2])


@pytest.mark.parametrize(("settings", "shape"), CLIPS, ids=[shape for _, shape in CLIPS])
@pytest.mark.parametrize(("how", "batch"), REDUCTIONS)
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_it_is_openrlhfs_own_loss(library, settings, shape, how, batch, correction):
    theirs = library(**settings, **how, **correction)
    ours = shaped(library, shape)(**how, **correction)
    for seed in range(3):
        assert 0.05 < agree(theirs, ours, arguments(seed), batch) < 0.5


@pytest.mark.parametrize(("gating", "gate"), [
    ("binary_kl", "sequence-trust(delta=0.003)"),
    ("tv", "sequence-trust(delta=0.03, divergence=binary-tv)"),
])  # fmt: skip
def test_a_gate_of_ours_for_its_own_mask(library, gating, gate):
    """FlashREINFORCE's mask as OpenRLHF has it, with its own correction made neutral."""
    mask = {"is_correction_level": "seq", "is_correction_gating": gating}
    high = 0.003 if gating == "binary_kl" else 0.03
    theirs = library(**mask, is_correction_threshold=[0.0, high])
    neutral = {"is_correction_level": "token", "is_correction_mode": "clip"}
    ours = shaped(library, "clip", gates=[gate])(**neutral, is_correction_threshold=[1.0, 1.0])
    for seed in range(5):
        given = arguments(seed)
        losses = [loss(**given)[0] for loss in (theirs, ours)]
        slopes = [torch.autograd.grad(x, given["log_probs"])[0] for x in losses]
        torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-7)
        assert slopes[0].any()


@pytest.mark.parametrize("level", ["off", "token"])
def test_it_is_the_stand_ins_loss(level):
    theirs = StandIn(is_correction_level=level)
    assert 0.05 < agree(theirs, ShapePolicyLoss(theirs), arguments(), {}) < 0.5


def test_gates_and_levels_reach_it():
    """With sequence-mean and opsm, as token_loss would have it; and what happened is kept."""
    loss = shaped(StandIn, "clip", level="sequence-mean", gates=["opsm(delta=0.01)"])()
    value, clip_ratio, *_ = loss(**arguments())
    assert torch.isfinite(value)
    assert loss.diagnostics.metrics()["zeroed"] >= float(clip_ratio)


@pytest.mark.parametrize(("settings", "shape", "message"), [
    ({"policy_loss_type": "gspo"}, "clip", "policy_loss_type='gspo' .*sequence-mean"),
    ({"clip_eps_high": 0.28}, "clip", r"clip_eps_high=0.28 .* clip\(high=...\)"),
    ({"dual_clip": 3.0}, "clip", r"dual_clip=3.0 .* dual-clip\(cap=...\)"),
    ({}, "age-conditioned", "age .* does not reach the loss in OpenRLHF"),
])  # fmt: skip
def test_what_would_be_wrong_in_silence_is_refused(settings, shape, message):
    with pytest.raises(KlipError, match=message):
        shaped(StandIn, shape)(**settings)


def test_a_second_correction_for_the_sampler_is_refused():
    twice = ShapePolicyLoss(StandIn(is_correction_level="token"), gates=["truncate(cap=1.1)"])
    with pytest.raises(KlipError, match=r"truncate.* and is_correction_level=token .*=1 1"):
        twice(**arguments())
    given = arguments()
    neutral = given | {"rollout_log_probs": given["old_log_probs"]}  # where theirs is 1
    assert torch.isfinite(twice(**neutral).loss)


def test_a_gate_of_the_sampler_says_how_to_have_it():
    loss = shaped(StandIn, "is", gates=["sequence-trust(delta=0.01)"])()
    with pytest.raises(KlipError, match=r"sequence-trust needs the sampler.*is_correction_level"):
        loss(**(arguments() | {"rollout_log_probs": None}))
    assert torch.isfinite(loss(**arguments()).loss)
