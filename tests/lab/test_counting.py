"""The tally of an iteration says what the diagnostics of its updates say."""

import pytest
import torch

from klip.lab.counting import Tally
from klip.theory.diagnostics import FATES
from klip.tokens import token_context, token_loss
from tests.tokens.batches import draw


def test_one_update_is_tallied_as_its_diagnostics_say():
    batch = draw(3)
    answer = torch.arange(7) >= torch.tensor([[3]]).expand(5, 1)
    age = torch.tensor([[0.0], [1.0], [1.0], [2.0], [0.0]])
    context = token_context(batch["log_prob"], batch["old_log_prob"], age=age)
    spans = {"answer": answer, "reasoning": ~answer}
    diagnostics = token_loss(**(batch | {"context": context}), spans=spans).diagnostics
    tally = Tally(oldest=3)
    tally.add(diagnostics, answer)
    tally.add(diagnostics, answer)  # twice the same: fractions stay
    found, said = tally.metrics(oldest=3), diagnostics.metrics()
    parts = (*FATES, "kill", "pass")
    masses = ("killed_mass", *(f"{name}_mass" for name in FATES))
    names = {"kl": "k3", **{name: name for name in (*parts, *masses)}}
    names |= {f"{span}_{part}": f"{span}/{part}" for span in spans for part in parts}
    for ours, theirs in names.items():
        assert found[ours] == pytest.approx(said[theirs]), ours
    for part in parts:
        assert found[f"age_{part}"][0] == pytest.approx(said[f"age=0/{part}"])
        assert found[f"age_{part}"][1] == pytest.approx(said[f"age=1/{part}"])
        assert found[f"age_{part}"][3] is None
    assert sum(found["age_share"]) == pytest.approx(1)


def test_a_shape_without_a_band_is_tallied_by_what_it_does():
    batch = draw(3) | {"shape": "spo"}
    answer = torch.zeros(5, 7, dtype=torch.bool)
    context = token_context(batch["log_prob"], batch["old_log_prob"], age=torch.zeros(5, 1))
    tally = Tally(oldest=0)
    tally.add(token_loss(**(batch | {"context": context})).diagnostics, answer)
    row = tally.metrics(oldest=0)
    assert row["reversed"] > 0
    assert "kill" not in row
    assert row["kill@0.2"] > 0
