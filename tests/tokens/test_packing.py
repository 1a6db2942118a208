"""A pack is its padded form: the same loss, gradient, multiplier and diagnostics."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import Context, parse
from klip.tokens import Packing, token_context, token_loss, token_multiplier
from tests.tokens.batches import LEVELS, REDUCERS, draw


def packed(batch, seed):
    """(the batch's tokens as a pack, their places): masked tokens at the ends left out or kept,
    segments in any order, ids with gaps, and some tokens of no sequence."""
    rng = np.random.default_rng(seed)
    rows, length = batch["mask"].shape
    reach = [max(1, int(m.nonzero().max()) + 1) if m.any() else 1 for m in batch["mask"]]
    reach = [int(rng.integers(r, length + 1)) for r in reach]
    ids = np.sort(rng.choice(50, rows, replace=False))  # row i has the i-th smallest
    order = rng.permutation(rows)
    places = [(int(r), c) for r in order for c in range(reach[r])]
    row, column = torch.tensor(places).T
    segments = torch.as_tensor(ids)[row]
    outside = (
        torch.as_tensor(rng.random(len(places)) < 0.1) & ~batch["mask"][row, column] & (column > 0)
    )
    segments[outside] = -1  # which are masked anyway
    return segments, row, column


def flat(x, row, column):
    return x[row, column] if isinstance(x, torch.Tensor) and x.ndim == 2 else x


def as_pack(batch, row, column):
    given_ = {name: getattr(batch["context"], name) for name in batch["context"].given}
    tokens = {
        name: flat(x, row, column).detach() if isinstance(x, torch.Tensor) else x
        for name, x in batch.items()
    }
    tokens["context"] = Context(**{name: flat(x, row, column) for name, x in given_.items()})
    tokens["log_prob"].requires_grad_(True)
    return tokens


def test_every_shape(shape):
    """With every level and every reducer once; hypothesis varies pairs and packings below."""
    reducers = [*REDUCERS.values(), REDUCERS["token-mean"]]
    for i, (level, reducer) in enumerate(zip(LEVELS.values(), reducers, strict=True)):
        check(shape, level, reducer, seed=i)


def check(shape, level, reducer, seed):
    batch = draw(seed, needs=shape.needs | ({"kl"} if needs_kl(shape) else set()))
    segments, row, column = packed(batch, seed)
    pack = as_pack(batch, row, column)
    how = {"shape": shape, "level": level, "reducer": reducer}
    spans = {"late": torch.arange(7).expand(5, 7) > 3}
    wanted = token_loss(**batch, **how, spans=spans)
    found = token_loss(**pack, **how, spans={"late": spans["late"][row, column]}, segments=segments)
    torch.testing.assert_close(found.loss, wanted.loss, rtol=1e-10, atol=1e-12)
    wanted.loss.backward()
    found.loss.backward()
    slope = batch["log_prob"].grad[row, column]
    torch.testing.assert_close(pack["log_prob"].grad, slope, rtol=1e-10, atol=1e-12)
    ours, theirs = found.diagnostics.metrics(), wanted.diagnostics.metrics()
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name


def needs_kl(shape):
    return shape.weighs_kl(torch.ones(1, 1)) or "kl" in shape.needs


@given(
    seed=st.integers(0, 10**6),
    level=st.sampled_from(list(LEVELS.values())),
    reducer=st.sampled_from(list(REDUCERS.values())),
)
def test_any_packing(seed, level, reducer):
    check(parse("clip(eps=by-position(start=0.3, end=0.1))"), level, reducer, seed)


def test_the_multiplier_comes_back_flat():
    batch = draw(3)
    segments, row, column = packed(batch, 3)
    pack = as_pack(batch, row, column)
    names = ("log_prob", "old_log_prob", "advantages", "mask")
    m = token_multiplier(*(batch[name] for name in names), "sapo", level="sequence-mean")
    found = token_multiplier(
        *(pack[name] for name in names), "sapo", level="sequence-mean", segments=segments
    )
    torch.testing.assert_close(found, m[row, column])


def test_a_number_for_each_segment():
    """Advantages, ages and the like may be [S], by ascending id; a row [1, N] is a pack too."""
    new, old = torch.tensor([0.0, 0.5, 0.5, 0.1]), torch.zeros(4)
    segments = torch.tensor([9, 2, 2, 9])
    context = token_context(new, old, age=torch.tensor([0.0, 3.0]))
    loss, diagnostics = token_loss(
        new, old, torch.tensor([1.0, -1.0]), context=context, segments=segments
    )
    assert diagnostics.advantage[:, 0].tolist() == [1.0, -1.0]  # of 2, and of 9
    assert diagnostics.metrics()["age=2-3/tokens"] == 2
    again, _ = token_loss(
        new[None], old[None], torch.tensor([1.0, -1.0]), context=context, segments=segments[None]
    )
    assert torch.equal(loss, again)


def test_an_empty_pack():
    nothing = torch.zeros(3, requires_grad=True)
    loss, _ = token_loss(nothing, torch.zeros(3), torch.zeros(3), segments=-torch.ones(3).long())
    loss.backward()
    assert (loss.item(), nothing.grad.tolist()) == (0.0, [0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"segments": torch.zeros(4)}, "must be ids"),
        ({"segments": torch.zeros(2, 2).long()}, "flatten a batch of packs"),
        ({"old_log_prob": torch.zeros(3)}, r"old_log_prob \[3\] must be \[N\]"),
        ({"advantages": torch.zeros(3)}, r"advantages \[3\] must be \[N\] with N=4 tokens, or"),
        ({"mask": torch.ones(5)}, r"mask \[5\]"),
        ({"spans": {"answer": torch.ones(5)}}, "span answer"),
        ({"context": Context(age=torch.zeros(3))}, "context age"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    usual = {
        "log_prob": torch.zeros(4),
        "old_log_prob": torch.zeros(4),
        "advantages": torch.zeros(2),
        "segments": torch.tensor([0, 0, 1, 1]),
    }
    with pytest.raises(KlipError, match=message):
        token_loss(**(usual | change))


def test_pad_and_flat_are_inverse():
    segments = torch.tensor([3, 1, 3, -1, 1, 1])
    packing = Packing.of(segments)
    x = torch.arange(1.0, 7.0)
    assert packing.pad(x).tolist() == [[2, 5, 6], [1, 3, 0]]
    assert packing.flat(packing.pad(x)).tolist() == [1, 2, 3, 0, 5, 6]
