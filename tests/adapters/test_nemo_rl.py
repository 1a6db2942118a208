"""A shape in NeMo-RL's loss: against a stand-in that keeps the contract which NeMo-RL documents."""

import copy
import math
import pickle

import pytest
import torch

from klip.adapters.nemo_rl import OF_CLIP, shaped
from klip.errors import KlipError
from tests.tokens.batches import draw

CORRECTIONS = [{}, {"cap": 1.1}, {"cap": 1.1, "floor": 0.9}]
"""no correction for the sampler; its ratio, truncated; its ratio within a band, 0 outside"""


class StandIn:
    """The contract in few words: sums that are divided by the tokens or sequences of all batches.

    min(wA, clip(w)A) times the correction, and a KL to the reference; data have a token of the
    prompt in front, whose place in a loss is that of the next token.
    """

    input_type = "logprob"
    disable_ppo_ratio = use_cispo = force_on_policy_ratio = False
    sequence_level_importance_ratios = False
    metric_normalizations = {"loss": "sequences", "probs_ratio": "tokens"}  # noqa: RUF012

    def __init__(self, low=0.2, high=0.2, c=None, by_token=True, kl=0.0, cap=None, floor=None):
        self.ratio_clip_min, self.ratio_clip_max, self.ratio_clip_c = low, high, c
        self.loss_type = "token" if by_token else "sequence"
        self.reference_policy_kl_penalty = kl
        self.use_importance_sampling_correction = cap is not None
        self.cap, self.floor = cap, floor

    def __call__(self, next_token_logprobs, data, global_valid_seqs, global_valid_toks):
        old, sampler, reference, advantage, mask = (data[name][:, 1:] for name in (
            "prev_logprobs", "generation_logprobs", "reference_policy_logprobs", "advantages",
            "token_mask"))  # fmt: skip
        w = (next_token_logprobs - old).exp()
        held = w.clamp(1 - self.ratio_clip_min, 1 + self.ratio_clip_max)
        loss = torch.max(-advantage * w, -advantage * held)
        if self.ratio_clip_c is not None:
            far = torch.min(loss, -advantage * self.ratio_clip_c)
            loss = torch.where(advantage < 0, far, loss)
        if self.use_importance_sampling_correction:
            c = (old - sampler).exp()
            kept = c.clamp(max=self.cap)
            if self.floor is not None:
                kept = torch.where((c < self.floor) | (c > self.cap), 0.0, c)
            loss = loss * kept
        apart = reference - next_token_logprobs
        loss = loss + self.reference_policy_kl_penalty * (apart.exp() - apart - 1)
        if self.loss_type == "token":
            counts = mask * data["sample_mask"][:, None]
            value = (loss * counts).sum() / global_valid_toks
        else:
            by_row = (loss * mask).sum(-1) / mask.sum(-1).clamp(min=1)
            value = (by_row * data["sample_mask"]).sum() / global_valid_seqs
        ratio = (w * mask * data["sample_mask"][:, None]).sum() / global_valid_toks
        row = {"loss": value.item(), "probs_ratio": ratio.item(), **dict.fromkeys(OF_CLIP, 0.0)}
        return value, row


def arguments(seed=0):
    """Of six sequences the last is masked as a sample, as NeMo-RL does with filtered ones."""
    batch = draw(seed, rows=6, length=9, reach=0.25, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    old = batch["old_log_prob"]
    batch["mask"][-1, :2] = True

    def with_prompt(x):
        return torch.cat([torch.zeros(len(x), 1), x], -1)

    def near(scale):
        return with_prompt(old + scale * torch.randn(old.shape, generator=generator))

    data = {
        "prev_logprobs": with_prompt(old),
        "generation_logprobs": near(0.1),
        "reference_policy_logprobs": near(0.3),
        "advantages": with_prompt(batch["advantages"]),
        "token_mask": with_prompt(batch["mask"].float()),
        "sample_mask": torch.tensor([1.0] * 5 + [0.0]),
    }
    return {
        "next_token_logprobs": batch["log_prob"],
        "data": data,
        "global_valid_seqs": torch.tensor(11.0),  # of all microbatches on all machines
        "global_valid_toks": torch.tensor(97.0),
    }


@pytest.mark.parametrize(("clip", "shape"), [
    ({}, "clip(eps=0.2)"),
    ({"low": 0.1, "high": 0.3}, "clip(low=0.1, high=0.3)"),
    ({"c": 1.3}, "dual-clip(eps=0.2, cap=1.3)"),
])  # fmt: skip
@pytest.mark.parametrize("by_token", [True, False])
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_it_is_the_stock_loss(clip, shape, by_token, correction):
    """Value, gradient and what is logged beside the clip, with a KL of the trainer's own."""
    common = {"by_token": by_token, "kl": 0.05, **correction}
    theirs, ours = StandIn(**clip, **common), shaped(StandIn(**common), shape)
    for seed in range(3):
        given = arguments(seed)
        (left, one), (right, two) = (loss(**given) for loss in (theirs, ours))
        torch.testing.assert_close(right, left, rtol=1e-6, atol=1e-7)
        slopes = [torch.autograd.grad(x, given["next_token_logprobs"])[0] for x in (left, right)]
        torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-7)
        assert two["loss"] == pytest.approx(one["loss"], abs=1e-6)
        assert two["probs_ratio"] == one["probs_ratio"]
        assert not set(OF_CLIP) & two.keys()
        counted = given["data"]["token_mask"][:-1].sum()
        assert 0.05 < two["klip/kill"] * 97 / counted < 0.5


def test_by_hand():
    """Two tokens of advantage 2 and ratios 1 and 1.5, one of them beyond the band, of 4 in all."""
    new = torch.tensor([[-1.0, 0.5]]).log_softmax(-1).requires_grad_(True)
    moved = torch.tensor([[0.0, 0.0, math.log(1.5)]])
    old = torch.cat([torch.zeros(1, 1), new.detach()], -1) - moved
    data = dict.fromkeys(
        ("prev_logprobs", "generation_logprobs", "reference_policy_logprobs"), old
    ) | {
        "advantages": torch.tensor([[9.0, 2.0, 2.0]]),
        "token_mask": torch.tensor([[0.0, 1.0, 1.0]]),
        "sample_mask": torch.ones(1),
    }
    loss, row = shaped(StandIn())(new, data, torch.tensor(2.0), torch.tensor(4.0))
    loss.backward()
    assert loss.item() == pytest.approx(-(2 * 1 + 2 * 1.2) / 4)
    torch.testing.assert_close(new.grad, torch.tensor([[-2.0 / 4, 0.0]]))
    assert (row["klip/zeroed"], row["klip/kept"]) == (0.25, 0.25)  # of the 4 tokens of all batches


def test_microbatches_add_up():
    """NeMo-RL adds losses and metrics of microbatches: two halves are the whole."""
    loss, given = shaped(StandIn(kl=0.05, cap=1.1), "sapo"), arguments()
    whole, row = loss(**given)
    parts = []
    for rows in (slice(0, 2), slice(2, 6)):
        half = dict(given, next_token_logprobs=given["next_token_logprobs"][rows])
        half["data"] = {name: x[rows] for name, x in given["data"].items()}
        parts.append(loss(**half))
    torch.testing.assert_close(sum(value for value, _ in parts), whole)
    for name, value in row.items():
        assert sum(found[name] for _, found in parts) == pytest.approx(value, abs=1e-6), name


def test_what_nemo_rl_reads_of_a_loss_is_there():
    """Also after the way to another process; klip/... are means over tokens for any loss."""
    loss = shaped(StandIn(by_token=False, kl=0.05), "spo", gates=["opsm(delta=0.5)"])
    again = pickle.loads(pickle.dumps(loss))
    assert (again.loss_type, again.input_type) == ("sequence", "logprob")
    assert again.reference_policy_kl_penalty == 0.05
    assert again.metric_normalizations["klip/zeroed"] == "tokens"
    assert torch.equal(again(**arguments())[0], loss(**arguments())[0])


@pytest.mark.parametrize(("setting", "value", "way_out"), [
    ("ratio_clip_min", 0.1, r"leave it at 0.2, and give clip\(low=...\)"),
    ("ratio_clip_max", 0.28, r"leave it at 0.2, and give clip\(high=...\)"),
    ("ratio_clip_c", 3.0, r"leave it at None, and give dual-clip\(cap=...\)"),
    ("use_cispo", True, "1 \\+ ratio_clip_max"),
    ("sequence_level_importance_ratios", True, 'level="sequence-mean"'),
    ("disable_ppo_ratio", True, "give reinforce"),
    ("force_on_policy_ratio", True, "where every ratio is 1"),
])  # fmt: skip
def test_settings_of_another_clip_are_refused(setting, value, way_out):
    stock = copy.copy(StandIn())
    setattr(stock, setting, value)
    with pytest.raises(KlipError, match=f"loss_fn.{setting}={value} .*{way_out}"):
        shaped(stock)


def test_other_losses_and_what_does_not_reach_it_are_refused():
    with pytest.raises(KlipError, match=r"function has no ratio_clip_min: give the ClippedPGLossF"):
        shaped(lambda: None)
    with pytest.raises(KlipError, match=r"age .* does not reach the loss in NeMo-RL"):
        shaped(StandIn(), "age-conditioned")
    with pytest.raises(KlipError, match=r"truncate.*do it twice: leave the gate out"):
        shaped(StandIn(cap=2.0), gates=["truncate"])
