"""The vocabulary of diagnostics: one number in three frameworks, over parts and over the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.shapes import CISPO, DPPOTV, SAPO, SPO, Clip, ImportanceSampling, Shape, catalogue
from klip.theory.diagnostics import (
    FATES,
    PARTS,
    QUANTILE_LABELS,
    QUANTILES,
    Observed,
    merged,
    metrics,
    quantiles,
    totals,
)
from klip.theory.partition import edges_of, mark_of
from tests.shapes.samples import convert, draw_samples, seeds

EDGES = (0.8, 1.2)
COMPILED = jax.jit(lambda *x: metrics(totals(Observed.of(*x, EDGES))))


def draw(seed, size=97):
    """Log-ratios, advantages of which some are 0, and PPO-Clip's multiplier; float32."""
    rng = np.random.default_rng(seed)
    log_ratio = rng.normal(0, 0.4, size).astype(np.float32)
    advantage = (rng.normal(size=size) * (rng.random(size) < 0.9)).astype(np.float32)
    return log_ratio, advantage, Clip().multiplier(log_ratio, advantage)


@given(seeds)
def test_three_frameworks_agree(seed):
    arrays = draw(seed)
    expected = metrics(totals(Observed.of(*arrays, EDGES)))
    for found in (
        COMPILED(*map(jnp.asarray, arrays)),
        metrics(totals(Observed.of(*map(torch.from_numpy, arrays), EDGES))),
    ):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert float(found[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-5), name


@given(seeds)
def test_the_sets_are_a_partition_by_sign(seed):
    found = metrics(totals(Observed.of(*draw(seed), EDGES)))
    assert sum(found[part] for part in PARTS) == pytest.approx(1)
    for part in PARTS:
        signs = [value for name, value in found.items() if name.startswith(f"{part}_")]
        assert sum(signs) == pytest.approx(found[part])


@given(seeds)
def test_a_mask_is_a_selection(seed):
    observed = Observed.of(*draw(seed), EDGES)
    active = np.random.default_rng(seed).random(97) < 0.5
    masked, chosen = totals(observed, active), totals(observed.at(np.flatnonzero(active)))
    if not active.any():
        return
    for name, value in chosen.items():
        assert masked[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


@given(seeds, st.integers(1, 96))
def test_batches_merge_to_the_whole(seed, cut):
    observed = Observed.of(*draw(seed), EDGES)
    parts = [totals(observed.at(rows)) for rows in (np.arange(cut), np.arange(cut, 97))]
    together = merged({name: np.stack([part[name] for part in parts]) for name in parts[0]})
    for name, value in totals(observed).items():
        assert together[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


@given(seeds)
def test_beta_is_exactly_zero_where_nothing_is_changed(seed):
    observed = Observed.of(*draw(seed), EDGES)
    assert not observed.beta[~observed.kill].any()
    np.testing.assert_array_equal(observed.beta[observed.kill], -observed.surrogate[observed.kill])


def test_nobody_is_summed_as_nothing():
    none = totals(Observed.of(*draw(0), EDGES), active=np.zeros(97, bool))
    rest = {name: value for name, value in none.items() if value}
    assert rest == {"ratio_min": np.inf}


def test_what_was_dropped_before_the_shape_is_killed():
    kept = np.arange(97) % 2 == 0
    plain, dropped = Observed.of(*draw(0), EDGES), Observed.of(*draw(0), EDGES, kept)
    np.testing.assert_array_equal(dropped.kill, plain.kill | ~kept)
    np.testing.assert_array_equal(np.asarray(PARTS)[dropped.part] == "kill", dropped.kill)
    np.testing.assert_array_equal(dropped.inside | dropped.kill | dropped.passing, True)


def test_advantages_of_sequences_count_for_their_tokens():
    log_ratio, m = torch.zeros(2, 3), torch.ones(2, 3)
    observed = Observed.of(log_ratio, torch.tensor([[1.0], [-1.0]]), m, EDGES)
    found = metrics(totals(observed))
    assert (found["inside_positive"], found["inside_negative"]) == (0.5, 0.5)


def test_quantiles():
    values = np.random.default_rng(0).normal(size=200)
    expected = [np.percentile(values, q) for q in QUANTILES]
    assert quantiles(values) == expected
    assert quantiles(torch.from_numpy(values)) == expected
    assert quantiles(values[:0]) is None
    assert QUANTILE_LABELS[:2] == ("p01", "p05")


@pytest.mark.parametrize("name", sorted(catalogue(Shape)))
def test_fates_are_a_count_of_the_multiplier_by_hand(name):
    """Every shipped shape: what the metrics say is what m says, sample by sample."""
    shape = catalogue(Shape)[name]()
    log_ratio, advantage, given_fields = draw_samples(shape, np.random.default_rng(7), 400, 1.5)
    context = convert(given_fields, lambda x: x)
    m = np.broadcast_to(shape.multiplier(log_ratio, advantage, context), log_ratio.shape)
    edges = edges_of(shape, context, log_ratio)
    row = metrics(totals(Observed.of(log_ratio, advantage, m, edges)), mark_of(shape))
    counts, masses = dict.fromkeys(FATES, 0), dict.fromkeys(FATES, 0.0)
    for pull, x, a in zip(m, log_ratio, advantage, strict=True):
        plain = np.exp(np.clip(x, -20, 20)) * a
        if abs(pull - plain) <= 1e-6 * abs(plain):
            fate = "kept"
        elif abs(pull) <= 1e-6 * abs(plain):
            fate = "zeroed"
        elif pull * a < 0:
            fate = "reversed"
        else:
            fate = "weakened" if abs(pull) < abs(plain) else "strengthened"
        counts[fate] += 1
        masses[fate] += abs(plain)
    for fate in FATES:
        assert row[fate] == counts[fate] / 400, fate
        assert row[f"{fate}_mass"] == pytest.approx(masses[fate] / sum(masses.values())), fate


@given(seeds)
def test_ppo_clip_zeroes_exactly_what_it_kills(seed):
    observed = Observed.of(*draw(seed), EDGES)
    np.testing.assert_array_equal(observed.fate == FATES.index("zeroed"), observed.kill)
    row = metrics(totals(observed))
    assert row["zeroed"] == row["kill"]
    assert row["zeroed_mass"] == row["killed_mass"]
    assert row["kept"] == pytest.approx(row["inside"] + row["pass"])


def test_shapes_without_a_band_are_told_apart():
    """One batch: what each does is its own, and a reference band is called one."""
    log_ratio, advantage, _ = draw(3, 2000)
    rows = {}
    for shape in (Clip(), CISPO(), SAPO(), SPO(), ImportanceSampling()):
        m = np.broadcast_to(shape.multiplier(log_ratio, advantage), log_ratio.shape)
        observed = Observed.of(log_ratio, advantage, m, edges_of(shape))
        rows[shape.name] = metrics(totals(observed), mark_of(shape))
    assert rows["is"]["kept"] == 1
    assert rows["sapo"]["zeroed"] == 0
    assert rows["sapo"]["weakened"] > 0.8
    assert rows["spo"]["reversed"] > 0.2
    assert rows["cispo"]["weakened"] == pytest.approx(np.mean(np.exp(log_ratio) > CISPO().cap), 0.1)
    assert "kill" in rows["clip"]
    for name in ("is", "sapo", "spo"):
        assert "kill" not in rows[name]
        assert rows[name]["kill@0.2"] == rows["clip"]["kill"]
        assert {"inside@0.2", "pass@0.2", "killed_mass@0.2", "kill_positive@0.2"} <= set(rows[name])


def test_a_mask_by_probability_counts_what_it_drops():
    """DPPO-TV drops by the old probability: a band of the ratio knows nothing of it."""
    shape = DPPOTV()
    log_ratio, advantage, given_fields = draw_samples(shape, np.random.default_rng(0), 2000, 1.0)
    context = convert(given_fields, lambda x: x)
    m = shape.multiplier(log_ratio, advantage, context)
    row = metrics(totals(Observed.of(log_ratio, advantage, m, edges_of(shape))), mark_of(shape))
    assert row["zeroed"] == np.mean((m == 0) & (advantage != 0))
    assert abs(row["zeroed"] - row["kill@0.2"]) > 0.1
