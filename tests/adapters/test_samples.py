"""A flat batch has the gradient of the shape, and refuses what it cannot know."""

import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.adapters.samples import check_recorded, policy_loss, together
from klip.errors import KlipError
from klip.shapes import Clip, Context, Shape, catalogue, parse
from tests.shapes.samples import RANGES


def batch(seed, n=64, dtype=torch.float64, reach=0.4):
    rng = np.random.default_rng(seed)
    old = -rng.uniform(0.05, 3.0, n)
    new = old + rng.normal(0, reach, n)
    tensors = [torch.as_tensor(x, dtype=dtype) for x in (new, old, rng.normal(0, 1, n))]
    return tensors[0].requires_grad_(True), *tensors[1:]


def known(shape, n, seed=0):
    """What a shape needs beyond the old log-prob, `[N]`, and the KL apart."""
    rng = np.random.default_rng(seed)
    fields = {
        name: torch.as_tensor(rng.uniform(*RANGES[name], n))
        for name in sorted(shape.needs - {"old_log_prob", "kl"})
    }
    return Context(**fields), torch.as_tensor(rng.uniform(0, 0.1, n))


@pytest.mark.parametrize("cls", catalogue(Shape).values(), ids=lambda cls: cls.name)
def test_the_gradient_is_the_multiplier(cls):
    shape = cls()
    new, old, advantages = batch(1)
    context, kl = known(shape, 64)
    loss, _ = policy_loss(new, old, advantages, shape, context, state_kl=kl)
    (gradient,) = torch.autograd.grad(loss, new)
    fields = {name: getattr(context, name) for name in context.given}
    everything = Context(**fields | {"old_log_prob": old, "kl": kl})
    expected = shape.multiplier((new - old).detach(), advantages, everything)
    torch.testing.assert_close(gradient, -expected / 64, rtol=1e-12, atol=0)


@given(seed=st.integers(0, 10_000), eps=st.floats(0.01, 0.9), power=st.integers(0, 7))
def test_the_clip_is_the_loss_that_scripts_have(seed, eps, power):
    """In value and gradient: to the last bit where the batch is a power of two."""
    new, old, advantages = batch(seed, 2**power)
    ratio = torch.exp(new - old)
    clipped = torch.clamp(ratio, 1 - eps, 1 + eps)
    plain = torch.max(-advantages * ratio, -advantages * clipped).mean()
    (expected,) = torch.autograd.grad(plain, new)
    ours, _ = policy_loss(new, old, advantages, Clip(eps=eps))
    (found,) = torch.autograd.grad(ours, new)
    assert torch.equal(found, expected)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-15)


def test_a_closed_form_kl_has_its_gradient():
    new, old, advantages = batch(2)
    kl = torch.full((64,), 0.1, dtype=torch.float64, requires_grad=True)
    loss, _ = policy_loss(new, old, advantages, parse("kl(b=3)"), state_kl=kl)
    (gradient,) = torch.autograd.grad(loss, kl)
    torch.testing.assert_close(gradient, torch.full_like(kl, 3 / 64))


@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_minibatches_together_say_what_the_whole_says(seed, sizes):
    new, old, advantages = batch(seed, sum(sizes))
    shape = Clip(low=0.1, high=0.3)
    parts = [
        policy_loss(*rows, shape).diagnostics
        for rows in zip(*(x.split(sizes) for x in (new, old, advantages)), strict=True)
    ]
    whole = policy_loss(new, old, advantages, shape).diagnostics
    found, expected = together(parts).metrics(), whole.metrics()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_minibatches_with_bands_of_their_own():
    """A threshold gives each sample an edge; those of each minibatch go with it."""
    new, old, advantages = batch(5)
    shape = parse("clip(eps=by-entropy(below=0.1, above=0.4, cut=1.0))")
    entropy = torch.linspace(0, 2, 64, dtype=torch.float64)
    parts = [
        policy_loss(
            new[rows], old[rows], advantages[rows], shape, Context(entropy=entropy[rows])
        ).diagnostics
        for rows in (slice(0, 20), slice(20, 64))
    ]
    whole = policy_loss(new, old, advantages, shape, Context(entropy=entropy)).diagnostics
    assert torch.equal(together(parts).sets()[1], whole.sets()[1])
    with pytest.raises(KlipError, match="no minibatch"):
        together([])


@pytest.mark.parametrize("spelling", ["position-aware", "clip(eps=from-end)"])
def test_a_sample_has_no_place_in_a_sequence(spelling):
    """It would silently be the first of one."""
    with pytest.raises(KlipError, match="needs length"):
        policy_loss(*batch(1), parse(spelling))


def test_needs_that_nobody_met():
    with pytest.raises(KlipError, match="needs age"):
        policy_loss(*batch(1), parse("age-conditioned"))
    with pytest.raises(KlipError, match="closed-form KL"):
        policy_loss(*batch(1), parse("kl(b=1)"))
    with pytest.raises(KlipError, match="needs kl"):
        policy_loss(*batch(1), parse("tr-ppo"))


def test_a_shape_may_be_spelled():
    new, old, advantages = batch(1)
    spelled = policy_loss(new, old, advantages, "clip(eps=0.1)").loss
    assert spelled == policy_loss(new, old, advantages, parse("clip(eps=0.1)")).loss


@pytest.mark.parametrize("shape", [0.2, None, parse("adaptive-kl"), parse])
def test_what_is_no_shape_is_refused(shape):
    with pytest.raises(KlipError, match=r"must be a shape or its spelling"):
        policy_loss(*batch(1), shape)
    with pytest.raises(KlipError, match="'adaptive-kl' is not a shape"):
        policy_loss(*batch(1), "adaptive-kl")


def test_batches_of_other_dimensions_are_refused():
    new, old, advantages = batch(1)
    with pytest.raises(KlipError, match=r"log_prob \[32, 2\] must be \[N\]"):
        policy_loss(new.reshape(32, 2), old, advantages)
    with pytest.raises(KlipError, match=r"advantages \[64, 1\] must be \[N\]"):
        policy_loss(new, old, advantages[:, None])
    with pytest.raises(KlipError, match=r"old_log_prob \[63\] must be \[N\]"):
        policy_loss(new, old[1:], advantages)


def test_log_probs_that_nobody_stored_are_refused():
    """A buffer of zeros is the most frequent mistake; zeros that are true are all right."""
    new, old, advantages = batch(1)
    with pytest.raises(KlipError, match="all 64 old log-probs are 0"):
        policy_loss(new, torch.zeros_like(old), advantages)
    check_recorded(torch.full((4,), -1e-4), torch.zeros(4))
    check_recorded(new, old)


def test_numbers_that_are_not_finite_are_refused():
    new, old, advantages = batch(1)
    with pytest.raises(KlipError, match=r"advantages is not finite.*: a smaller learning rate"):
        policy_loss(new, old, advantages / 0)


EXAMPLE = Path(__file__).parents[2] / "examples" / "cleanrl_style.py"
PLAIN = """\
ratio = torch.exp(log_prob - old_log_prob)
clipped = torch.clamp(ratio, 0.8, 1.2)
pg_loss = torch.max(-advantage * ratio, -advantage * clipped).mean()
_, stats = policy_loss(log_prob, old_log_prob, advantage, shape)  # for its numbers alone
"""


def example(source, **options):
    """Run the script, or an edited one, as its own module."""
    module = ModuleType("cleanrl_style")
    sys.modules[module.__name__] = module  # where a dataclass looks for its annotations
    exec(compile(source, str(EXAMPLE), "exec"), module.__dict__)
    del sys.modules[module.__name__]
    return module.train(module.Args(**options))


def test_the_script_with_its_own_clip_is_the_script_with_ours():
    """The marked loss line, written out by hand, gives the same agent."""
    source = EXAMPLE.read_text(encoding="utf-8")
    marked = [line for line in source.splitlines() if line.endswith("# klip")]
    assert len(marked) == 3
    pad = re.match(" *", marked[-1])[0]
    plain = source.replace(marked[-1], textwrap.indent(PLAIN.rstrip(), pad))
    ours, rows = example(source, steps=2048)
    theirs, _ = example(plain, steps=2048)
    assert np.mean([row["zeroed"] for row in rows]) > 0.01
    for x, y in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-6)


def test_the_script_takes_any_shape_and_learns():
    source = EXAMPLE.read_text(encoding="utf-8")
    clip, _ = example(source, steps=512)
    other, _ = example(source, steps=512, shape="reinforce")
    pairs = zip(clip.parameters(), other.parameters(), strict=True)
    assert any(not torch.equal(x, y) for x, y in pairs)
    _, rows = example(source, steps=8192, shape="spo(eps=0.2)")
    assert rows[-1]["return"] > 2 * rows[0]["return"]
