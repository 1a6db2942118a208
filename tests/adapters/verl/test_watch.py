"""verl's own losses, watched: value and gradient are theirs, and what is said of tokens is true."""

import pytest
import torch
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn

from klip.adapters.verl import pooled_by_verl, token_weight
from klip.adapters.verl_watch import asked, looks, multiplier, watch_losses, watched
from klip.errors import KlipError
from klip.tokens import token_multiplier
from tests.adapters.verl.batches import MODES, actor, call, draw
from tests.adapters.verl.test_verl import SAME

NAMES = ("log_prob", "old_log_prob", "advantages", "response_mask")


@pytest.fixture
def watching(monkeypatch):
    """Each loss of verl's, watched beside two shapes; the registry is as before afterwards."""
    monkeypatch.setenv("KLIP_WATCH", "sapo; is")
    known = dict(POLICY_LOSS_REGISTRY)
    yield lambda name: watched(name, known[name], pooled_by_verl)
    assert known == POLICY_LOSS_REGISTRY


def arguments(name, batch, mode="token-mean", **fields):
    return {**batch, "loss_agg_mode": mode, "config": actor(name, **fields)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*SAME, "clip_cov", "kl_cov"])
def test_value_and_gradient_are_verls_bit_for_bit(watching, name, mode):
    results = []
    for loss in (get_policy_loss_fn(name), watching(name)):
        torch.manual_seed(0)  # clip_cov draws
        batch = draw(seed=3, weights=True)
        value, metrics = loss(**arguments(name, batch, mode, **SAME.get(name, ({},))[0]))
        (slope,) = torch.autograd.grad(value, batch["log_prob"])
        results.append((value, slope, metrics, torch.rand(1)))
    (value, slope, metrics, drawn), found = results
    assert torch.equal(value, found[0])
    assert torch.equal(slope, found[1])
    assert torch.equal(drawn, found[3])
    assert metrics.items() <= found[2].items()
    assert {"klip/zeroed", "klip/instead/sapo/zeroed", "klip/instead/is/restored_mass"} <= (
        found[2].keys() - metrics.keys()
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [name for name in SAME if name != "klip"])
def test_what_is_measured_is_the_shape(name, mode):
    fields, shape, level = SAME[name]
    batch = draw(seed=5, weights=True)
    found = multiplier(get_policy_loss_fn(name), arguments(name, batch, mode, **fields))
    wanted = token_multiplier(*(batch[key] for key in NAMES), shape, level=level)
    assert (found - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_what_would_have_been_done_is_what_is_done(configure):
    batch = draw(seed=6)
    others = asked("sapo; spo; clip(eps=0.05)")
    _, did = looks("vanilla", get_policy_loss_fn("vanilla"), others, arguments("vanilla", batch))
    weight = token_weight(batch["response_mask"], "token-mean", {})
    for name in others:
        configure(name)
        _, gradient, _ = call("klip", batch)
        assert torch.allclose(gradient, -did[name].m * weight, rtol=1e-6, atol=1e-12)


def test_what_clip_zeroed_is_what_no_region_would_have_left(watching):
    metrics = watching("vanilla")(**arguments("vanilla", draw(seed=7)))[1]
    assert metrics["klip/kill"] == pytest.approx(metrics["actor/pg_clipfrac"], abs=1e-6)
    assert metrics["klip/instead/is/zeroed"] == 0
    restored = metrics["klip/instead/is/restored_mass"]
    assert restored == pytest.approx(metrics["klip/zeroed_mass"], rel=1e-5)
    assert 0 < metrics["klip/instead/sapo/restored_mass"] < restored


def test_nothing_is_watched_unless_asked():
    before = dict(POLICY_LOSS_REGISTRY)
    watch_losses(pooled_by_verl)
    assert before == POLICY_LOSS_REGISTRY


@pytest.mark.parametrize(
    ("text", "message"),
    [("sap", "no shape is called 'sap'"), ("age-conditioned", "needs age"), ("sapo sapo", "sapo")],
)
def test_what_cannot_be_asked_about(text, message):
    with pytest.raises(KlipError, match=message) as caught:
        asked(text)
    assert "write shapes with ; between them" in str(caught.value)
