"""What the adversary finds can be kept, read and played again."""

import json

import pytest

from klip.errors import KlipError
from klip.shapes import ImportanceSampling, parse
from klip.theory.guarantee import adversary as room
from klip.theory.guarantee.adversary import adversary, read, replayed


@pytest.fixture(scope="module")
def found():
    verdict, counterexample = adversary(ImportanceSampling())
    return verdict, counterexample


def test_it_defeats_what_has_no_region(found):
    verdict, counterexample = found
    assert verdict.outcome == "refuted"
    assert counterexample["change"] < 0
    assert verdict.figures["tried"] == room.CHAINS * (room.MUTATIONS + 1)


def test_a_replay_gives_the_same_numbers(found):
    again = replayed(read(json.dumps(found[1]).encode()), ImportanceSampling())
    assert again.change == pytest.approx(found[1]["change"], rel=1e-6)
    assert again.kept == found[1]["change"]
    assert replayed(found[1], parse("clip").initial).variation < again.variation


def test_what_is_found_nowhere_is_not_called_safe(monkeypatch):
    monkeypatch.setattr(room, "MUTATIONS", 0)
    monkeypatch.setattr(room, "FELL", 1e9)
    verdict, counterexample = adversary(ImportanceSampling())
    assert verdict.headline == f"measured: no counterexample in {room.CHAINS:,} MDPs"
    assert counterexample is None


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"format": "klip guarantee 1"}', b"[" * 100_000, b'{"format": 3}']
)
def test_other_files_are_refused(data):
    with pytest.raises(KlipError):
        read(data)


@pytest.mark.parametrize(
    "forged", [{"steps": 10**9}, {"steps": 10**400}, {"change": 10**400}, {"rate": float("nan")}]
)
def test_no_endless_replay(found, forged):
    with pytest.raises(KlipError, match="steps"):
        read(json.dumps(found[1] | forged).encode())
