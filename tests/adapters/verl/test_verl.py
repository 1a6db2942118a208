"""The loss `klip` is verl's own, loss by loss, where the shape is verl's own."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.utils.metric import AggregationType, Metric, reduce_metrics
from verl.utils.py_functional import append_to_dict

from klip.adapters.common import short_log
from klip.adapters.verl import plain_loss, token_weight
from klip.errors import KlipError
from klip.shapes import parse
from klip.theory.probe import probe
from klip.tokens import token_multiplier
from tests.adapters.verl.batches import MODES, actor, call, difference, draw

# verl's loss and its settings; the shape and the level that are the same.
SAME = {
    "vanilla": ({"clip_ratio_high": 0.28}, "dual-clip(low=0.2, high=0.28, cap=3)", "token"),
    "gspo": (
        {"clip_ratio_low": 0.01, "clip_ratio_high": 0.015},
        "clip(low=0.01, high=0.015)",
        "sequence-mean",
    ),
    "sapo": ({}, "sapo", "token"),
    "cispo": ({"clip_ratio_high": 0.28}, "cispo(floor=0.8, cap=1.28)", "token"),
    "gpg": ({}, "reinforce", "token"),
    "dro": ({"policy_loss": {"dro_beta": 0.3}}, "kimi(tau=0.3)", "token"),
    "dppo_tv": (
        {"clip_ratio_c": 1e9, "clip_ratio_low": 0.03, "clip_ratio_high": 0.03},
        "dppo-tv(delta=0.03)",
        "token",
    ),
    "dppo_kl": (
        {"clip_ratio_c": 1e9, "clip_ratio_low": 0.005, "clip_ratio_high": 0.005},
        "dppo-kl(delta=0.005)",
        "token",
    ),
}
MINIBATCH = {
    "dp_size": 2,
    "batch_num_tokens": 411,
    "global_batch_size": 32,
    "loss_scale_factor": 100,
}
"""What verl tells a loss whose microbatch is a part of a minibatch."""


@pytest.mark.parametrize("weights", [False, True], ids=["alone", "weighted"])
@pytest.mark.parametrize("info", [{}, MINIBATCH], ids=["whole", "part"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SAME)
def test_gradients_are_verls_own(configure, name, mode, info, weights):
    fields, shape, level = SAME[name]
    batch = draw(seed=3, weights=weights)
    wanted = call(name, batch, mode, actor(name, info, **fields))
    configure(shape, level)
    # SAPO ignores the mode it is given.
    own_mode = "seq-mean-token-mean" if name == "sapo" else mode
    found = call("klip", batch, own_mode, actor(info=info))
    assert difference(found[1], wanted[1]) < 1e-6
    assert bool(found[1][batch["response_mask"]].any())
    if name in ("vanilla", "gspo", "sapo"):
        assert found[0].item() == pytest.approx(wanted[0].item(), rel=1e-5)
    if name in ("vanilla", "gspo"):
        for key, value in wanted[2].items():
            assert found[2][key] == pytest.approx(value, abs=1e-6)


def test_the_batch_tries_what_clips_are_about():
    """The equalities above say something: 5 to 50 % clipped, and the dual clip's branch taken."""
    batch = draw(seed=3)
    active = batch["response_mask"]
    w = (batch["log_prob"] - batch["old_log_prob"]).exp()
    assert bool((active & (batch["advantages"] < 0) & (w > 3)).any())
    assert 0.05 < ((w - 1).abs() > 0.2)[active].float().mean() < 0.5  # sapo's tokens
    for name in ("vanilla", "gspo", "cispo", "dppo_tv", "dppo_kl"):
        fields, _, _ = SAME[name]
        _, _, metrics = call(name, batch, config=actor(name, **fields))
        assert 0.05 < metrics["actor/pg_clipfrac"] < 0.5, name
    assert call("vanilla", batch)[2]["actor/pg_clipfrac_lower"] > 0


@pytest.mark.parametrize("name", ["cispo", "gpg", "dro"])
def test_values_differ_by_what_has_no_gradient(configure, name):
    """These of verl's weigh log pi where the shape's objective has log w."""
    fields, shape, level = SAME[name]
    configure(shape, level)
    batch = draw(seed=5)
    wanted, _, _ = call(name, batch, config=actor(name, **fields))
    found, _, _ = call("klip", batch)
    old, mask = batch["old_log_prob"], batch["response_mask"]
    w = (batch["log_prob"].detach() - old).exp()
    weight = w.clamp(0.8, 1.28) if name == "cispo" else 1.0
    rest = -(weight * batch["advantages"] * old)[mask].mean()
    assert (found + rest).item() == pytest.approx(wanted.item(), rel=1e-4)


def test_geometric_mean(configure):
    """GMPO takes the mean over sequences by itself, empty ones too: leave those out."""
    whole = draw(seed=4)
    batch = {key: None if value is None else value[:-1] for key, value in whole.items()}
    batch["log_prob"] = batch["log_prob"].detach().requires_grad_(True)
    fields = {"clip_ratio_low": 0.4, "clip_ratio_high": 0.3}
    wanted = call("geo_mean", batch, config=actor("geo_mean", **fields))
    configure("is", "geometric-mean(low=0.4, high=0.3)")
    found = call("klip", batch, "seq-mean-token-mean", actor(**fields))
    assert wanted[2]["actor/pg_clipfrac"] > 0.05
    assert difference(found[1], wanted[1]) < 1e-6
    assert found[0].item() == pytest.approx(wanted[0].item(), rel=1e-5)


def test_far_ratios(configure):
    """verl stops gradients beyond |log w| = 20; there a dual clip's are below 1e-8 of A anyway."""
    batch = draw(seed=6)
    far = torch.tensor([25.0, -25.0, 21.0, -21.0])
    moved = batch["old_log_prob"].clone()
    moved[:4, 0] += far
    batch["log_prob"] = moved.requires_grad_(True)
    configure("dual-clip")
    _, wanted, _ = call("vanilla", batch, "token-sum")
    _, found, metrics = call("klip", batch, "token-sum")
    assert (found - wanted).abs().max() < 1e-8
    assert metrics["actor/ppo_kl"] == pytest.approx(call("vanilla", batch)[2]["actor/ppo_kl"])


def test_gspo_beyond_its_limit(configure):
    """verl's GSPO stops pulling where the mean log-ratio is above 10: a dual clip with that cap."""
    batch = draw(seed=7)
    batch["advantages"] = -batch["advantages"].abs() - 0.1
    batch["log_prob"] = (batch["old_log_prob"] + 11.0).requires_grad_(True)
    _, wanted, _ = call("gspo", batch)
    configure(f"dual-clip(cap={math.exp(10)})", "sequence-mean")
    loss, found, _ = call("klip", batch)
    assert not wanted.any()
    assert torch.equal(found.abs(), wanted.abs())
    assert loss.item() == pytest.approx(call("gspo", batch)[0].item(), rel=1e-5)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(MODES),
    shape=st.sampled_from(
        ["ramp", "spo", "ppo-rb", "clip + kl-k3(b=0.1)", "by-sign(clip, sapo)", "dcpo",
         "clip(eps=by-position(start=0.3, end=0.1))", "klip.tokens.gates:OPSM(delta=0.1) * clip"]
    ),
)  # fmt: skip
def test_the_gradient_is_m_weighed_by_verls_aggregation(seed, mode, shape):
    """For shapes that verl has not: d loss / d log pi = -m c times what agg_loss gives a token."""
    batch = draw(seed, weights=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KLIP_SHAPE", shape)
        _, gradient, _ = call("klip", batch, mode)
    names = ("log_prob", "old_log_prob", "advantages", "response_mask")
    m = token_multiplier(*(batch[name] for name in names), parse(shape))
    weight = token_weight(batch["response_mask"], mode, {})
    wanted = -m * batch["rollout_is_weights"] * weight
    torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-9)


def test_the_sum_over_a_sequence(configure):
    """With sums of tokens, the gradient is that of mean_i min(W_i A_i, clip(W_i) A_i)."""
    configure("clip(eps=0.5)", "sequence-sum")
    batch = draw(seed=8)
    _, found, _ = call("klip", batch, "seq-mean-token-sum")
    mask = batch["response_mask"]
    a = batch["advantages"][:, 0]
    whole = torch.where(mask, batch["log_prob"] - batch["old_log_prob"], 0).sum(-1).exp()
    J = torch.minimum(whole * a, whole.clamp(0.5, 1.5) * a)
    loss = -J[mask.any(-1)].mean()
    (wanted,) = torch.autograd.grad(loss, batch["log_prob"])
    assert 0 < (whole * a > whole.clamp(0.5, 1.5) * a).sum() < mask.any(-1).sum()
    assert difference(found, wanted) < 1e-6


def test_nothing_under_the_mask_counts(configure):
    configure("clip(eps=by-position(start=0.3, end=0.1))")
    batch = draw(seed=9)
    wanted = call("klip", batch)
    hidden = ~batch["response_mask"]
    for name in ("log_prob", "old_log_prob", "advantages"):
        spoilt = batch[name].detach().clone()
        spoilt[hidden] = math.nan
        batch[name] = spoilt.requires_grad_(name == "log_prob")
    found = call("klip", batch)
    assert torch.equal(found[1], wanted[1])
    assert found[2] == wanted[2]


def test_halves(configure):
    configure("dual-clip")
    batch = draw(seed=10, dtype=torch.bfloat16)
    loss, gradient, _ = call("klip", batch)
    assert loss.dtype == torch.float32
    assert gradient.dtype == torch.bfloat16


def test_metrics_have_the_same_names_in_every_call(configure):
    """verl gathers them over microbatches and machines by name."""
    configure("dual-clip", metrics='"all"')
    usual = {"actor/pg_clipfrac", "actor/ppo_kl", "actor/pg_clipfrac_lower"}
    own = {f"klip/{name}" for name in (*short_log(""), "inert")}
    batch = draw(seed=11)
    assert call("klip", batch)[2].keys() == usual | own
    empty = batch | {"response_mask": torch.zeros_like(batch["response_mask"])}
    loss, gradient, metrics = call("klip", empty)
    assert (loss.item(), bool(gradient.any())) == (0.0, False)
    assert metrics.keys() == usual | own
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())


def parts(batch, sizes):
    """The rows of a batch in parts of these sizes."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        {key: None if x is None else x[start : start + size].detach() for key, x in batch.items()}
        for start, size in zip(starts, sizes, strict=True)
    ]


def test_verl_makes_metrics_of_the_minibatch(configure):
    """By verl's own functions: two machines with three microbatches each, and two minibatches."""
    configure("dual-clip", metrics='"all"')
    steps, wanted = {}, []
    for seed in (3, 4):
        batch = draw(seed=seed, rows=24, spread=0.1 * seed)
        info = {"batch_num_tokens": int(batch["response_mask"].sum()), "dp_size": 2}
        machines = []
        for own in parts(batch, (13, 11)):
            seen = {}
            for micro in parts(own, (2, 6, len(own["log_prob"]) - 8)):
                micro["log_prob"].requires_grad_(True)
                row = call("klip", micro, config=actor(info=info))[2]
                append_to_dict(seen, Metric.from_dict(row, AggregationType.MEAN))
            machines.append(seen)
        minibatch = {
            name: Metric.aggregate_dp([seen[name] for seen in machines]) for name in machines[0]
        }
        wanted.append(call("klip", batch)[2])
        for name in ("inside", "kill", "pass", "k3", "ratio_mean", "ratio_max", "ratio_min"):
            found = minibatch[f"klip/{name}"]
            assert found == pytest.approx(wanted[-1][f"klip/{name}"], rel=1e-5), name
        append_to_dict(steps, minibatch)
    found = reduce_metrics(steps)
    assert found["klip/ratio_max"] == max(row["klip/ratio_max"] for row in wanted)
    assert found["klip/ratio_min"] == min(row["klip/ratio_min"] for row in wanted)


def test_an_empty_microbatch_spoils_no_extreme(configure):
    configure("dual-clip", metrics='"all"')
    batch = draw(seed=5)
    info = {"batch_num_tokens": int(batch["response_mask"].sum()), "dp_size": 1}
    seen = {}
    for mask in (batch["response_mask"], torch.zeros_like(batch["response_mask"])):
        row = call("klip", batch | {"response_mask": mask}, config=actor(info=info))[2]
        append_to_dict(seen, Metric.from_dict(row, AggregationType.MEAN))
    alone = call("klip", batch)[2]
    for name in ("klip/ratio_min", "klip/ratio_max", "klip/ratio_mean", "klip/kill"):
        assert seen[name].aggregate() == pytest.approx(alone[name], rel=1e-5)


def test_other_metrics_are_verls_as_before():
    made = Metric.from_dict({"a": 1.0, "b": torch.tensor(2.0)}, AggregationType.MEAN)
    assert [metric.aggregation for metric in made.values()] == [AggregationType.MEAN] * 2
    assert [metric.values for metric in made.values()] == [[1.0], [2.0]]


def test_gates_and_penalties_are_those_of_token_loss(configure):
    gates, penalties = ["opsm(delta=0.01)"], ["kl-k3(b=0.1)"]
    configure("clip", gates=gates, penalties=penalties)
    batch = draw(seed=6, weights=True)
    _, found, _ = call("klip", batch)
    weighed = token_multiplier(
        *(batch[key] for key in ("log_prob", "old_log_prob", "advantages", "response_mask")),
        "clip", gates=gates,
    ) * batch["rollout_is_weights"]  # fmt: skip
    m = weighed + token_multiplier(
        batch["log_prob"], batch["old_log_prob"], torch.zeros(12), batch["response_mask"],
        "is", penalties=penalties,
    )  # fmt: skip
    tokens = batch["response_mask"].sum()
    assert torch.allclose(found, torch.where(batch["response_mask"], -m / tokens, 0.0), atol=1e-7)
    assert not torch.allclose(found, call_plain(batch), atol=1e-4)


def call_plain(batch):
    """The gradient of a plain clip."""
    m = token_multiplier(
        *(batch[key] for key in ("log_prob", "old_log_prob", "advantages", "response_mask")), "clip"
    )
    return torch.where(batch["response_mask"], -m / batch["response_mask"].sum(), 0.0)


def test_diagnostics_can_be_off(configure):
    configure("dual-clip", diagnostics="false")
    assert not [key for key in call("klip", draw(seed=12))[2] if key.startswith("klip/")]


def test_a_token_that_verl_weighs_with_0_is_not_clipped(configure):
    configure("is")
    batch = draw(seed=13, weights=True)
    batch["rollout_is_weights"][:, ::2] = 0
    assert call("klip", batch)[2]["actor/pg_clipfrac"] == 0


class TestPlainLoss:
    """Any of verl's losses as a plain function, which is what the probe asks for."""

    def test_by_name_or_itself(self):
        from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

        batch = draw(seed=14, dtype=torch.float64)
        names = ("log_prob", "old_log_prob", "advantages", "response_mask")
        arguments = [batch[name] for name in names]
        losses = [
            plain_loss(loss, clip_ratio_c=4.0) for loss in ("vanilla", compute_policy_loss_vanilla)
        ]
        values = [loss(*arguments) for loss in losses]
        assert values[0].dtype == torch.float64
        assert torch.equal(*values)

    @pytest.mark.parametrize(
        ("name", "config", "message"),
        [("vanila", {}, "vanilla"), ("vanilla", {"clip_range": 0.1}, "clip_range")],
    )
    def test_what_verl_has_not(self, name, config, message):
        with pytest.raises(KlipError, match=message):
            plain_loss(name, **config)

    @pytest.mark.parametrize(
        ("name", "config", "shape"),
        [
            ("vanilla", {}, "dual-clip(eps=0.2, cap=3)"),
            ("vanilla", {"clip_ratio_high": 0.28}, "dual-clip(low=0.2, high=0.28, cap=3)"),
            ("sapo", {}, "sapo"),
            ("cispo", {}, "cispo(floor=0.8, cap=1.2)"),
            ("gpg", {}, "reinforce"),
            ("dro", {"dro_beta": 0.3}, "kimi(tau=0.3)"),
        ],
    )
    def test_the_probe_names_it(self, name, config, shape):
        found = probe(plain_loss(name, **config))
        wanted = parse(shape)
        assert found.match.exact
        assert found.match.name == wanted.name
        assert found.match.parameters == pytest.approx(wanted.parameters, abs=1e-3)


class TestTokenWeight:
    @pytest.mark.parametrize("mode", MODES)
    def test_is_the_aggregation(self, mode):
        from verl.trainer.ppo.core_algos import agg_loss

        mask = draw(seed=15)["response_mask"]
        losses = torch.randn(mask.shape, dtype=torch.float64)
        whole = agg_loss(losses, mask, mode, **MINIBATCH)
        weight = token_weight(mask, mode, MINIBATCH, torch.float64)
        assert (torch.where(mask, losses, 0) * weight).sum().item() == pytest.approx(whole.item())

    def test_an_unknown_mode(self):
        with pytest.raises(KlipError, match="loss_agg_mode='mean'"):
            token_weight(torch.ones(1, 2), "mean", {})

    def test_weights_within_a_sequence(self, monkeypatch):
        monkeypatch.setattr(
            "klip.adapters.verl.agg_loss",
            lambda loss_mat, **_: (loss_mat * torch.arange(2.0)).sum(),
        )
        with pytest.raises(KlipError, match="differently"):
            token_weight(torch.ones(1, 2), "by-place", {})
