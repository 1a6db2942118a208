"""Verdicts as values."""

import json

import pytest

from klip.errors import KlipError
from klip.theory.guarantee.examine import examined
from klip.theory.guarantee.verdict import Bandit, Guarantee, Verdict


def test_a_verdict_is_json():
    found = examined("tis", measured=False, attacked=False)
    about = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    bandit = Bandit.of(about["verdicts"][0]["bandit"])
    assert bandit == found["improvement"].bandit
    assert bandit.variation > 0


@pytest.mark.parametrize("about", [{}, {"old": [1], "advantages": [1, 2], "new": [1]}, {"old": 3}])
def test_a_damaged_bandit_is_refused(about):
    with pytest.raises(KlipError, match="a bandit needs"):
        Bandit.of(about)


def test_the_three_endings():
    assert Verdict("improvement", "holds", "scale 2", 10).headline == "holds at 10 points: scale 2"
    assert Verdict("improvement", "refuted", "this").headline == "refuted by this"
    assert Verdict("improvement", "measured", "that").headline == "measured: that"


def test_a_claim_that_was_not_looked_at():
    with pytest.raises(KlipError, match="no verdict on 'luck'"):
        Guarantee("clip", (Verdict("improvement", "holds", ""),))["luck"]
