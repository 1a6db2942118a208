"""A shape in AReaL's actor: against the formulas of its loss, with a stand-in for its tracker."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from klip.adapters.areal import actor_loss
from klip.adapters.common import AGE_LABELS
from klip.errors import KlipError
from klip.theory.diagnostics import FATES
from tests.tokens.batches import draw

SETTINGS = {
    "eps_clip": 0.2, "eps_clip_higher": None, "c_clip": None, "rejection_sampling": None,
    "m2_threshold": None, "importance_sampling_level": "token", "current_version": 9,
    "prox_logp_method": "recompute", "use_sapo_loss": False, "sapo_tau_pos": 1.0,
    "sapo_tau_neg": 1.05, "use_decoupled_loss": True, "vocab_min_logits": None,
    "vocab_max_logits": None,
}  # fmt: skip
"""What AReaL's actor and engine pass beside log-probs, entropies and data."""


class Tracker(ModuleType):
    """What AReaL documents of its tracker: masks by name, and tensors that are divided by one."""

    ReduceType = SimpleNamespace(AVG="avg")

    def __init__(self):
        super().__init__("areal.utils.stats_tracker")
        self.masks, self.found = {}, {}

    def denominator(self, **masks):
        assert all(mask.dtype == torch.bool for mask in masks.values())
        self.masks |= masks

    def stat(self, denominator, reduce_type=None, **values):
        mask = self.masks[denominator]
        for name, x in values.items():
            assert x.dtype == torch.float32
            assert x.shape == mask.shape
            self.found[name] = float(x[mask].mean())


@pytest.fixture(autouse=True)
def tracker(monkeypatch):
    found = Tracker()
    for name in ("areal", "areal.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, found.__name__, found)
    return found


def pack(seed=0):
    """Six sequences of a prompt of two tokens and four to nine more, packed; N tokens in all.

    What belongs to a token stands in the place before it, but for the versions.
    """
    generator = torch.Generator().manual_seed(seed)
    batch = draw(seed, rows=6, length=11, reach=0.25, dtype=torch.float32)
    lengths = torch.tensor([11, 6, 7, 8, 9, 10])
    places = torch.arange(11)
    here = places < lengths[:, None]
    counts = (places >= 1) & (places < lengths[:, None] - 1)
    version = torch.where(places >= 2, torch.arange(4, 10)[:, None], -1)  # ages 5 to 0
    old = batch["old_log_prob"]
    near = old + 0.15 * torch.randn(old.shape, generator=generator)
    new = batch["log_prob"].detach()[here].requires_grad_(True)
    data = {
        "logprobs": near,
        "prox_logp": old,
        "advantages": batch["advantages"],
        "loss_mask": counts.float(),
        "versions": version,
    }
    data = {name: x[here] for name, x in data.items()}
    data["cu_seqlens"] = torch.cat([torch.zeros(1, dtype=torch.int32), lengths.cumsum(0).int()])
    entropy = torch.rand(len(new), generator=generator)
    return new, entropy, data


def theirs(new, data, low=0.2, high=0.2, cap=None, mask_above=None, hold_at=None):
    """AReaL's formula: max(-wA, -clip(w)A), perhaps at most c|A|, times pi_prox / pi_sampler."""
    w, advantage = (new - data["prox_logp"]).exp(), data["advantages"]
    loss = torch.max(-w * advantage, -w.clamp(1 - low, 1 + high) * advantage)
    if cap is not None:
        loss = torch.min(loss, cap * advantage.abs())
    c = (data["prox_logp"] - data["logprobs"]).exp()
    if mask_above is not None:
        loss = loss * torch.where(c > mask_above, 0.0, c)
    if hold_at is not None:
        loss = loss * c.clamp(max=hold_at)
    return (loss * data["loss_mask"]).sum() / data["loss_mask"].count_nonzero()


@pytest.mark.parametrize(("formula", "shape", "gates"), [
    ({}, "clip(eps=0.2)", []),
    ({"low": 0.1, "high": 0.3}, "clip(low=0.1, high=0.3)", []),
    ({"cap": 1.3}, "dual-clip(eps=0.2, cap=1.3)", []),
    ({"mask_above": 1.1}, "clip(eps=0.2)", ["icepop(floor=0, cap=1.1)"]),
    ({"hold_at": 1.1}, "clip(eps=0.2)", ["truncate(cap=1.1)"]),
])  # fmt: skip
def test_it_is_areals_formula(tracker, formula, shape, gates):
    for seed in range(3):
        new, entropy, data = pack(seed)
        left = theirs(new, data, **formula)
        right = actor_loss(shape, gates=gates)(new, entropy, data, **SETTINGS)
        torch.testing.assert_close(right, left, rtol=1e-6, atol=1e-7)
        slopes = [torch.autograd.grad(x, new)[0] for x in (left, right)]
        torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-7)
        assert 0.05 < tracker.found["klip/zeroed"] < 0.6


def test_by_hand(tracker):
    """A prompt of one token and two that were sampled, of ratios 1 and 1.5 and advantage 2."""
    new = torch.tensor([-1.0, -0.5, -9.0], requires_grad=True)
    data = {
        "prox_logp": new.detach() - torch.tensor([1.0, 1.5, 1.0]).log(),
        "logprobs": torch.zeros(3),
        "advantages": torch.full((3,), 2.0),
        "loss_mask": torch.tensor([1.0, 1.0, 0.0]),
        "versions": torch.tensor([-1, 9, 6]),
        "cu_seqlens": torch.tensor([0, 3]),
    }
    loss = actor_loss("clip(eps=0.2)")(new, torch.ones(3), data, **SETTINGS)
    loss.backward()
    assert loss.item() == pytest.approx(-(2 * 1 + 2 * 1.2) / 2)
    torch.testing.assert_close(new.grad, torch.tensor([-1.0, 0.0, 0.0]))
    found = tracker.found
    assert (found["klip/zeroed"], found["clip_ratio"], found["entropy"]) == (0.5, 0.5, 1.0)
    assert (found["klip/age=0/zeroed"], found["klip/age=2-3/zeroed"]) == (0.0, 1.0)  # ages 0 and 3


def test_ages_reach_shape_and_log(tracker):
    """A band that is closed for all but age 0 zeroes what pushes and is older, and nothing else."""
    new, entropy, data = pack()
    narrow = "clip(eps=by-age(fresh=9, half_life=0.01))"
    actor_loss(narrow)(new, entropy, data, **SETTINGS)
    assert sum(tracker.found[f"klip/{fate}"] for fate in FATES) == pytest.approx(1)
    assert tracker.found["klip/age=0/zeroed"] == 0 < tracker.found["klip/age=1/zeroed"]
    masks = [tracker.masks[f"klip/age={label}/tokens"] for label in AGE_LABELS]
    assert [int(mask.sum()) for mask in masks] == [8, 7, 6 + 5, 4 + 9, 0]
    assert torch.equal(sum(mask.int() for mask in masks), data["loss_mask"].int())


def test_a_level_sees_each_sequence_of_the_pack():
    new, entropy, data = pack()
    with torch.no_grad():  # the second sequence alone, tokens 11 to 17
        new[:11] = data["prox_logp"][:11] = 0
    loss = actor_loss("is", level="sequence-mean")(new, entropy, data, **SETTINGS)
    (slope,) = torch.autograd.grad(loss, new)
    inside = slice(12, 16)
    w = (new - data["prox_logp"])[inside].mean().exp()
    expected = -w * data["advantages"][inside] / data["loss_mask"].sum()
    torch.testing.assert_close(slope[inside], expected.detach())


@pytest.mark.parametrize(("setting", "value", "way_out"), [
    ("eps_clip", 0.3, r"leave it at 0.2, and give clip\(eps=...\)"),
    ("eps_clip_higher", 0.28, r"leave it at None, and give clip\(low=..., high=...\)"),
    ("c_clip", 3.0, r"dual-clip\(cap=...\)"),
    ("rejection_sampling", "mask", r"icepop\(floor=0, cap=...\)"),
    ("m2_threshold", 0.04, "m2po"),
    ("importance_sampling_level", "sequence", "level='sequence-mean'"),
    ("use_sapo_loss", True, r"sapo\(tau_positive"),
])  # fmt: skip
def test_settings_of_another_region_are_refused(setting, value, way_out):
    with pytest.raises(KlipError, match=f"actor.{setting}={value} is not used .*{way_out}"):
        actor_loss()(*pack(), **SETTINGS | {setting: value})


@pytest.mark.parametrize(("data", "settings", "how", "message"), [
    ({}, {"new_penalty": 1.0}, {}, r"AReaL passes new_penalty=1.0, .* use that version"),
    ({"prox_logp": None}, {}, {}, r"prox_logp_method=loglinear .* Set recompute"),
    ({"teacher_logp": 0.0}, {}, {}, r"teacher_logp.* leave the teacher out"),
    ({}, {"use_decoupled_loss": False}, {"gates": ["truncate"]}, r"truncate needs the sampler"),
    ({"versions": None}, {}, {"shape": "age-conditioned"}, r"this batch has no versions"),
    ({"cu_seqlens": None}, {}, {}, r"must be a pack \[N\]"),
    ({"cu_seqlens": torch.tensor([0, 5])}, {}, {}, r"of 5 tokens. Trees and context parallelism"),
    ({"versions": torch.full((51,), -1)}, {}, {}, r"after place 1 of the pack has version -1"),
])  # fmt: skip
def test_what_would_be_wrong_in_silence_is_refused(data, settings, how, message):
    new, entropy, batch = pack()
    with pytest.raises(KlipError, match=message):
        actor_loss(**how)(new, entropy, batch | data, **SETTINGS | settings)


def test_fields_that_areal_does_not_have_are_refused():
    with pytest.raises(KlipError, match=r"reward .* does not reach the loss in AReaL"):
        actor_loss("topr(sign='reward')")
