"""What others would have done to a batch is what they do when they are the loss."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import Clip
from klip.theory.diagnostics import FATES
from klip.tokens import TokenRegion, beside, pooled, token_loss
from klip.tokens.instead import regions, says
from tests.tokens.batches import draw

SHAPES = ("sapo", "spo", "cispo(cap=1.1)", "is", "clip(eps=0.05)")


def did(batch, shape, **more):
    return token_loss(**batch, shape=shape, **more).diagnostics


@given(seed=st.integers(0, 10**6), own=st.sampled_from(SHAPES), other=st.sampled_from(SHAPES))
def test_would_have_is_does(seed, own, other):
    batch = draw(seed)
    ours, others = did(batch, own), did(batch, other)
    row, alone = beside(ours, {"other": others}).metrics(), others.metrics()
    for name, value in ours.metrics().items():
        assert row[name] == pytest.approx(value, nan_ok=True)
    would = {
        name.removeprefix("instead/other/"): value
        for name, value in row.items()
        if name.startswith("instead/other/") and "of_zeroed" not in name
    }
    assert len(would) > 20
    assert would == {name: pytest.approx(alone[name]) for name in would}
    zeroed = ours.active & (ours.observed.fate == 2)
    assert row["instead/other/of_zeroed/tokens"] == float(zeroed.sum())
    if bool(zeroed.any()):
        shares = [row[f"instead/other/of_zeroed/{fate}"] for fate in FATES]
        assert sum(shares) == pytest.approx(1)
        mass = (others.observed.surrogate.abs()[zeroed]).sum()
        left = others.m.abs()[zeroed].sum() / mass
        assert row["instead/other/of_zeroed/pull"] == pytest.approx(float(left))


def test_batches_pool_to_one():
    batch = draw(3, rows=6)
    whole = beside(did(batch, "clip"), {"sapo": did(batch, "sapo")}).metrics()
    halves = []
    for rows in (slice(0, 3), slice(3, 6)):
        part = {k: x[rows] if isinstance(x, torch.Tensor) else x for k, x in batch.items()}
        halves.append(beside(did(part, "clip"), {"sapo": did(part, "sapo")}))
    both = pooled(halves).metrics()
    for name in ("zeroed", "instead/sapo/weakened", "instead/sapo/of_zeroed/pull"):
        assert both[name] == pytest.approx(whole[name])


def test_sentences():
    batch = draw(3)
    row = beside(did(batch, "clip"), {"is": did(batch, "is")}).metrics()
    (line,) = says(row, "clip")
    assert line.startswith("is would have zeroed 0 % of the tokens (clip: ")
    assert line.endswith("left 100 % of the gradient that clip zeroed")
    same = token_loss(batch["old_log_prob"], batch["old_log_prob"], batch["advantages"])
    (line,) = says(beside(same.diagnostics, {"is": same.diagnostics}).metrics(), "clip")
    assert "left" not in line  # nothing was zeroed


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (["clip", "clip"], "two regions are called clip"),
        ([TokenRegion.read("clip", "sequence-mean")], "has no name of its own"),
        ({"a/b": "clip"}, "without a slash"),
        ({" ": "clip"}, "without a slash"),
        (["clap"], "no shape is called 'clap'"),
    ],
)
def test_names_that_are_refused(others, message):
    with pytest.raises(KlipError, match=message):
        regions(others)


def test_one_alone_needs_no_list():
    assert list(regions("sapo")) == ["sapo"]
    assert list(regions(Clip())) == ["clip(eps=0.2)"]


def test_entropies_divide_the_tokens():
    batch = draw(3, needs=("entropy",))
    found = did(batch, "clip")
    row = found.metrics()
    parts = [name for name in row if name.startswith("entropy=") and name.endswith("/tokens")]
    assert len(parts) > 2
    assert sum(row[name] for name in parts) == row["tokens"]
    above = found.active & (found.entropy >= 0.5) & (found.entropy < 1.0)
    assert row["entropy=0.5-1/tokens"] == float(above.sum())
