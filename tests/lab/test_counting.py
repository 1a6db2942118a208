"""The tally of an iteration says what the diagnostics of its updates say."""

import pytest
import torch

from klip.lab.counting import Tally
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
    names = {"kill": "kill", "pass": "pass", "killed_mass": "killed_mass", "kl": "k3"}
    names |= {f"{span}_{part}": f"{span}/{part}" for span in spans for part in ("kill", "pass")}
    for ours, theirs in names.items():
        assert found[ours] == pytest.approx(said[theirs]), ours
    assert found["age_kill"][0] == pytest.approx(said["age=0/kill"])
    assert found["age_kill"][1] == pytest.approx(said["age=1/kill"])
    assert found["age_kill"][3] is None
    assert sum(found["age_share"]) == pytest.approx(1)
