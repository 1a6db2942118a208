"""TorchRL with a shape: with a clip it is ClipPPOLoss, in value, gradient and whole runs."""

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torch.distributions import Normal
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss

from klip.adapters.torchrl import ShapeLoss
from klip.errors import KlipError

N = 256


def networks(seed=0):
    """(actor, critic) of small networks, the same every time."""
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2), NormalParamExtractor())
    module = TensorDictModule(body, in_keys=["observation"], out_keys=["loc", "scale"])
    actor = ProbabilisticActor(
        module, in_keys=["loc", "scale"], distribution_class=Normal, return_log_prob=True
    )
    critic = ValueOperator(nn.Linear(3, 1), in_keys=["observation"])
    return actor, critic


def batch(actor, seed=1, spread=0.25):
    """Samples whose log-probs were recorded by a policy that is some way off."""
    draw = torch.Generator().manual_seed(seed)
    observation = torch.randn(N, 3, generator=draw)
    with torch.no_grad():
        dist = actor.get_dist(TensorDict({"observation": observation}, [N]))
        action = dist.mean + dist.stddev * torch.randn(N, 1, generator=draw)
        recorded = dist.log_prob(action)
    key = actor.log_prob_key if hasattr(actor, "log_prob_key") else "action_log_prob"
    return TensorDict(
        {
            "observation": observation,
            "action": action,
            key: recorded - spread * torch.randn(recorded.shape, generator=draw),
            "advantage": torch.randn(N, 1, generator=draw) + 0.3,
            "value_target": torch.randn(N, 1, generator=draw),
        },
        [N],
    )


def made(kind, networks_, **options):
    return kind(*networks_, entropy_coeff=0.01, critic_coeff=0.5, **options)


def gradients(loss, data):
    out = loss(data)
    total = out["loss_objective"] + out["loss_entropy"] + out["loss_critic"]
    torch.manual_seed(0)
    grads = torch.autograd.grad(total, [p for p in loss.parameters() if p.requires_grad])
    return out, torch.cat([g.flatten() for g in grads])


@pytest.mark.parametrize("options", [{}, {"normalize_advantage": True}, {"reduction": "sum"}],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize(
    ("epsilon", "shape"), [(0.2, "clip(eps=0.2)"), ((0.2, 0.28), "clip(low=0.2, high=0.28)")]
)
def test_a_clip_is_torchrls_own(epsilon, shape, options):
    pairs = []
    for kind, own in ((ClipPPOLoss, {"clip_epsilon": epsilon}), (ShapeLoss, {"shape": shape})):
        both = networks()
        loss = made(kind, both, **own, **options)
        pairs.append((loss, *gradients(loss, batch(both[0]))))
    (_, its, wanted), (ours, out, found) = pairs
    assert (found - wanted).abs().max() < 1e-6 * wanted.abs().max()
    for name in ("loss_objective", "loss_critic", "loss_entropy", "kl_approx"):
        assert out[name].item() == pytest.approx(its[name].item(), rel=1e-5)
    assert 0.05 < ours.diagnostics.metrics()["kill"] < 0.5


def test_a_run_is_torchrls_own():
    ends = []
    for kind, own in ((ClipPPOLoss, {"clip_epsilon": 0.2}), (ShapeLoss, {"shape": "clip"})):
        both = networks()
        loss = made(kind, both, **own)
        optimiser = torch.optim.Adam(loss.parameters(), 3e-3)
        data = batch(both[0])
        for _ in range(20):
            torch.manual_seed(0)
            out = loss(data)
            optimiser.zero_grad()
            (out["loss_objective"] + out["loss_entropy"] + out["loss_critic"]).backward()
            optimiser.step()
        ends.append(torch.cat([p.detach().flatten() for p in loss.parameters()]))
    assert (ends[1] - ends[0]).abs().max() <= 1e-5 * ends[0].abs().max()


def test_a_mask_of_torchrls_is_obeyed():
    both = networks()
    loss = made(ShapeLoss, both, shape="spo")
    data = batch(both[0])
    wanted = loss(data[: N // 2])["loss_objective"]
    keys = list(loss._loss_mask_keys())
    data[keys[0]] = (torch.arange(N) < N // 2)[:, None]
    assert loss(data)["loss_objective"].item() == pytest.approx(wanted.item(), rel=1e-5)


def test_any_shape_pulls_by_its_multiplier():
    both = networks()
    loss = made(ShapeLoss, both, shape="clip(eps=0.2) + kl-k3(b=0.5)")
    out = loss(batch(both[0]))
    m = loss.diagnostics.m
    assert torch.isfinite(out["loss_objective"])
    assert m.shape == (N, 1)
    assert loss.diagnostics.metrics()["reversed"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": "age-conditioned"}, "needs age"),
        ({"shape": "kl"}, "closed-form KL"),
        ({"shape": "adaptive-kl"}, "adapts between updates"),
        ({"shape": "clip", "clip_epsilon": 0.1}, "clip_epsilon=0.1 belongs"),
        ({"shape": "clip", "max_importance_ratio": 2.0}, "max_importance_ratio=2.0 belongs"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(KlipError, match=message):
        made(ShapeLoss, networks(), **options)
