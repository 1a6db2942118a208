"""TRL's own loss as a function: the one that users run, in float64, with PPO-Clip's gradient."""

import pytest
import torch

from klip.adapters.stock import configured
from klip.adapters.trl import loss_of_trainer
from klip.cli import main
from klip.errors import KlipError
from klip.shapes import Clip
from klip.theory.probe import load_loss, probe
from klip.tokens import MeanOfMeans, TokenMean, token_loss


def draw(rows=5, length=7):
    made = torch.Generator().manual_seed(0)
    old = -3 * torch.rand(rows, length, generator=made, dtype=torch.float64)
    new = old + 0.4 * torch.randn(rows, length, generator=made, dtype=torch.float64)
    mask = torch.arange(length) < torch.tensor([[7], [1], [4], [6], [2]])
    advantages = torch.randn(rows, generator=made, dtype=torch.float64)
    return new.requires_grad_(True), old, advantages, mask


@pytest.mark.parametrize(
    ("settings", "shape", "reducer"),
    [
        ({}, Clip(eps=0.2), TokenMean()),
        ({"loss_type": "grpo"}, Clip(eps=0.2), MeanOfMeans()),
        ({"loss_type": "bnpo", "epsilon_high": 0.28}, Clip(low=0.2, high=0.28), TokenMean()),
    ],
    ids=["dapo", "grpo", "bnpo"],
)
@pytest.mark.parametrize("per", ["sequence", "token"])
def test_its_gradient_and_value_are_ppo_clips(settings, shape, reducer, per):
    new, old, advantages, mask = draw()
    if per == "token":
        advantages = advantages[:, None] * torch.linspace(-1, 1, 7, dtype=torch.float64)
    value = loss_of_trainer(**settings)(new, old, advantages, mask)
    assert value.shape == ()
    assert value.dtype == torch.float64
    (got,) = torch.autograd.grad(value, new)
    wanted_value, seen = token_loss(new, old, advantages, mask, shape, reducer=reducer)
    (wanted,) = torch.autograd.grad(wanted_value, new)
    assert torch.allclose(got, wanted, rtol=1e-13, atol=0)
    assert value.item() == pytest.approx(wanted_value.item(), rel=1e-13)
    assert 0.05 < seen.metrics()["kill"] < 0.6


def test_by_hand():
    # One token within the band, one killed above, one killed below, one that passes.
    w = torch.tensor([[1.1, 1.5], [0.5, 1.5]], dtype=torch.float64)
    new = w.log().requires_grad_(True)
    loss = loss_of_trainer()(new, torch.zeros_like(w), torch.tensor([1.0, -1.0]), torch.ones(2, 2))
    loss.backward()
    assert torch.allclose(new.grad * 4, torch.tensor([[-1.1, 0.0], [0.0, 1.5]]).double())


GSPO = "importance_sampling_level=sequence epsilon=3e-4 epsilon_high=4e-4"


@pytest.mark.parametrize(
    ("settings", "found", "reduction"),
    [
        ("", "clip(eps=0.2)", "masked token mean"),
        ("loss_type=grpo", "clip(eps=0.2)", "per-sequence mean"),
        ("loss_type=dr_grpo max_completion_length=100", "clip(eps=0.2)", "token sum over 100,"),
        ("epsilon_high=0.28", "clip-higher(low=0.2, high=0.28)", "masked token mean"),
        ("delta=4.0", "dual-clip(eps=0.2, cap=4.0)", "masked token mean"),
        ("loss_type=cispo epsilon_high=5.0", "cispo(cap=5.0, floor=0.0)", "masked token mean"),
        ("loss_type=sapo", "sapo(tau_positive=1.0, tau_negative=1.05)", "per-sequence mean"),
        ("importance_sampling_level=sequence", "clip(eps=0.2)", "sequence-level ratio"),
        (f"{GSPO} loss_type=grpo", "clip(low=0.0003, high=0.0004) at the level sequence-mean",
         "per-sequence mean"),
        ("beta=0.04", "clip(eps=0.2) + reference-kl(b=0.04, estimator=weighted-k3)",
         "masked token mean"),
        (f"{GSPO} loss_type=grpo beta=0.1", "clip(low=0.0003, high=0.0004) + "
         "reference-kl(b=0.1, estimator=weighted-k3) at the level sequence-mean",
         "per-sequence mean"),
    ],
)  # fmt: skip
def test_the_probe_names_it_by_its_import_path(settings, found, reduction, capsys):
    """Nothing that TRL computes looks wrong, and no warning of NumPy's appears."""
    given = ["--settings", *settings.split()] if settings else []
    assert main(["probe", "trl:GRPOTrainer", *given]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f") is {found} " in said
    assert reduction in said
    assert "nothing looks wrong" in said


def test_its_method_is_a_path_too():
    method = load_loss("trl.trainer.grpo_trainer:GRPOTrainer._compute_loss")
    assert str(probe(configured(method)).match) == "clip(eps=0.2)"
    with pytest.raises(KlipError, match="only the loss of trl:GRPOTrainer"):
        configured(load_loss("trl:SFTTrainer"))
