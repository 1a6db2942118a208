"""Our gradient is TRL's own, for every trust region that TRL has, with tokens really clipped."""

import pytest
import torch
from trl import GRPOTrainer

from klip.adapters.trl import KlipGRPOTrainer
from klip.tokens import OPSM, ReferenceKL, SequenceMean
from tests.adapters.trl.world import Wide, WideKlip, batch, gradient, trainer, window

CASES = {
    # name: (TRL's settings, our arguments, our settings)
    "grpo": ({"loss_type": "grpo"}, {"shape": "clip"}, {"loss_type": "grpo"}),
    "dapo": ({"loss_type": "dapo"}, {"shape": "clip"}, {"loss_type": "dapo"}),
    "bnpo": ({"loss_type": "bnpo"}, {"shape": "clip"}, {"loss_type": "bnpo"}),
    "dr_grpo": ({"loss_type": "dr_grpo"}, {"shape": "clip"}, {"loss_type": "dr_grpo"}),
    "clip-higher": (
        {"epsilon": 0.2, "epsilon_high": 0.28},
        {"shape": "clip(low=0.2, high=0.28)"},
        {},
    ),
    "delta": ({"delta": 1.4}, {"shape": "dual-clip(eps=0.2, cap=1.4)"}, {}),
    "sapo": (
        {"loss_type": "sapo", "sapo_temperature_pos": 3.0, "sapo_temperature_neg": 4.0},
        {"shape": "sapo(tau_positive=3, tau_negative=4)"},
        {"loss_type": "grpo"},
    ),
    "cispo": (
        {"loss_type": "cispo", "epsilon_high": 1.25},
        {"shape": "cispo(cap=1.25)"},
        {"loss_type": "dapo"},
    ),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.1},
        {"shape": "clip(eps=0.1)", "level": SequenceMean()},
        {"loss_type": "grpo"},
    ),
    "gspo-dapo": (
        {"importance_sampling_level": "sequence", "epsilon": 0.1},
        {"shape": "clip(eps=0.1)", "level": SequenceMean()},
        {},
    ),
    "opsm": (
        {"loss_type": "grpo", "off_policy_mask_threshold": 0.05},
        {"shape": "clip", "gates": [OPSM(delta=0.05)]},
        {"loss_type": "grpo"},
    ),
    "entropy-quantile": (
        {"top_entropy_quantile": 0.6},
        {"shape": "clip"},
        {"top_entropy_quantile": 0.6},
    ),
    "entropy-bonus": ({"entropy_coef": 0.1}, {"shape": "clip"}, {"entropy_coef": 0.1}),
    "kl": (
        {"beta": 0.5, "use_bias_correction_kl": False},
        {"shape": "clip"},
        {"beta": 0.5, "use_bias_correction_kl": False},
    ),
    "weighted-kl": (
        {"beta": 0.5},
        {"shape": "clip", "penalties": [ReferenceKL(b=0.5, estimator="weighted-k3")]},
        {"beta": 0.5},
    ),
}
KINDS = {"float32": (GRPOTrainer, KlipGRPOTrainer, 1e-6), "float64": (Wide, WideKlip, 1e-13)}


def ratio_of(stock, inputs):
    """`[n]` w and A of the tokens that count."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attend = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        new, _, _ = stock._get_per_token_logps_and_entropies(
            stock.model, ids, attend, inputs["completion_ids"].shape[1]
        )
    counts = inputs["completion_mask"].bool()
    advantage = inputs["advantages"][:, None].expand_as(new)
    return torch.exp(new - inputs["old_per_token_logps"])[counts], advantage[counts]


def share_clipped(name, stock, ours, inputs):
    """The share of tokens on which the trust region acts, as told by the ratio alone."""
    w, a = ratio_of(stock, inputs)
    if name == "sapo":
        return float(((w > 1.2) | (w < 0.8)).double().mean())
    if name == "cispo":
        return float((w > 1.25).double().mean())
    if name == "delta":
        beyond = (w > 1.4) & (a < 0)
        assert beyond.any()  # the second side is really used
        return float((beyond | ((w > 1.2) & (a > 0)) | ((w < 0.8) & (a < 0))).double().mean())
    return window(ours)["kill"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_gradient_is_trls(name, kind, tmp_path):
    its, arguments, settings = CASES[name]
    stock_kind, our_kind, tolerance = KINDS[kind]
    stock = trainer(tmp_path, stock_kind, **its)
    ours = trainer(tmp_path, our_kind, ours=arguments, **settings)
    inputs = batch(stock)
    if "beta" in its:
        drift = torch.randn(inputs["old_per_token_logps"].shape, dtype=torch.float64)
        inputs["ref_per_token_logps"] = inputs["old_per_token_logps"] + 0.3 * drift
        inputs["ref_per_token_logps"] = inputs["ref_per_token_logps"].to(stock.model.dtype)
    kept = dict(inputs)
    wanted, got = gradient(stock, inputs), gradient(ours, inputs)
    assert got.dtype == getattr(torch, kind)
    assert wanted.norm() > 1e-3
    assert (got - wanted).norm() <= tolerance * wanted.norm()
    assert 0.05 < share_clipped(name, stock, ours, inputs) < 0.5
    assert inputs.keys() == kept.keys()  # they are used again for the next update
    assert all(inputs[key] is kept[key] for key in kept)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    settings = {"loss_type": "bnpo"}
    return trainer(folder, **settings), trainer(
        folder, KlipGRPOTrainer, ours={"shape": "clip"}, **settings
    )


def close(got, wanted):
    return wanted.norm() > 1e-3 and (got - wanted).norm() <= 1e-6 * wanted.norm()


def test_what_a_tool_said_does_not_count(pair):
    stock, ours = pair
    ours._klip.windows.clear()
    inputs = batch(stock)
    tool = torch.ones_like(inputs["completion_mask"])
    tool[:, 2:5] = 0
    inputs["tool_mask"] = tool
    assert close(gradient(ours, inputs), gradient(stock, inputs))
    assert window(ours)["tokens"] == (inputs["completion_mask"] * tool).sum()


def test_advantages_may_differ_within_a_sequence(pair):
    stock, ours = pair
    inputs = batch(stock)
    inputs["advantages"] = torch.randn(inputs["old_per_token_logps"].shape)
    assert close(gradient(ours, inputs), gradient(stock, inputs))


def test_a_sequence_that_is_masked_whole_pulls_nothing(pair):
    stock, ours = pair
    inputs = batch(stock)
    inputs["completion_mask"][3] = 0  # as mask_truncated_completions does
    assert close(gradient(ours, inputs), gradient(stock, inputs))


@pytest.mark.parametrize("per", ["token", "sequence"])
def test_trls_correction_for_vllm_weighs_the_multiplier(pair, per, monkeypatch):
    stock, ours = pair
    inputs = batch(stock)
    inputs["importance_sampling_ratio"] = torch.rand(8, 12 if per == "token" else 1)
    for of in pair:
        monkeypatch.setattr(of, "use_vllm", True)
    assert close(gradient(ours, inputs), gradient(stock, inputs))


def test_without_old_log_probs_every_ratio_is_one(pair):
    stock, ours = pair
    ours._klip.windows.clear()
    inputs = batch(stock)
    del inputs["old_per_token_logps"]
    assert close(gradient(ours, inputs), gradient(stock, inputs))
    assert window(ours)["inert"] == 1


def test_accumulated_gradients_are_scaled_by_trl(pair, monkeypatch):
    stock, ours = pair
    inputs = batch(stock)
    whole = gradient(ours, inputs)
    for of in pair:
        monkeypatch.setattr(of, "current_gradient_accumulation_steps", 4)
    assert close(gradient(ours, inputs), gradient(stock, inputs))
    assert torch.allclose(gradient(ours, inputs) * 4, whole)


def test_kill_by_side_is_trls_clip_ratio(pair):
    stock, ours = pair
    ours._klip.windows.clear()
    inputs = batch(stock)
    gradient(stock, inputs), gradient(ours, inputs)
    its, own = stock._metrics["train"], window(ours)
    for name, of in (("kill", "region"), ("kill_negative", "low"), ("kill_positive", "high")):
        assert own[name] == pytest.approx(its[f"clip_ratio/{of}_mean"][-1], abs=1e-6)
        assert own[name] > 0
