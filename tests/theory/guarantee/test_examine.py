"""All claims about one shape, and bad input in one line."""

import pytest

from klip.errors import KlipError
from klip.theory.guarantee.examine import examined
from klip.theory.guarantee.verdict import CLAIMS
from tests.theory.guarantee.built import Broken, Raising, Rough


def test_every_claim_in_order():
    found = examined("clip")
    assert [verdict.claim for verdict in found.verdicts] == list(CLAIMS)
    assert found.brief == "T1 yes, T2 yes, T3 no"
    assert found.remarks == ()


def test_what_was_assumed_is_said():
    said = examined("dppo-tv", measured=False, attacked=False).remarks
    assert "T1 and T2 at 5 frozen values of old_log_prob" in said[0]
    said = examined("adaptive-kl", measured=False, attacked=False).remarks
    assert said[0].startswith("a controller: looked at as it starts, as kl")
    assert "folded into m" in said[1]


@pytest.mark.parametrize("shape", [Broken(), Raising(), Rough()], ids=lambda s: type(s).__name__)
def test_a_shape_that_cannot_be_looked_at_is_one_line(shape):
    with pytest.raises(KlipError) as error:
        examined(shape)
    assert "\n" not in str(error.value)
    assert type(shape).__name__ in str(error.value) or shape.name in str(error.value)
