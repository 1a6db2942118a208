"""Pooled batches are one batch: sums, extremes, ratios of sums, quantiles; by span and by age."""

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import ByAge, Clip, Context
from klip.theory import ranked
from klip.tokens import Pool, pooled, token_loss
from tests.shapes.samples import seeds
from tests.tokens.batches import draw


def batch(seed, age, reach=0.5):
    """Arguments of `token_loss`: a batch with a span, and an age of its own."""
    drawn = draw(seed, reach=reach)
    span = torch.rand(5, 7, generator=torch.Generator().manual_seed(seed % 2**31)) < 0.3
    return drawn | {"context": Context(age=torch.full((5, 1), float(age))), "span": span}


def diagnostics(*batches, shape):
    """Of the batches as one."""

    def whole(name):
        return torch.cat([part[name] for part in batches])

    names = ("log_prob", "old_log_prob", "advantages", "mask")
    age = torch.cat([part["context"].age for part in batches])
    return token_loss(
        *map(whole, names), shape, Context(age=age), spans={"answer": whole("span")}
    ).diagnostics


SHAPES = [Clip(eps=ByAge(fresh=0.3, half_life=2.0)), Clip(), "cispo(cap=1.5)", "sapo"]


@pytest.mark.parametrize("chosen", SHAPES, ids=str)
@given(st.lists(st.tuples(seeds, st.integers(0, 9)), min_size=2, max_size=5))
def test_they_have_the_metrics_of_one_batch(chosen, drawn):
    batches = [batch(*one) for one in drawn]
    parts = [diagnostics(one, shape=chosen).pool() for one in batches]
    found = pooled(parts).metrics()
    nested = pooled([pooled(parts[:1]), pooled(parts[1:])]).metrics()
    wanted = diagnostics(*batches, shape=chosen).metrics()
    assert found.keys() == wanted.keys() == nested.keys()
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
        assert nested[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
    exact = [n for n in wanted if n.endswith(("_max", "_min", "tokens", "_p01", "_p50", "_p99"))]
    assert all(found[name] == wanted[name] for name in exact)


def test_a_mean_of_means_would_be_something_else():
    """What is tested above differs from what averaging would give."""
    batches = [batch(seed, seed, reach=0.2 + seed) for seed in range(3)]
    rows = [diagnostics(one, shape="clip").metrics() for one in batches]
    found = pooled([diagnostics(one, shape="clip").pool() for one in batches]).metrics()
    for name in ("tokens", "ratio_max", "ratio_min", "ratio_std", "beta_p05"):
        mean = sum(row[name] for row in rows) / 3
        assert abs(found[name] - mean) > 0.01 * abs(mean), name


def test_one_pool_is_taken_as_it_is():
    only = diagnostics(batch(1, 0), shape="clip").pool()
    assert pooled([only]) is only


def test_beyond_the_limit_quantiles_are_within_the_stated_error(monkeypatch):
    monkeypatch.setattr(ranked.joined, "__defaults__", (50,))
    batches = [batch(seed, 0) for seed in range(6)]
    pool = pooled([diagnostics(one, shape="clip").pool() for one in batches])
    assert pool.parts[""].ranked["ratio_{}"].counts is not None
    found, wanted = pool.metrics(), diagnostics(*batches, shape="clip").metrics()
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=2 * ranked.ERROR, abs=1e-9), name
    assert found["ratio_max"] == wanted["ratio_max"]  # extremes, sums and counts stay exact


def test_without_details_only_the_whole_has_quantiles_to_keep():
    seen = diagnostics(batch(3, 1), shape="clip")
    brief = seen.pool(details=False)
    assert [bool(part.ranked) for part in brief.parts.values()] == [True, False, False]
    assert brief.metrics().items() <= seen.metrics().items()


def test_parts_without_tokens_have_none_and_spoil_nothing():
    empty = batch(0, 0) | {"span": torch.zeros(5, 7, dtype=torch.bool)}
    some = batch(1, 0)
    alone = pooled([diagnostics(empty, shape="clip").pool()] * 2).metrics()
    assert alone["answer/tokens"] == 0
    assert "answer/kill" not in alone
    row = pooled([diagnostics(x, shape="clip").pool() for x in (empty, some, empty)]).metrics()
    own = diagnostics(some, shape="clip").metrics()
    assert {n: x for n, x in row.items() if n.startswith("answer/")} == {
        n: x for n, x in own.items() if n.startswith("answer/")
    }


def test_nothing_moved_only_if_nothing_moved_in_any():
    drawn = batch(0, 0)
    still = drawn | {"log_prob": drawn["old_log_prob"].clone()}
    stay, move = (diagnostics(x, shape="clip").pool() for x in (still, drawn))
    assert pooled([stay, stay]).metrics()["inert"] == 1
    assert pooled([stay, move]).metrics()["inert"] == 0


def test_further_means_are_weighed_by_what_was_counted():
    some = [Pool({}, means={"found": (1.0, 2.0)}), Pool({}), Pool({}, means={"found": (6.0, 6.0)})]
    assert pooled(some).metrics() == {"found": 7 / 8}


def test_it_can_be_sent():
    pool = diagnostics(batch(2, 3), shape="clip").pool()
    for one in (pool, pool.in_cells()):
        assert pickle.loads(pickle.dumps(one)).metrics() == one.metrics()


def test_nothing_to_pool_is_an_error():
    with pytest.raises(KlipError, match="nothing to pool"):
        pooled([])


def test_shares_of_all_tokens_may_be_averaged_over_batches():
    """Weighed by tokens, they are those of the pool; and their quotient is the part's fraction."""
    spans = {"late": torch.arange(4).expand(3, 4) > 1}
    pools = []
    for seed in (1, 2):
        new = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        mask = torch.arange(4) < torch.tensor([[4], [seed], [3]])
        context = Context(entropy=new.abs(), age=torch.tensor([0.0, 1.0, 2.0]))
        loss = token_loss(
            new, torch.zeros_like(new), torch.ones(3), mask, "clip", context, spans=spans
        )
        pools.append(loss.diagnostics.pool())
    whole = pooled(pools)
    row, shares = whole.metrics(), whole.of_all()
    assert {"late/tokens_of_all", "age=1/zeroed_of_all"} <= shares.keys()
    for name, share in shares.items():
        parts = [pool.of_all().get(name, 0.0) * pool.tokens / whole.tokens for pool in pools]
        assert sum(parts) == pytest.approx(share)
    assert row["late/zeroed"] == pytest.approx(
        shares["late/zeroed_of_all"] / shares["late/tokens_of_all"]
    )
