"""Old tokens: what the batch says of them, by brute force, and two ratios that are kept apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.shapes import Clip, Context, GePPO, MissingContext
from klip.tokens import SequenceMean, token_context, token_loss, token_multiplier
from klip.tokens.old import of_batch, second_moment, two_ratios

torch = pytest.importorskip("torch")

seeds = st.integers(0, 2**32 - 1)
ALL = frozenset({"effective_size", "deviation", "second_moment"})


def log_probs(seed, rows=4, length=9):
    """The sampler's, the start's and the new ones `[B, T]`, advantages `[B]`, and a ragged mask."""
    rng = np.random.default_rng(seed)
    sampler = -rng.uniform(0.1, 3, (rows, length))
    start = sampler + rng.normal(0, 0.3, sampler.shape)
    new = start + rng.normal(0, 0.2, sampler.shape)
    mask = rng.random(sampler.shape) < 0.8
    mask[0], mask[-1] = True, False
    return *map(torch.tensor, (sampler, start, new, rng.choice([-1.0, 1.0], rows))), torch.tensor(
        mask
    )


@settings(max_examples=20)
@given(seed=seeds)
def test_facts_of_a_batch_by_brute_force(seed):
    sampler, start, new, _, mask = log_probs(seed)
    context = token_context(new, start, behaviour_log_prob=sampler)
    fields = {name: getattr(context, name) for name in context.given}
    found = of_batch(ALL, new - start, fields, mask)
    c, w = (start - sampler).exp()[mask].numpy(), (new - sampler).exp()[mask].numpy()
    size = w.sum() ** 2 / (w.size * (w**2).sum())
    assert float(found["effective_size"][0, 0]) == pytest.approx(size)
    squares = np.log(c) ** 2
    moments = [squares[squares <= x].mean() for x in squares]
    np.testing.assert_allclose(found["second_moment"][mask], moments, rtol=1e-9)
    for row in range(len(mask) - 1):
        own = ((start - sampler).exp()[row][mask[row]] - 1).abs().mean()
        assert float(found["deviation"][row, 0]) == pytest.approx(float(own))
    assert all(torch.isfinite(x).all() for x in found.values())  # the last sequence is empty


@settings(max_examples=20)
@given(seed=seeds, limit=st.floats(0.001, 0.2))
def test_m2po_drops_the_furthest_until_the_rest_is_near(seed, limit):
    """As published: one by one, the largest first, while the mean of the others is too large."""
    sampler, start, new, advantages, mask = log_probs(seed)
    context = token_context(new, start, behaviour_log_prob=sampler)
    gates = [f"m2po(limit={limit})"]
    m = token_multiplier(new, start, advantages, mask, "is", context, gates=gates)
    squares = {tuple(i): float((start - sampler)[tuple(i)] ** 2) for i in mask.nonzero().tolist()}
    while squares and np.mean(list(squares.values())) > limit:
        del squares[max(squares, key=squares.get)]
    kept = torch.zeros_like(mask)
    for place in squares:
        kept[place] = True
    assert torch.equal((m != 0), kept)


def test_ties_count_together():
    log_c = torch.tensor([[1.0, -1.0, 1.0, 0.0]])
    expected = [[0.75, 0.75, 0.75, 0.0]]
    assert second_moment(log_c, torch.ones(1, 4, dtype=torch.bool)).tolist() == expected
    assert second_moment(log_c, torch.zeros(1, 4, dtype=torch.bool)).tolist() == [[0.0] * 4]


@settings(max_examples=20)
@given(seed=seeds, shape=st.sampled_from(["geppo", "impact", "p3o-ess", "vaco * is", "m2po * is"]))
def test_it_does_not_matter_what_the_ratio_divides_by(seed, shape):
    """Sampler or start: one multiplier, for m2po up to c, which is then in the gate's stead."""
    sampler, start, new, advantages, mask = log_probs(seed)
    over_start = token_context(new, start, behaviour_log_prob=sampler)
    over_sampler = token_context(new, sampler, start_log_prob=start)
    one = token_multiplier(new, start, advantages, mask, shape, over_start)
    other = token_multiplier(new, sampler, advantages, mask, shape, over_sampler)
    if "m2po" in shape:
        one = torch.where(mask, one * (start - sampler).exp(), 0.0)
    torch.testing.assert_close(one, other)


@settings(max_examples=20)
@given(seed=seeds)
def test_two_ratios_multiply_and_have_their_own_kills(seed):
    sampler, start, new, advantages, mask = log_probs(seed)
    rows = []
    for old, context in (
        (start, token_context(new, start, behaviour_log_prob=sampler)),
        (sampler, token_context(new, sampler, start_log_prob=start)),
    ):
        diagnostics = token_loss(new, old, advantages, mask, Clip(), context).diagnostics
        move, mismatch = diagnostics.ratios
        torch.testing.assert_close((move + mismatch)[mask], (new - sampler)[mask])
        rows.append(diagnostics.metrics())
        for name, moved in (("move", new - start), ("mismatch", start - sampler)):
            w, a = moved.exp()[mask], advantages[:, None].expand_as(mask)[mask]
            killed = ((w > 1.2) & (a > 0)) | ((w < 0.8) & (a < 0))
            row = {k: v for k, v in rows[-1].items() if k.startswith(f"{name}/")}
            assert row[f"{name}/kill"] == pytest.approx(float(killed.double().mean()))
            assert row[f"{name}/ratio_p50"] == pytest.approx(float(w.quantile(0.5)))
            assert not [k for k in row if "mass" in k or "beta" in k or "zeroed" in k]
            assert int(diagnostics.reasons[name].sum()) == int(killed.sum())
    first, second = rows
    assert first["kill"] == pytest.approx(first["move/kill"])  # w is the move: nothing else kills
    names = [name for name in first if name.startswith(("move/", "mismatch/"))]
    assert {n: second[n] for n in names} == pytest.approx({n: first[n] for n in names})


def test_without_the_sampler_there_is_nothing_to_tell_apart():
    _, start, new, advantages, mask = log_probs(1)
    diagnostics = token_loss(new, start, advantages, mask).diagnostics
    assert diagnostics.ratios is None
    assert diagnostics.reasons == {}
    assert not [name for name in diagnostics.metrics() if name.startswith(("move", "mismatch"))]
    assert two_ratios(new - start, {"behaviour_log_ratio": 0.0}) is None
    with pytest.raises(MissingContext, match="needs behaviour_log_ratio"):
        token_loss(new, start, advantages, mask, "vaco * clip", Context(age=1.0))


def test_sampler_log_probs_that_are_unknown_are_left_out_of_its_counts():
    sampler, start, new, advantages, mask = log_probs(2)
    sampler[0, 0] = torch.nan
    context = token_context(new, start, behaviour_log_prob=sampler)
    row = token_loss(new, start, advantages, mask, Clip(), context).diagnostics.metrics()
    assert row["mismatch/tokens"] == row["move/tokens"] == row["tokens"] - 1
    assert np.isfinite(list(row.values())).all()


def test_a_band_around_c_does_not_hide_the_reasons():
    """GePPO's band moves with c; each ratio is held against the band of a fresh sample."""
    old, one = torch.zeros(1, 3), torch.ones(1)
    new = torch.tensor([[0.05, 0.5, 0.05]])
    context = token_context(new, old, behaviour_log_prob=torch.tensor([[0.0, 0.0, -0.5]]))
    diagnostics = token_loss(new, old, one, shape=GePPO(eps=0.1), context=context).diagnostics
    assert diagnostics.reasons["move"].tolist() == [[False, True, False]]
    assert diagnostics.reasons["mismatch"].tolist() == [[False, False, True]]
    assert diagnostics.sets()[1].tolist() == [[False, True, False]]


def test_a_sequence_has_one_ratio_of_each_kind():
    sampler, start, new, advantages, mask = log_probs(3)
    context = token_context(new, start, behaviour_log_prob=sampler)
    level = SequenceMean()
    diagnostics = token_loss(new, start, advantages, mask, Clip(), context, level=level).diagnostics
    mean = torch.where(mask, start - sampler, 0.0)[0].sum() / mask[0].sum()
    torch.testing.assert_close(diagnostics.ratios.mismatch[0], mean.expand(9))


def test_a_sampler_that_kills_is_warned_of():
    old, one = torch.zeros(1, 4), torch.ones(1)
    start = torch.tensor([[0.0, 0.5, 0.5, 0.5]])
    new = start + torch.tensor([[0.5, 0.01, 0.01, 0.01]])
    context = token_context(new, old, start_log_prob=start)
    warnings = token_loss(new, old, one, context=context).diagnostics.warnings()
    assert any("3 of 4 killed tokens were outside the band before" in line for line in warnings)
    fresh = token_loss(new, start, one, context=token_context(new, start, behaviour_log_prob=start))
    assert not fresh.diagnostics.warnings()
