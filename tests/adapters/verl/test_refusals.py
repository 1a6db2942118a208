"""What would make a shape silently wrong or inert in verl is an error that names the way out."""

import warnings

import pytest
import torch

from klip.errors import KlipError
from tests.adapters.verl.batches import actor, call, draw


def refused(config=None, **changed):
    with pytest.raises(KlipError) as raised:
        call("klip", draw(seed=1) | changed, config=config or actor())
    return str(raised.value)


def test_no_shape():
    said = refused()
    assert "KLIP_SHAPE" in said
    assert "KLIP_CONFIG" in said


@pytest.mark.parametrize(
    ("shape", "missing"),
    [
        ("age-conditioned", "age"),
        ("max-age * clip", "age"),
        ("clip(eps=by-entropy(below=0.2, above=0.4))", "entropy"),
        ("tr-ppo", "kl"),
        ("topr(sign=reward)", "reward"),
        ("clip(eps=by-step)", "step"),
        ("truncate(cap=2) * clip", "algorithm.rollout_correction.rollout_is"),
        ("icepop * clip", "algorithm.rollout_correction.rollout_is"),
        ("klip.tokens.penalties:ReferenceKL(b=0.1)", "use_kl_loss"),
        ("kl(b=1)", "closed-form KL"),
        ("clip + kl(b=1)", "closed-form KL"),
        ("adaptive-kl", "adapts between updates"),
        ("clap", "did you mean clip"),
    ],
)
def test_shapes_that_verl_cannot_serve(configure, shape, missing):
    configure(shape)
    said = refused()
    assert missing in said
    assert said.startswith("KLIP_SHAPE")


@pytest.mark.parametrize(
    "shape", ["clip(eps=by-position(start=0.3, end=0.1))", "position-aware", "dcpo", "trgppo"]
)
def test_shapes_whose_context_follows_from_the_batch(configure, shape):
    configure(shape)
    loss, gradient, _ = call("klip", draw(seed=2))
    assert bool(torch.isfinite(loss))
    assert bool(gradient.any())


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ("clip(eps=0.2)", {"clip_ratio_high": 0.28}),
        ("sapo", {"clip_ratio": 0.3}),
        ("clip(low=0.1, high=0.28)", {"clip_ratio_low": 0.3}),
        ("clip", {"clip_ratio_c": 10.0}),
        ("dual-clip(cap=3)", {"clip_ratio_c": 10.0}),
        ("clip", {"tau_pos": 2.0}),
        ("sapo", {"tau_neg": 2.0}),
        ("cispo(cap=5)", {"clip_ratio_high": 5.0}),  # an offset in verl, a ratio here
    ],
)
def test_a_number_for_another_loss(configure, shape, fields):
    configure(shape)
    ((name, value),) = fields.items()
    said = refused(actor(**fields))
    assert f"actor.{name}={value:g}" in said
    assert "default" in said


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ("clip(low=0.2, high=0.28)", {"clip_ratio_high": 0.28}),
        ("clip(eps=0.3)", {"clip_ratio": 0.3, "clip_ratio_low": 0.3, "clip_ratio_high": 0.3}),
        ("clip(eps=0.3)", {"clip_ratio_low": None, "clip_ratio_high": None}),
        ("dual-clip(cap=10)", {"clip_ratio_c": 10.0}),
        ("dual-clip(cap=10) + kl-k3(b=0.1)", {"clip_ratio_c": 10.0}),
        ("sapo(tau_positive=2)", {"tau_pos": 2.0}),
        ("cispo(floor=0, cap=1.28)", {"clip_ratio_low": 1.0, "clip_ratio_high": 0.28}),
    ],
)
def test_a_number_that_the_shape_says_too(configure, shape, fields):
    configure(shape)
    loss, gradient, _ = call("klip", draw(seed=1), config=actor(**fields))
    assert loss.isfinite()
    assert gradient.any()


@pytest.mark.parametrize("name", ["dro_beta", "ppo_kl_coef", "clip_cov_ratio", "kl_cov_ratio"])
def test_a_number_of_another_loss_mode(configure, name):
    configure("clip")
    assert f"actor.policy_loss.{name}=0.5" in refused(actor(policy_loss={name: 0.5}))


def test_weights_of_another_shape(configure):
    configure("clip")
    assert "[12]" in refused(rollout_is_weights=torch.ones(12))


def test_an_unknown_aggregation(configure):
    configure("clip")
    with pytest.raises(KlipError, match="loss_agg_mode='by-prompt'"):
        call("klip", draw(seed=1), "by-prompt")


def test_no_config(configure):
    from klip.adapters.verl import policy_loss

    configure("clip")
    with pytest.raises(KlipError, match="config"):
        policy_loss(**draw(seed=1))


def test_numbers_that_are_not_finite(configure):
    batch = draw(seed=1)
    spoilt = batch["log_prob"].detach().clone()
    spoilt[0, 2] = float("nan")
    configure("clip")
    assert "sequence 0, token 2" in refused(log_prob=spoilt.requires_grad_(True))
    pytest.MonkeyPatch().delenv("KLIP_SHAPE")
    configure("clip", nonfinite='"drop"')
    _, gradient, _ = call("klip", batch | {"log_prob": spoilt})
    assert bool(torch.isfinite(gradient).all())


class TestInert:
    """The most frequent surprise: every ratio is 1, and no shape matters."""

    def same(self):
        batch = draw(seed=1)
        return batch | {"log_prob": batch["old_log_prob"].clone().requires_grad_(True)}

    def test_is_said(self, configure):
        configure("clip")
        with pytest.warns(UserWarning, match="every ratio of this batch is 1") as said:
            _, _, metrics = call("klip", self.same())
        assert len(said) == 1
        assert metrics["klip/inert"] == 1

    def test_is_said_once(self, configure):
        configure("clip")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("default")
            for _ in range(3):
                call("klip", self.same())
        assert len(said) == 1

    def test_is_not_said_where_epochs_follow(self, configure):
        configure("clip")  # a warning would be an error here
        assert call("klip", self.same(), config=actor(ppo_epochs=2))[2]["klip/inert"] == 1

    def test_is_not_said_of_ratios_that_move(self, configure):
        configure("clip")
        assert call("klip", draw(seed=1))[2]["klip/inert"] == 0
