"""The gradient is the multiplier, the value is the objective, and the mask hides everything."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.ppo.update import barrier
from klip.shapes import (
    KL,
    SAPO,
    Clip,
    Context,
    FromEnd,
    ImportanceSampling,
    KLk1,
    KLk2,
    KLk3,
    MissingContext,
    PerSample,
    Ramp,
    Truncate,
    catalogue,
)
from klip.tokens import OPSM, SequenceMean, token_loss, token_multiplier
from klip.tokens.context import in_dtype
from tests.shapes.samples import RANGES, seeds
from tests.tokens.batches import LEVELS, REDUCERS, draw, gradient, reduced, with_kl


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_gradient_is_the_multiplier_over_the_denominator(shape, reducer, dtype):
    batch = with_kl(draw(3, dtype=dtype, needs=shape.needs))
    loss, seen = token_loss(shape=shape, reducer=REDUCERS[reducer], **batch)
    log_prob = batch["log_prob"].detach()
    leaf = torch.zeros_like(log_prob, requires_grad=True)
    weight = gradient(reduced(reducer, leaf, batch["mask"]), leaf)
    # The shape itself, called apart, on the tokens that count.
    place = batch["mask"].cumsum(-1) - 1
    known = {
        "old_log_prob": batch["old_log_prob"],
        "mask": batch["mask"].to(dtype),
        "position": place.to(dtype),
        "length": batch["mask"].sum(-1, keepdim=True).to(dtype),
        "kl": batch["state_kl"],
    }
    context = Context(
        **{n: getattr(batch["context"], n) if n in batch["context"].given else known[n]
           for n in shape.needs}
    )  # fmt: skip
    shape = in_dtype(shape, dtype)
    m = shape.multiplier(log_prob - batch["old_log_prob"], batch["advantages"], context)
    m = torch.where(batch["mask"], m, 0.0)
    assert torch.equal(seen.m, m)  # bit for bit, and Clip's short way among them
    found = gradient(loss, batch["log_prob"])
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found, -m * weight, rtol=tolerance, atol=0.0)


@given(seeds, st.sampled_from(sorted(LEVELS)), st.sampled_from(sorted(REDUCERS)))
@settings(max_examples=40)
def test_what_lies_under_the_mask_changes_nothing(seed, level, reducer):
    shape = Truncate() * Clip() + KLk3(b=0.1)
    gates, needs = [OPSM(delta=0.01)], {"behaviour_log_ratio", "age"}
    batch = draw(seed, needs=needs)
    mask, rng = batch["mask"], np.random.default_rng(seed)

    def spoilt(x):
        junk = rng.choice([math.nan, math.inf, -math.inf, 1e30, -3.0], x.shape)
        return torch.where(mask, x.detach(), torch.as_tensor(junk, dtype=x.dtype))

    other = batch | {
        name: spoilt(batch[name]) for name in ("log_prob", "old_log_prob", "advantages")
    }
    other["log_prob"].requires_grad_(True)
    other["context"] = Context(**{n: spoilt(getattr(batch["context"], n)) for n in needs})
    how = {"level": LEVELS[level], "reducer": REDUCERS[reducer], "gates": gates}
    spans = {"half": torch.rand(mask.shape) < 0.5}
    one = token_loss(shape=shape, spans=spans, **how, **batch)
    two = token_loss(shape=shape, spans=spans, **how, **other)
    assert torch.equal(one.loss, two.loss)
    left, right = gradient(one.loss, batch["log_prob"]), gradient(two.loss, other["log_prob"])
    assert torch.equal(left, right)
    assert not left[~mask].any()
    assert one.diagnostics.metrics() == two.diagnostics.metrics()
    assert one.diagnostics.warnings() == two.diagnostics.warnings()


def test_every_shape_ignores_what_lies_under_the_mask(shape):
    batch = with_kl(draw(5, needs=shape.needs))
    mask = batch["mask"]

    def spoilt(x):
        return torch.where(mask, x.detach(), math.nan)

    names = ("log_prob", "old_log_prob", "advantages", "state_kl")
    other = batch | {name: spoilt(batch[name]) for name in names}
    other["log_prob"].requires_grad_(True)
    given = batch["context"].given
    other["context"] = Context(**{n: spoilt(getattr(batch["context"], n)) for n in given})
    one, two = (token_loss(shape=shape, **b).loss for b in (batch, other))
    assert torch.equal(one, two)
    assert torch.equal(gradient(one, batch["log_prob"]), gradient(two, other["log_prob"]))


def test_nothing_at_all_counts():
    batch = draw(0) | {"mask": torch.zeros(5, 7, dtype=torch.bool)}
    for reducer in REDUCERS.values():
        loss, seen = token_loss(reducer=reducer, **batch)
        assert loss.item() == 0
        assert not gradient(loss, batch["log_prob"]).any()
        assert "the mask is empty" in seen.warnings()[0]
        assert seen.metrics()["tokens"] == 0
    empty = torch.zeros(0, 4, requires_grad=True)
    assert token_loss(empty, empty.detach(), torch.zeros(0)).loss.item() == 0


ARITHMETIC = [
    "is", "reinforce", "clip", "clip-phi", "per-sample", "clip-higher", "dual-clip", "strict-clip",
    "ramp", "asymmetric", "ppo-rb", "tr-ppo", "tr-ppo-rb", "truly-ppo", "pspo", "cispo", "tis",
    "dppo-tv", "gppo", "topr", "kl", "spma", "spma-k1", "sppo", "aspo", "dcpo", "age-conditioned",
]  # fmt: skip
"""Shapes of which the ratio is the only transcendental part, and no product is added to."""


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_one_token_a_sequence_has_the_multiplier_of_the_trainer(name):
    """As klip.ppo.update computes it: compiled by XLA in float32, between barriers.

    What is arithmetic in w alone agrees bit for bit. Elsewhere the frameworks' own functions differ
    in their last bit, or XLA fuses a product and a sum, which rounds once where PyTorch does twice.
    """
    shape, rng, n = catalogue()[name](), np.random.default_rng(1), 4096
    old = -rng.uniform(0.05, 4, n).astype(np.float32)
    new = (old + rng.normal(0, 0.3, n)).astype(np.float32)
    advantage = rng.normal(0, 1, n).astype(np.float32)
    fields = {k: rng.uniform(*RANGES[k], n).astype(np.float32) for k in sorted(shape.needs)}
    fields |= {"old_log_prob": old} if "old_log_prob" in fields else {}

    @jax.jit
    def trainers(new, advantage, fields):
        log_ratio, advantage = barrier((new - old, advantage))
        m = shape.multiplier(log_ratio, advantage, Context(**fields))
        return barrier(jnp.asarray(m, jnp.float32))

    theirs = np.asarray(trainers(new, advantage, fields))
    column = {k: torch.from_numpy(v)[:, None] for k, v in fields.items()}
    x, y = torch.from_numpy(new)[:, None], torch.from_numpy(old)[:, None]
    _, seen = token_loss(
        x, y, torch.from_numpy(advantage), torch.ones(n, 1), shape, Context(**column),
        state_kl=torch.zeros(n, 1),
    )  # fmt: skip
    ours = seen.m[:, 0].numpy()
    if name in ARITHMETIC:
        np.testing.assert_array_equal(ours, theirs)
    scale = np.abs(np.exp(new - old) * advantage) + np.abs(theirs) + 1
    assert (np.abs(ours - theirs) / scale).max() < 2e-5


@pytest.mark.parametrize("penalty", [KLk1(b=0.1), KLk2(b=0.1), KLk3(b=0.1)], ids=str)
def test_gates_and_penalties_given_apart_are_the_algebra(penalty):
    batch = draw(4, needs={"behaviour_log_ratio"})
    apart = token_loss(shape=Clip(), gates=[Truncate()], penalties=[penalty], **batch)
    whole = token_loss(shape=Truncate() * Clip() + penalty, **batch)
    assert torch.equal(apart.diagnostics.m, whole.diagnostics.m)
    assert torch.equal(apart.loss, whole.loss)


def test_gates_and_penalties_see_the_token_whatever_the_level():
    batch = draw(4)
    plain = token_loss(level=SequenceMean(), **batch).diagnostics.m
    with_penalty = token_loss(level=SequenceMean(), penalties=[KLk2(b=0.1)], **batch).diagnostics.m
    moved = batch["log_prob"].detach() - batch["old_log_prob"]
    expected = torch.where(batch["mask"], -0.1 * moved, 0.0)
    torch.testing.assert_close(with_penalty - plain, expected, rtol=1e-9, atol=1e-12)


def test_a_closed_form_kl_is_carried_by_its_own_channel():
    batch = draw(6)
    with pytest.raises(KlipError, match="state_kl"):
        token_loss(shape=KL(b=0.5), **batch)
    kl = torch.full((5, 7), 0.1, dtype=torch.float64, requires_grad=True)
    for how in ({"shape": KL(b=0.5)}, {"shape": ImportanceSampling(), "penalties": [KL(b=0.5)]}):
        loss, _ = token_loss(**how, **(batch | {"state_kl": kl}))
        expected = 0.5 * batch["mask"].double() / batch["mask"].sum()
        torch.testing.assert_close(gradient(loss, kl), expected, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_computed_in_float32(dtype):
    batch = draw(1, dtype=dtype)
    loss, seen = token_loss(**batch)
    assert loss.dtype == seen.m.dtype == torch.float32
    assert gradient(loss, batch["log_prob"]).dtype == dtype
    names = ("log_prob", "old_log_prob", "advantages")
    wide = batch | {n: batch[n].detach().float() for n in names}
    assert torch.equal(token_loss(**wide).loss, loss)


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["log_prob", "old_log_prob", "advantages", "behaviour"])
def test_what_is_not_finite_is_refused_or_dropped(junk, where):
    shape = Truncate() * Clip()
    batch = draw(9, needs={"behaviour_log_ratio"})
    name = "context behaviour_log_ratio" if where == "behaviour" else where
    with torch.no_grad():
        value = batch["context"].behaviour_log_ratio if where == "behaviour" else batch[where]
        value[0, 3] = junk
    if where != "behaviour" or junk is math.nan:  # an infinite weight is cut to the cap
        with pytest.raises(KlipError, match=rf"{name}.* sequence 0, token 3 \(1 tokens in all\)"):
            token_loss(shape=shape, **batch)
    dropped = token_loss(shape=shape, nonfinite="drop", **batch)
    mask = batch["mask"].clone()
    mask[0, 3] = False
    masked = token_loss(shape=shape, **(batch | {"mask": mask}))
    assert torch.equal(dropped.loss, masked.loss)
    found = gradient(dropped.loss, batch["log_prob"])
    assert torch.equal(found, gradient(masked.loss, batch["log_prob"]))
    assert found.isfinite().all()
    assert dropped.diagnostics.metrics()["dropped"] == 1
    assert "1 tokens were left out" in dropped.diagnostics.warnings()[0]


def test_the_value_of_a_shape_without_objective_is_that_of_its_multiplier():
    batch = draw(1)
    loss, seen = token_loss(shape=Ramp(), **batch)
    assert loss.item() == pytest.approx(-(seen.m.sum() / batch["mask"].sum()).item())


def test_diagnostics_do_not_change_the_loss():
    batch = draw(1, needs={"age"})
    on, off = (token_loss(diagnostics=flag, **batch) for flag in (True, False))
    assert off.diagnostics is None
    assert torch.equal(on.loss, off.loss)


def test_advantages_of_a_sequence_are_those_of_its_tokens():
    batch = draw(1)
    row = batch["advantages"][:, 0]
    wide = row[:, None].expand(5, 7)
    for shape in (Clip(), PerSample(), SAPO()):
        one, two = (token_loss(shape=shape, **(batch | {"advantages": a})) for a in (row, wide))
        assert torch.equal(one.diagnostics.m, two.diagnostics.m)
        assert torch.equal(one.loss, two.loss)


def test_mistakes_are_named():
    x = torch.zeros(2, 3)
    with pytest.raises(KlipError, match=r"old_log_prob \[2, 2\] must be \[B, T\]"):
        token_loss(x, x[:, :2], torch.zeros(2))
    with pytest.raises(KlipError, match=r"advantages \[3\] must be \[B\]"):
        token_loss(x, x, torch.zeros(3))
    with pytest.raises(KlipError, match=r"log_prob \[3\]"):
        token_loss(x[0], x[0], torch.zeros(3))
    with pytest.raises(KlipError, match="nonfinite='ignore'"):
        token_loss(x, x, torch.zeros(2), nonfinite="ignore")
    with pytest.raises(MissingContext, match="behaviour_log_ratio"):
        token_loss(x, x, torch.zeros(2), shape=Truncate() * Clip())
    with pytest.raises(KlipError, match=r"context age \[3, 1\]"):
        token_loss(x, x, torch.zeros(2), None, Clip(), Context(age=torch.zeros(3)))


@pytest.mark.parametrize("level", LEVELS)
def test_the_multiplier_alone(level):
    batch = draw(3, needs={"behaviour_log_ratio"})
    del batch["state_kl"]
    how = {"level": LEVELS[level], "gates": [Truncate()], "penalties": [KLk2(b=0.1)]}
    m = token_multiplier(shape=Ramp(), **how, **batch)
    assert not m.requires_grad
    assert torch.equal(m, token_loss(shape=Ramp(), **how, **batch).diagnostics.m)
    with pytest.raises(KlipError, match="state_kl"):
        token_multiplier(shape=KL(), **batch)
    with torch.no_grad():
        batch["log_prob"][0, 2] = math.inf
    with pytest.raises(KlipError, match="sequence 0, token 2"):
        token_multiplier(shape=Clip(), **batch)


def test_a_scaled_loss_has_a_scaled_gradient():
    batch = draw(3)
    once, thrice = (gradient(k * token_loss(**batch).loss, batch["log_prob"]) for k in (1, 3))
    torch.testing.assert_close(thrice, 3 * once, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_can_be_looked_at_without_gradients(mode):
    batch = draw(3)
    with mode():
        loss, seen = token_loss(**batch)
    assert torch.equal(loss, token_loss(**batch).loss)
    assert seen.metrics()["tokens"] == batch["mask"].sum()


@pytest.mark.parametrize("nonfinite", ["raise", "drop"])
def test_a_dropped_token_has_no_place(nonfinite):
    """Positions are counted among the tokens that count."""
    shape = Clip(eps=FromEnd(tail=0.01, body=5.0, count=1))
    old, new = torch.zeros(1, 3), torch.full((1, 3), 0.1)
    mask = torch.tensor([[True, True, nonfinite == "drop"]])
    new[0, 2] = math.nan
    m = token_multiplier(new, old, torch.ones(1), mask, shape, nonfinite=nonfinite)
    assert (m != 0).tolist() == [[True, False, False]]
