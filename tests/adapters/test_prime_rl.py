"""The custom loss has the gradients of prime-rl's own losses, and its contract.

prime-rl has no package to install, so its inputs are stood in for by their fields, its trainer by
the loop that calls a custom loss, and its losses are written anew from their formulas.
"""

import importlib
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from klip.adapters.prime_rl import IPO, loss
from klip.errors import KlipError
from klip.shapes import Context, parse
from klip.tokens import token_context, token_multiplier

DEFAULT = "klip.adapters.prime_rl:IPO(eps=0.3)"


@dataclass
class Inputs:
    """One sequence, by the names of prime-rl's `LossInputs`; `[T]` each."""

    trainer_logprobs: Tensor
    inference_logprobs: Tensor
    ref_logprobs: Tensor | None
    advantages: Tensor
    loss_mask: Tensor
    loss_weights: Tensor | None = None


def sequences(seed, count=4, dtype=torch.float64, reach=1.0):
    """Prompts are masked, and nothing sensible is recorded there."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        length, prompt = rng.integers(6, 30), rng.integers(1, 5)
        old = -rng.exponential(2.0, length)
        new = np.minimum(old + rng.normal(0, reach, length), -1e-3)
        old[:prompt] = 0
        found.append(
            Inputs(
                torch.as_tensor(new, dtype=dtype).requires_grad_(True),
                torch.as_tensor(old, dtype=dtype),
                torch.as_tensor(new - 0.1, dtype=dtype),
                torch.full((length,), rng.normal(), dtype=dtype),
                torch.arange(length) >= prompt,
            )
        )
    return found


def total(batch, function, scale):
    """What the trainer does with a loss: a sum over sequences, over the batch's tokens."""
    outputs = [function(inputs) for inputs in batch]
    names = {frozenset(out.metrics) for out in outputs}
    assert len(names) == 1, "machines that log different names wait for each other forever"
    for name in names.pop():
        assert torch.stack([out.metrics[name] for out in outputs]).shape == (len(batch),)
    return sum(out.loss for out in outputs) / scale


def gradients(value, batch):
    return torch.autograd.grad(value, [inputs.trainer_logprobs for inputs in batch])


def ipo(w, log_w, p, a, eps=0.3):
    return torch.where((w * p - p).abs() > eps, 0.0, w * a)


def dppo_with_squares(w, log_w, p, a, delta=0.2, tau=1e-3):
    move = w * p - p
    dropped = ((a > 0) & (move > delta)) | ((a < 0) & (move < -delta))
    return torch.where(dropped, 0.0, w * a) - tau * log_w * log_w


def icepop(w, log_w, p, a, low=0.2, high=5.0):
    return torch.where((w < low) | (w > high), 0.0, w * a)


def ppo(w, log_w, p, a):
    return torch.minimum(w * a, w.clamp(0.8, 1.2) * a)


def cispo(w, log_w, p, a):
    return w.clamp(max=5.0).detach() * a * log_w


@pytest.mark.parametrize(
    ("objective", "shape"),
    [
        (ipo, DEFAULT),
        (dppo_with_squares, "dppo-tv(delta=0.2) + kl-k2(b=0.002)"),
        (icepop, "strict-clip(low=0.8, high=4.0)"),
        (ppo, "clip(eps=0.2)"),
        (cispo, "cispo(cap=5)"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("seed", range(3))
def test_its_own_losses_are_shapes(objective, shape, weighted, seed):
    """IPO is its default now, DPPO with squared log-ratios was before; the rest are options."""
    batch = sequences(seed)
    if weighted:
        for inputs in batch:
            inputs.loss_weights = torch.linspace(0.5, 2, len(inputs.loss_mask)).double()
    expected = 0
    for x in batch:
        log_w = x.trainer_logprobs - x.inference_logprobs
        value = objective(log_w.exp(), log_w, x.inference_logprobs.exp(), x.advantages)
        weights = 1.0 if x.loss_weights is None else x.loss_weights
        expected = expected - torch.where(x.loss_mask, weights * value, 0.0).sum() / 77
    wanted = gradients(expected, batch)
    ours = total(batch, lambda x: loss(x, shape=shape), 77)
    for found, want in zip(gradients(ours, batch), wanted, strict=True):
        torch.testing.assert_close(found, want, rtol=1e-10, atol=1e-14)
    free = gradients(total(batch, lambda x: loss(x, shape="is"), 77), batch)
    assert any(not torch.allclose(x, y) for x, y in zip(wanted, free, strict=True)), "inert"


def test_the_value_is_the_one_that_prime_rl_logs():
    batch = sequences(5)
    for x in batch:
        log_w = x.trainer_logprobs - x.inference_logprobs
        expected = -ppo(log_w.exp(), log_w, None, x.advantages)[x.loss_mask].sum()
        torch.testing.assert_close(loss(x).loss, expected)


def test_ipo_is_symmetric_and_capped():
    old = Context(old_log_prob=torch.tensor(np.log([0.5, 0.5, 0.5, 1e-9])))
    log_w = torch.log(torch.tensor([1.7, 0.3, 1.5, 1e6], dtype=torch.float64))
    m = IPO(eps=0.3, cap=100).multiplier(log_w, torch.tensor([-1.0, 1.0, 1.0, 1.0]).double(), old)
    torch.testing.assert_close(m, torch.tensor([0.0, 0.0, 1.5, 100.0]).double())


def test_the_import_path_is_the_one_on_the_page():
    module, _, name = "klip.adapters.prime_rl.loss".rpartition(".")
    assert getattr(importlib.import_module(module), name) is loss
    assert parse(DEFAULT) == IPO(eps=0.3)


def test_what_lies_outside_the_mask_changes_nothing():
    (x,) = sequences(1, count=1)
    before = loss(x)
    x.inference_logprobs = torch.where(x.loss_mask, x.inference_logprobs, torch.nan)
    x.advantages = torch.where(x.loss_mask, x.advantages, torch.nan)
    after = loss(x)
    assert after.loss.item() == before.loss.item()
    assert all(after.metrics[k] == before.metrics[k] for k in before.metrics)


def test_a_sequence_level_ratio():
    """GSPO: one ratio for all tokens of the sequence."""
    (x,) = sequences(2, count=1)
    log_w = (x.trainer_logprobs - x.inference_logprobs)[x.loss_mask].mean()
    (found,) = gradients(loss(x, shape="is", level="sequence-mean").loss, [x])
    expected = torch.where(x.loss_mask, -(log_w.exp() * x.advantages), 0.0)
    torch.testing.assert_close(found, expected.detach())


def test_a_reference_reaches_the_shape():
    (x,) = sequences(3, count=1)
    shape = "klip.tokens.penalties:ReferenceKL(b=0.5, estimator=k2)"
    (found,) = gradients(loss(x, shape=shape).loss, [x])
    w = (x.trainer_logprobs - x.inference_logprobs).exp()
    u = x.trainer_logprobs - x.ref_logprobs
    expected = torch.where(x.loss_mask, -(w * x.advantages - 0.5 * u), 0.0)
    torch.testing.assert_close(found, expected.detach())
    x.ref_logprobs = None
    with pytest.raises(KlipError, match="these inputs have no ref_logprobs"):
        loss(x, shape=shape)


def test_metrics():
    (x,) = sequences(4, count=1)
    found = loss(x).metrics
    parts = [found[f"klip/{part}"].item() for part in ("inside", "kill", "pass")]
    assert sum(parts) == pytest.approx(1)
    assert parts[1] > 0
    assert not any(value.requires_grad for value in found.values())


def test_an_empty_mask_is_a_loss_of_zero_with_a_graph():
    """A machine whose tokens are all masked must still run its backward pass."""
    (x,) = sequences(6, count=1)
    x.loss_mask = torch.zeros_like(x.loss_mask)
    found = loss(x)
    assert found.loss.item() == 0
    assert found.metrics["klip/inert"] == 0
    assert not gradients(found.loss, [x])[0].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": "age-conditioned"}, "age .* does not reach the loss in prime-rl"),
        ({"shape": "truncate(cap=2) * clip"}, "behaviour_log_ratio"),
        ({"shape": "kl(b=1)"}, "closed-form KL"),
        ({"shape": "adaptive-kl"}, "prime-rl keeps no state"),
        ({"shape": "clap"}, "no shape is called"),
        ({"level": "group"}, "no level is called 'group'; there are token, sequence-mean"),
        ({"nonfinite": "ignore"}, "must be 'raise' or 'drop'"),
    ],
)
def test_what_would_be_wrong_in_silence_is_refused(options, message):
    (x,) = sequences(1, count=1)
    with pytest.raises(KlipError, match=message):
        loss(x, **options)


def test_log_probs_of_the_sampler_that_are_missing_are_refused():
    (x,) = sequences(1, count=1)
    x.inference_logprobs = torch.zeros_like(x.inference_logprobs)
    with pytest.raises(KlipError, match="were not recorded"):
        loss(x)
    x.inference_logprobs = None
    with pytest.raises(KlipError, match="without the sampler's log-probs there is no ratio"):
        loss(x)


def test_log_probs_of_the_trainer_in_their_place_are_warned_of():
    (x,) = sequences(1, count=1)
    x.inference_logprobs = x.trainer_logprobs.detach()
    with pytest.warns(UserWarning, match="every shape is inert there"):
        assert loss(x).metrics["klip/inert"] == 1


def test_gates_and_penalties_are_those_of_token_loss():
    words = {"gates": ["opsm(delta=0.05)"], "penalties": ["reference-kl(b=0.3)"]}
    for inputs in sequences(5):
        out = loss(inputs, shape="clip", level="sequence-mean", **words)
        (found,) = torch.autograd.grad(out.loss, inputs.trainer_logprobs)
        new, old, mask = inputs.trainer_logprobs, inputs.inference_logprobs, inputs.loss_mask
        m = token_multiplier(
            new[None], old[None], inputs.advantages[None], mask[None], "clip",
            token_context(new[None], old[None], reference_log_prob=inputs.ref_logprobs[None]),
            level="sequence-mean", **words,
        )  # fmt: skip
        assert torch.allclose(found, -m[0], atol=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gates": "opsm"}, "gates='opsm' must be a list of gates"),
        ({"gates": ["opsn"]}, "no gate is called 'opsn'"),
        ({"gates": ["truncate"]}, "needs behaviour_log_ratio"),
        ({"penalties": ["clip"]}, "'clip' is not a penalty"),
    ],
)
def test_gates_and_penalties_that_are_not(given, said):
    (inputs,) = sequences(0, count=1)
    with pytest.raises(KlipError, match=said):
        loss(inputs, **given)
