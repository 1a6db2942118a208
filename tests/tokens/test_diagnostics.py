"""What the diagnostics say, against NumPy, and when they warn."""

import numpy as np
import pytest
import torch
from hypothesis import given

from klip.shapes import Clip, KLk3, Truncate
from klip.theory.diagnostics import QUANTILES
from klip.tokens import GeometricMean, token_context, token_loss
from tests.shapes.samples import seeds
from tests.tokens.batches import draw


@given(seeds)
def test_against_numpy(seed):
    batch = draw(seed)
    span = torch.rand(5, 7, generator=torch.Generator().manual_seed(seed % 2**31)) < 0.5
    found = token_loss(spans={"half": span}, **batch).diagnostics.metrics()
    every = batch["mask"].numpy()
    moved = (batch["log_prob"].detach() - batch["old_log_prob"]).numpy()
    for prefix, chosen in (("", every), ("half/", every & span.numpy())):
        w, a = np.exp(moved[chosen]), batch["advantages"].numpy()[chosen]
        assert found[f"{prefix}tokens"] == chosen.sum()
        if not chosen.any():
            continue
        kill = ((w > 1.2) & (a > 0)) | ((w < 0.8) & (a < 0))
        passing = ((w > 1.2) & (a < 0)) | ((w < 0.8) & (a > 0))
        mass = np.abs(w * a)
        expected = {
            "kill": kill.mean(), "pass": passing.mean(), "inside": 1 - (kill | passing).mean(),
            "killed_mass": mass[kill].sum() / max(mass.sum(), 1e-300),
            "pull": mass[~kill].sum() / max(mass.sum(), 1e-300),
            "kill_positive": (kill & (a > 0)).mean(), "pass_negative": (passing & (a < 0)).mean(),
            "surrogate": (w * a).mean(), "ratio_deviation": np.abs(w - 1).mean(),
            "ratio_mean": w.mean(), "ratio_max": w.max(), "ratio_min": w.min(),
            "k1": -np.log(w).mean(), "k3": (w - 1 - np.log(w)).mean(),
        }  # fmt: skip
        beta = np.where(kill, -w * a, 0.0)
        for name, values in (("beta", beta), ("ratio", w), ("beta_kill", beta[kill])):
            for q in QUANTILES if values.size else ():
                expected[f"{name}_p{q:02d}"] = np.percentile(values, q)
        for name, value in expected.items():
            assert found[prefix + name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
    assert found["sequences"] == every.any(-1).sum()


def test_a_first_update_is_inert_and_says_so():
    batch = draw(0)
    batch["log_prob"] = batch["old_log_prob"].clone().requires_grad_(True)
    seen = token_loss(**batch).diagnostics
    assert seen.metrics()["inert"] == 1
    assert seen.metrics()["kill"] == 0
    assert "every ratio is 1" in seen.warnings()[0]
    moved = token_loss(**draw(0)).diagnostics
    assert moved.metrics()["inert"] == 0
    assert moved.warnings() == []


def test_zero_advantages_and_strangers_are_told():
    batch = draw(0)
    zero = token_loss(**(batch | {"advantages": torch.zeros(5)})).diagnostics
    assert "every advantage is 0" in zero.warnings()[0]
    far = token_loss(**(batch | {"old_log_prob": batch["old_log_prob"] - 50})).diagnostics
    assert "beyond e^20" in far.warnings()[0]


def test_the_band_is_that_of_the_shape_inside():
    batch = draw(3, needs={"behaviour_log_ratio"})
    plain = token_loss(shape=Clip(eps=0.05), **batch).diagnostics
    inner = token_loss(shape=Truncate() * Clip(eps=0.05) + KLk3(b=0.1), **batch).diagnostics
    for one, two in zip(plain.sets(), inner.sets(), strict=True):
        assert torch.equal(one, two)


def test_what_the_level_dropped_is_killed():
    batch = draw(3)
    seen = token_loss(level=GeometricMean(0.1, 0.1), shape=Clip(eps=5.0), **batch).diagnostics
    inside, kill, passing = seen.sets()
    assert torch.equal(kill, ~seen.kept & batch["mask"])
    assert torch.equal(inside | kill | passing, batch["mask"])


def test_by_age_in_bins_of_twice_the_size():
    batch = draw(3)
    now = torch.tensor([0, 1, 3, 5, 9])
    context = token_context(batch["log_prob"], batch["old_log_prob"], age=now)
    found = token_loss(**(batch | {"context": context})).diagnostics.metrics()
    named = {name.split("/")[0] for name in found if name.startswith("age=")}
    assert named == {"age=0", "age=1", "age=2-3", "age=4-7"}  # the fifth sequence is masked
    total = sum(found[f"{name}/tokens"] for name in named)
    assert total == found["tokens"]
